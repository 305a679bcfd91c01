"""Check records, links and special files in the directory of downloaded models."""

import json
import os
from threading import Event as Flag

import pytest

from tests.models.tiny_model import CONTENT, PARTIAL, TINY, place_tiny
from voxtui.commands import models_command as models_command
from voxtui.errors import ModelError
from voxtui.models.catalogue import ModelFile, models_directory
from voxtui.models.download import download
from voxtui.models.installed import model_file
from voxtui.models.store import Stopped, has_changed, place, record_path
from voxtui.settings.schema import BrainConfig, Config, EmbeddedBrainConfig

pytestmark = pytest.mark.usefixtures("empty_store")

CONFIG = Config(brain=BrainConfig(embedded=EmbeddedBrainConfig(model="tiny")))
CHANGED = CONTENT[:-1] + b"?"


@pytest.fixture
def released(tmp_path):
    """Write the released file to a directory of the user."""
    path = tmp_path / "released.gguf"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def downloaded(released):
    return download(TINY, released)


def change(path):
    """Write other bytes of the same length, at a later time."""
    path.write_bytes(CHANGED)
    later = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(later, later))


def test_a_file_given_by_from_is_copied_so_its_owner_cannot_change_the_model(released):
    path = download(TINY, released)
    with released.open("r+b") as file:
        file.seek(100)
        file.write(b"EVIL")
    assert path.read_bytes() == CONTENT
    assert path.stat().st_nlink == 1
    assert not record_path(released).exists()


def test_a_model_that_changed_after_its_check_is_not_loaded(downloaded):
    assert model_file("tiny") == downloaded
    change(downloaded)
    with pytest.raises(ModelError, match=r"Checksum mismatch for .*tiny\.gguf.*fetch tiny`"):
        model_file("tiny")


def test_a_model_that_was_changed_in_place_with_its_time_restored_is_not_loaded(downloaded):
    before = downloaded.stat()
    with downloaded.open("r+b") as file:
        file.seek(100)
        file.write(b"EVIL")
    os.utime(downloaded, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ModelError, match=r"Checksum mismatch for .*tiny\.gguf"):
        model_file("tiny")


def test_the_record_of_an_earlier_version_still_describes_its_file(downloaded):
    record = record_path(downloaded)
    fields = json.loads(record.read_text())
    assert fields.pop("ctime_ns")
    record.write_text(json.dumps(fields))
    assert not has_changed(downloaded)


def test_a_planted_file_of_the_right_size_is_not_loaded():
    place_tiny(CHANGED)
    with pytest.raises(ModelError, match="Checksum mismatch"):
        model_file("tiny")


def test_a_model_with_a_later_time_and_the_same_bytes_is_hashed_once(downloaded):
    os.utime(downloaded, ns=(1, 1))
    stop = Flag()
    stop.set()
    with pytest.raises(Stopped):
        model_file("tiny", stop)
    assert model_file("tiny") == downloaded
    assert model_file("tiny", stop) == downloaded


@pytest.mark.parametrize("record", [b"", b"{", b"[]", b'{"digest": 1}', None])
def test_an_unreadable_check_record_means_that_the_file_is_hashed(downloaded, record):
    path = record_path(downloaded)
    path.unlink()
    if record is None:
        os.mkfifo(path)
    else:
        path.write_bytes(record)
    assert model_file("tiny") == downloaded
    change(downloaded)
    with pytest.raises(ModelError, match="Checksum mismatch"):
        model_file("tiny")


def test_a_check_record_is_not_written_through_a_link(downloaded, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    record = record_path(downloaded)
    record.unlink()
    for path in (record, record.with_name(f"{record.name}.{os.getpid()}")):
        path.symlink_to(victim)
    model_file("tiny")
    assert victim.read_text() == "mine"
    assert not record.is_symlink()


def test_the_list_names_a_model_that_changed(downloaded, capsys):
    models_command.show_models(CONFIG)
    assert f"needed, here: {downloaded}\n" in capsys.readouterr().out
    change(downloaded)
    models_command.show_models(CONFIG)
    assert f"needed, Checksum mismatch for {downloaded}.\n" in capsys.readouterr().out


def test_a_fetch_of_a_model_that_changed_says_so_and_replaces_it(downloaded, released, capsys):
    change(downloaded)
    models_command.fetch(CONFIG, None, "auto", released)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"Checksum mismatch for {downloaded}.",
        f"Fetching tiny: 0.00 GB to {downloaded}",
    ]
    assert downloaded.read_bytes() == CONTENT
    models_command.fetch(CONFIG, None, "auto", None)
    assert capsys.readouterr().err == f"tiny is here already: {downloaded}\n"


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_download_is_not_written_through_a_link(released, tmp_path, link):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    models_directory().mkdir(parents=True)
    link(victim, models_directory() / PARTIAL)
    with pytest.raises(ModelError, match=r"tiny\.gguf\.partial cannot be used: It .* link"):
        download(TINY, released)
    assert victim.read_text() == "mine"


def test_a_fifo_as_partial_download_is_refused_at_once(released):
    models_directory().mkdir(parents=True)
    os.mkfifo(models_directory() / PARTIAL)
    with pytest.raises(ModelError, match=r"partial cannot be used: It is not a regular file"):
        download(TINY, released)


def test_a_fifo_as_model_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "mine.gguf")
    with pytest.raises(ModelError, match=r"mine\.gguf cannot be read: It is not a regular file"):
        model_file(str(tmp_path / "mine.gguf"))


def test_a_file_without_a_sha256_is_checked_by_the_hash_of_git(tmp_path):
    content = b"hello\n"
    file = ModelFile("someone/tiny", "a.txt", 6, "git:ce013625030ba8dba906f756967f9e9ca394464a")
    (tmp_path / "a.txt.partial").write_bytes(content)
    place(tmp_path / "a.txt", file, lambda: None)
    assert (tmp_path / "a.txt").read_bytes() == content
    (tmp_path / "a.txt.partial").write_bytes(b"hallo\n")
    with pytest.raises(ModelError, match=r"Checksum mismatch for a\.txt"):
        place(tmp_path / "a.txt", file, lambda: None)
    assert not (tmp_path / "a.txt.partial").exists()
