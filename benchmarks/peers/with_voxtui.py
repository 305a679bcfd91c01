"""Run voxtui's engine with stub models: `whole` or `shipped`, then the clip."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.peers import common
from benchmarks.stubs import Script, StubBrain, WaitingBrain, WaitingVoice
from voxtui.audio.silero import PySilero
from voxtui.dialogue.components.components import Models
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.data import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    Frame,
    SpeechChunk,
    Token,
    UserTranscript,
)
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.engine_commands import NewConversation, Release, Talk
from voxtui.dialogue.events import Died, Event, Loaded, TurnFinished
from voxtui.dialogue.protocols import OnWords, StopFlag, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import Config

SCRIPT = Script(
    common.WORDS,
    (*common.ONE_CLAUSE, *common.REST),
    common.STT_SECONDS,
    common.FIRST_TOKEN_SECONDS,
    common.TOKEN_SECONDS,
)


class AheadBrain(StubBrain):
    """A brain that starts after 64 ms without speech and discards on more."""

    def __init__(self) -> None:
        self._recording = Recording()
        self._began: float | None = None

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        self._recording, self._began = recording, None

    def wake(self) -> None:
        extent = self._recording.extent
        if not extent.quiet_frames:
            self._began = None
        elif extent.speech_frames and extent.quiet_frames == 2:
            self._began = time.monotonic()

    def reply(self, request: TurnRequest) -> Iterator[UserTranscript | Token]:
        due = time.monotonic() if self._began is None else self._began
        due += common.STT_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))  # in place of the recogniser
        request.timestamps.record(Milestone.TRANSCRIBED)
        yield UserTranscript(common.WORDS)
        due += common.FIRST_TOKEN_SECONDS
        for text in (*common.TWO_CLAUSES, *common.REST):
            time.sleep(max(0.0, due - time.monotonic()))  # in place of the model
            yield Token(text)
            due = max(due, time.monotonic() - common.TOKEN_SECONDS) + common.TOKEN_SECONDS


class ClockedSpeaker:
    name = "stub"

    def __init__(self, clock: common.Clock) -> None:
        self._clock = clock

    def open(self) -> None: ...

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        self._clock.hear()
        timestamps.record(Milestone.FIRST_SOUND)

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        timestamps.record(Milestone.LAST_SOUND)
        return 0.0

    def close(self) -> None: ...


def main() -> None:
    clock, loaded, over = common.Clock(), threading.Event(), threading.Event()

    def emit(event: Event) -> None:
        match event:
            case Loaded():
                loaded.set()
            case TurnFinished():
                over.set()
            case Died(error):
                raise error
            case _:
                pass

    engine = Engine(
        Models(
            PySilero(),
            AheadBrain() if sys.argv[1] == "shipped" else WaitingBrain(SCRIPT),
            WaitingVoice(common.TTS_SECONDS),
        ),
        Config(),
        emit,
        Devices(speaker=ClockedSpeaker(clock)),
    )
    engine.start()
    loaded.wait()
    # The microphone's frames do not begin with the clip: the last one ends with it.
    pcm = common.load_pcm().astype(np.float32) / 32768
    pcm = np.concatenate([np.zeros(-len(pcm) % FRAME_SAMPLES, np.float32), pcm])
    quiet = np.zeros((6, FRAME_SAMPLES), np.float32)
    common.tell(ready=True)
    for _ in sys.stdin:
        clock.begin()
        over.clear()
        begin = time.monotonic()
        turn = engine.post(Talk(begin, source="clip"))
        voice = pcm.reshape(-1, FRAME_SAMPLES)
        for count, samples in enumerate([*voice, *quiet], 1):
            at = begin + count * FRAME_SECONDS
            time.sleep(max(0.0, at - time.monotonic()))  # until the frame was captured
            engine.push(Frame(samples, at, source="clip"))
            if count == len(voice):
                engine.post(Release(turn=turn))
                clock.release()
        over.wait()
        engine.post(NewConversation())
        common.tell(ms=clock.ms)
    engine.close()


if __name__ == "__main__":
    main()
