"""Restore the terminal when Textual cannot: after a kill, or a crash in native code."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress

RESTORE = "".join(
    (
        "\x1b[?2026l",  # the end of a frame, first: until then the terminal shows nothing
        "\x1b[<u",  # the keyboard protocol's flags, before the screen they belong to
        *(f"\x1b[?{mode}l" for mode in (1000, 1003, 1015, 1006, 1016, 2048, 2004, 1004, 1049)),
        "\x1b[?7h\x1b[?25h\x1b[0m\r",  # wrapping, the cursor, plain text
    )
)

# The guard reads one line. If the pipe closes without it, the writer has died. The guard saves the
# settings before the screen changes them, and ignores the signals that end the screen.
SCRIPT = """\
trap '' HUP INT QUIT TERM TSTP TTOU
exec 3<&1
saved=$(stty -g <&3)
echo >&2
exec 2>/dev/null
read -r word || { printf %s "$1"; stty "$saved" <&3; }
"""


@contextmanager
def terminal_restored() -> Generator[None, None, None]:
    """Run a small process that restores the terminal on stdout if this one dies meanwhile."""
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
        with suppress(OSError):  # the guard was killed
            guard.stdin.write(b"done\n")
            guard.stdin.close()
        guard.wait()
