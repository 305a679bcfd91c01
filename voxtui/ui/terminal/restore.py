"""Gives the terminal back where nothing else can: after a kill, or a crash in native code."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress

RESTORE = "".join(
    (
        "\x1b[<u",  # the keyboard protocol's flags, before the screen they belong to
        *(f"\x1b[?{mode}l" for mode in (1000, 1003, 1015, 1006, 1016, 2048, 2004, 1004, 1049)),
        "\x1b[?7h\x1b[?25h\x1b[0m\r",  # wrapping, the cursor, plain text
    )
)

# A pipe that closes without a word means that its writer is gone. The settings are read before the
# screen changes them; nothing that is meant for the screen ends the guard before it.
SCRIPT = """\
trap '' HUP INT QUIT TERM TSTP TTOU
exec 3<&1
saved=$(stty -g <&3)
echo >&2
exec 2>/dev/null
read -r word || { printf %s "$1"; stty "$saved" <&3; }
"""


@contextmanager
def terminal_given_back() -> Generator[None, None, None]:
    """Within, a small process waits for the end of this one, to undo what Textual did to stdout."""
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "voxtui-guard", RESTORE],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError:  # a system without a shell
        yield
        return
    assert guard.stdin is not None
    assert guard.stderr is not None
    guard.stderr.readline()
    guard.stderr.close()
    try:
        yield
    finally:
        with suppress(OSError):  # somebody has ended the guard
            guard.stdin.write(b"done\n")
            guard.stdin.close()
        guard.wait()
