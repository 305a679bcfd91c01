"""`voxtui mcp`: hearing and speech for a coding assistant, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from voxtui.commands.mcp.ears_and_voice import EarsAndVoice
from voxtui.errors import InputError, how_to_install
from voxtui.settings.schema import Config
from voxtui.terminal.native_stderr import native_log, native_stderr_in


def run(config: Config, resident: Sequence[str]) -> None:
    """Serve until stdin ends. `resident` is the command of the daemon. Raises InputError."""
    if find_spec("mcp") is None:
        raise InputError("voxtui mcp needs mcp, which is not installed.", how_to_install("mcp"))
    if sys.stdin.isatty():
        raise InputError(
            "voxtui mcp is started by an assistant, not in a terminal.",
            "For instance: claude mcp add voxtui -- voxtui mcp",
        )
    from voxtui.commands.mcp.mcp_server import build_server

    # On stdout the SDK writes protocol only: it gives everything else that prints there stderr.
    with native_stderr_in(native_log()):
        asyncio.run(build_server(EarsAndVoice(config, resident)).run_stdio_async())
