import os

import pytest

from voxtui.errors import InputError
from voxtui.storage.device_offset import (
    device_offset,
    newest_offset,
    offset_file,
    save_offset,
)


def test_the_offset_is_found_for_the_speaker_it_was_measured_with(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert device_offset("Box") is None
    assert newest_offset() == 0
    save_offset(offset_file(), "Box", "Headset", 0.0423)
    assert device_offset("Box") == 42.3
    assert newest_offset() == pytest.approx(0.0423)
    assert device_offset("Another") is None
    save_offset(offset_file(), "B", "H", 0.1)  # shorter than before
    assert device_offset("B") == 100


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"speaker": "Box"}', '{"speaker": "Box", "offset_ms": "x"}', "[" * 9000],
    ids=["empty", "list", "object", "no offset", "no number", "deep"],
)
def test_a_damaged_file_holds_no_offset(tmp_path, content):
    path = tmp_path / "loopback.json"
    path.write_text(content)
    assert device_offset("Box", path) is None


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written: "):
        save_offset(tmp_path / "file" / "loopback.json", "Box", "Headset", 0.1)


def test_a_link_is_not_written_through(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "loopback.json"
    victim.write_text("mine")
    path.symlink_to(victim)
    save_offset(path, "Box", "Headset", 0.1)
    assert victim.read_text() == "mine"
    assert device_offset("Box", path) == 100


def test_a_fifo_and_an_endless_device_are_not_read(tmp_path):
    fifo, zero = tmp_path / "fifo", tmp_path / "zero"
    os.mkfifo(fifo)
    zero.symlink_to("/dev/zero")
    assert device_offset("Box", fifo) is None
    assert device_offset("Box", zero) is None
    save_offset(fifo, "Box", "Headset", 0.1)
    assert fifo.is_file()
