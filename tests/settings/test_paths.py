"""Config files: only small regular files are read."""

import os
import time

import pytest

from tests.settings.conftest import write
from voxtui.errors import ConfigError
from voxtui.settings.paths import LARGEST_CONFIG, read_config

QUICKLY_S = 5.0


def error_of(path):
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert error_of(tmp_path / "fifo") == "is not a regular file."


def test_a_link_to_a_device_is_refused(tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert error_of(tmp_path / "zero") == "is not a regular file."


def test_a_file_over_1_mb_is_refused(tmp_path):
    path = write(tmp_path / "large.toml", "#" * (LARGEST_CONFIG + 1))
    assert error_of(path) == "is larger than 1 MB."
    path.write_text("#" * LARGEST_CONFIG)
    assert len(read_config(path)) == LARGEST_CONFIG


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 100_000 + " = 1",
        "\n".join(f"a{'.a' * 300}.b{n} = 1" for n in range(3000))[: LARGEST_CONFIG],
        "[" + "a." * 100_000 + "a]",
        'x = "\\"" # "\n' + "a." * 100_000 + "a = 1",
        "x = \"\"\"a\"\"\"\"\n" + "a." * 100_000 + "a = 1",
        "x = '''a'''''\n" + "a." * 100_000 + "a = 1",
        '"a"' + ' . "a"' * 100_000 + " = 1",
    ],
    ids=["deep", "3000 keys", "header", "behind strings", "four quotes", "five quotes", "quoted"],
)  # fmt: skip
def test_a_key_of_very_many_parts_is_refused_at_once(tmp_path, text):
    began = time.process_time()
    assert "dots" in error_of(write(tmp_path / "bomb.toml", text))
    assert time.process_time() - began < QUICKLY_S


@pytest.mark.parametrize("piece", ['"""\\', "'''", '"\\', "'", '"', '""" ', "#"])
def test_unclosed_strings_are_scanned_in_linear_time(tmp_path, piece):
    text = piece * (LARGEST_CONFIG // len(piece) // 2 * 2 - 1)
    began = time.process_time()
    read_config(write(tmp_path / "odd.toml", text))
    assert time.process_time() - began < QUICKLY_S


def test_dots_in_strings_and_comments_do_not_count(tmp_path):
    path = write(
        tmp_path / "dots.toml", f'a = "{"." * 99}" # {"." * 99}\nb = """\n{"." * 99}\n"""\n'
    )
    assert "." * 99 in read_config(path)


def test_an_unreadable_file_is_one_sentence(tmp_path):
    assert error_of(tmp_path / "no.toml") == "there is no such file."
    assert error_of(tmp_path) == "is a directory, not a file."
    path = tmp_path / "latin.toml"
    path.write_bytes(b"[audio]\ninput = '\xe9'\n")
    assert error_of(path) == "is not UTF-8 text."
    assert error_of(path / "x") == "cannot be read: Not a directory."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_read_permission_is_one_sentence(tmp_path):
    path = write(tmp_path / "closed.toml", "")
    path.chmod(0)
    assert error_of(path) == "cannot be read: Permission denied."


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path):
    assert read_config(write(tmp_path / "bom.toml", "\ufeffa = 1\n")) == "a = 1\n"
