"""The folders of the chat model's sockets, and what is left of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from voxtui.storage.temporary_folders import PREFIX, temporary_folder

ENDS_INSIDE = """
from voxtui.cli.options import leave
from voxtui.storage.temporary_folders import temporary_folder
with temporary_folder() as folder:
    (folder / "chat.sock").touch()
    print(folder, flush=True)
    leave(0)
"""


def test_the_folder_of_a_program_that_ends_meanwhile_is_removed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ENDS_INSIDE], env=environment, check=True, stdout=subprocess.PIPE
    )
    assert str(tmp_path).encode() in done.stdout
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_a_killed_process_left_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    over = subprocess.Popen(["true"])
    over.wait()
    names = f"{over.pid}-aaaaaaaa", f"{over.pid}-bbbbbbbb", f"{os.getpid()}-cccccccc", "x-dddddddd"
    stale, foreign, live, other = (tmp_path / f"{PREFIX}{name}" for name in names)
    for folder in (stale, foreign, live, other):
        folder.mkdir()
    (foreign / "notes").touch()
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(stale)  # the path of a socket must be short
        bound.bind("chat.sock")
    with temporary_folder() as folder:
        assert {*tmp_path.iterdir()} == {foreign, live, other, folder}
    assert {*tmp_path.iterdir()} == {foreign, live, other}
