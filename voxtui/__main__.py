"""Entry point of `voxtui`. Signals end it without a traceback from the first import on."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
RETRY_SECONDS = 0.02


def main() -> None:
    """Run the command line; SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt in it."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # nohup, or a background job
            signal.signal(ending, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    try:
        from voxtui.cli import main as run

        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    finally:  # Python would print an exception during its shutdown
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(ending) is interrupt:
                signal.signal(ending, signal.SIG_DFL)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt.

    During an import, try again every 20 ms until it is over, because numpy turns the exception into
    an ImportError and importlib's callbacks swallow it.
    """
    if _is_importing(frame):
        signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
    else:
        raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    sys.exit(main())
