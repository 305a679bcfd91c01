"""`python -m benchmarks.clients.repeating_server SESSIONS`: a server that repeats its input.

Tests of others ask for answers of a language model ("Say exactly: pineapple"). This brain repeats
its instruction and the whole conversation, so that each such answer is among its words; and it
hears the same question in every sound. The detector of speech is the real one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Event as Flag

from benchmarks.serve.scripted_server import serve
from benchmarks.stubs import StubBrain, WaitingVoice
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.protocols import TurnRequest
from voxtui.dialogue.timestamps import Milestone
from voxtui.serve.shared_models import ModelSet
from voxtui.settings.schema import Config
from voxtui.wiring import build_detector

HEARD = "What is the weather in Paris?"

TOKEN_SECONDS = 0.005

VOICE_SECONDS = 0.02

SUM = "2 + 2 = 4."
"""An answer that a test expects and no repetition contains."""


class RepeatingBrain(StubBrain):
    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token]:
        asked = request.user_input if isinstance(request.user_input, str) else HEARD
        request.timestamps.record(Milestone.TRANSCRIBED)
        yield UserTranscript(asked)
        said = [text for turn in request.past for text in (turn.user_text, turn.reply_text)]
        for word in " ".join([request.options.instruction or "", *said, asked, SUM]).split():
            if request.cancelled.wait(TOKEN_SECONDS):
                return
            yield Token(f" {word}")

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        yield Token(HEARD)


def repeating_parts(config: Config) -> ModelSet:
    return ModelSet(
        lambda samples, cancelled: HEARD, build_detector(config), WaitingVoice(VOICE_SECONDS),
        RepeatingBrain(), build_detector(config),
    )  # fmt: skip


if __name__ == "__main__":
    serve(repeating_parts)
