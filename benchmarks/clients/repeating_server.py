"""`python -m benchmarks.clients.repeating_server SESSIONS`: a server that says what it was told.

Tests of others ask for answers that a language model would give ("Say exactly: pineapple"). This
brain repeats its instruction and the whole conversation, so that each such answer is among its
words; and it hears the same question in every sound. The detector of speech is the real one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from threading import Event as Flag

from voxtui.bench.stubs import StubBrain, WaitingVoice
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import AS_CONFIGURED, Manner, Past
from voxtui.dialogue.marks import Mark, Marks
from voxtui.errors import VoxtuiError
from voxtui.serve.command import ServeOptions, run
from voxtui.serve.pool import Pool, WarmParts
from voxtui.settings.schema import BrainConfig, Config, ServeConfig
from voxtui.wiring import build_detector

HEARD = "What is the weather in Paris?"

TOKEN_SECONDS = 0.005

VOICE_SECONDS = 0.02

SUM = "2 + 2 = 4."
"""What a test asks for that no repetition contains."""


class RepeatingBrain(StubBrain):
    def reply(
        self,
        past: Past,
        user_input: Utterance | str,
        marks: Marks,
        cancelled: Flag,
        manner: Manner = AS_CONFIGURED,
    ) -> Generator[UserTranscript | Token]:
        asked = user_input if isinstance(user_input, str) else HEARD
        marks.mark(Mark.TRANSCRIBED)
        yield UserTranscript(asked)
        said = [text for turn in past for text in (turn.user_text, turn.reply_text)]
        for word in " ".join([manner.instruction or "", *said, asked, SUM]).split():
            if cancelled.wait(TOKEN_SECONDS):
                return
            yield Token(f" {word}")

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        yield Token(HEARD)


@contextmanager
def repeating_pool(config: Config, notify: Callable[[str], object]) -> Generator[Pool]:
    def parts() -> WarmParts:
        return WarmParts(
            lambda samples: HEARD, build_detector(config), WaitingVoice(VOICE_SECONDS),
            RepeatingBrain(), build_detector(config),
        )  # fmt: skip

    yield Pool([parts() for _ in range(config.serve.sessions)])


if __name__ == "__main__":
    repeating = Config(
        brain=BrainConfig(name="embedded"),  # what the models are called by
        serve=ServeConfig(port=0, sessions=int(sys.argv[1])),
    )
    try:
        run(repeating, ServeOptions(), repeating_pool)
    except VoxtuiError as error:
        sys.exit(f"voxtui: {error}")
