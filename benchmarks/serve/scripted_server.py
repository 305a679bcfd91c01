"""`python -m benchmarks.serve.scripted_server SESSIONS`: voxtui serve with components that wait.

SIGUSR1 makes it print the names of its threads, as a line of JSON.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from benchmarks.stubs import LoudnessDetector, Script, WaitingBrain, WaitingVoice
from voxtui.errors import VoxtuiError
from voxtui.serve.serve_command import run
from voxtui.serve.shared_models import ModelSet, Pool
from voxtui.settings.schema import BrainConfig, Config, ServeConfig

SCRIPT = Script(
    heard="tell me a short joke",
    tokens=("The", " answer", " you", " need", " today", " really", " should", " be", " Paris",
            ".", " Take", " a", " light", " coat", "."),
    recogniser_s=0.030,
    first_token_s=0.050,
    token_s=0.010,
    scheduled=True,
)  # fmt: skip
"""The answer, whose first sentence has ten tokens and cannot be cut before its end."""

VOICE_SECONDS = 0.040

IDEAL_MS = 1000 * (SCRIPT.recogniser_s + SCRIPT.first_token_s + 9 * SCRIPT.token_s + VOICE_SECONDS)
"""Milliseconds to the first sound if only the components took time."""


def scripted_parts() -> ModelSet:
    return ModelSet(
        lambda samples, cancelled: SCRIPT.heard,
        LoudnessDetector(),
        WaitingVoice(VOICE_SECONDS),
        WaitingBrain(SCRIPT),
        LoudnessDetector(),
    )


def name_threads(signal_number: int, frame: FrameType | None) -> None:
    print(json.dumps(sorted(thread.name for thread in threading.enumerate())), flush=True)


def serve(parts: Callable[[Config], ModelSet]) -> None:
    """Serve as many sessions as the command line says, on any free port."""

    @contextmanager
    def pool(config: Config, notify: Callable[[str], object]) -> Generator[Pool]:
        yield Pool([parts(config) for _ in range(config.serve.sessions)])

    config = Config(
        brain=BrainConfig(name="embedded"),  # what the models are called by
        serve=ServeConfig(port=0, sessions=int(sys.argv[1])),
    )
    try:
        run(config, pool)
    except VoxtuiError as error:
        sys.exit(f"voxtui: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, name_threads)
    serve(lambda config: scripted_parts())
