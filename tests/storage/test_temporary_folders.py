"""The folders of the chat model's sockets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
