"""Text from a pipe, and the keys from the terminal after it."""

from __future__ import annotations

import os
import subprocess
import sys

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
