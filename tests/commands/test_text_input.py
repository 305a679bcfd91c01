"""Text from a pipe, and the keys from the terminal after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from voxtui.terminal.text_input import read_attachment

READER = """
import os
from pathlib import Path
from voxtui.terminal.text_input import read_attachment, take_keys_from_terminal

given = read_attachment(Path("-"))
take_keys_from_terminal()
print(given.name, given.text, os.isatty(0), os.read(0, 100))
"""


def test_keys_come_from_the_terminal_after_a_pipe_was_read() -> None:
    primary, secondary = os.openpty()
    os.write(primary, b"keys\n")
    ran = subprocess.run(
        [sys.executable, "-c", READER], input=b"a diff", stdout=subprocess.PIPE, stderr=secondary,
        check=True,
    )  # fmt: skip
    os.close(primary)
    os.close(secondary)
    assert ran.stdout == b"stdin a diff True b'keys\\n'\n"


def test_the_name_of_an_attachment_gives_the_terminal_no_command(tmp_path: Path) -> None:
    (file := tmp_path / "\x1b[2Jnotes\n").write_text("text")
    assert read_attachment(file).name == f"{tmp_path}/[2Jnotes"
