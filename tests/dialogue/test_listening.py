from __future__ import annotations

import pytest

from tests.fakes import LoudIsSpeech, frames
from voxtui.dialogue.listening import Endpointer, SpeechGate, VoiceBargeIn
from voxtui.dialogue.recording import Recording
from voxtui.settings.schema import VadConfig


def record(pattern: str) -> Recording:
    recording = Recording()
    for frame, c in zip(frames(pattern), pattern, strict=True):
        recording.append(frame, c == "x")
    return recording


def test_a_verdict_does_not_flutter() -> None:
    gate = SpeechGate(0.5)
    assert [gate.verdict(p) for p in (0.4, 0.6, 0.4, 0.36, 0.3, 0.4)] == [
        False, True, True, True, False, False,
    ]  # fmt: skip
    assert gate.verdict(0.6)
    gate.reset()
    assert not gate.verdict(0.4)


def test_speech_ends_however_low_the_threshold_is() -> None:
    gate = SpeechGate(0.1)
    assert [gate.verdict(p) for p in (0.2, 0.05, 0.0)] == [True, True, False]


def test_only_voice_that_lasts_begins_a_turn_by_itself() -> None:
    endpointer = Endpointer(VadConfig(start_ms=90))
    assert "".join(".b"[endpointer.starts(c == "x")] for c in "xx.xxxxxx.x") == ".....b..b.."


def test_the_rest_of_what_was_dropped_begins_nothing_by_itself() -> None:
    endpointer = Endpointer(VadConfig(start_ms=90, end_ms=90))
    endpointer.skip()
    found = "".join(".b"[endpointer.starts(c == "x")] for c in "xxxx..xxxx...xxx")
    assert found == "." * 15 + "b"


@pytest.mark.parametrize(
    ("pattern", "ends"), [("....", False), ("x..", False), ("x...", True), ("x...x", False)]
)
def test_only_silence_that_lasts_after_speech_ends_it(pattern: str, ends: bool) -> None:
    assert Endpointer(VadConfig(end_ms=90)).ends(record(pattern)) is ends


def test_voice_over_the_end_of_one_answer_does_not_interrupt_the_next() -> None:
    class Counting(LoudIsSpeech):
        resets = 0

        def reset(self) -> None:
            self.resets += 1

    detector = Counting()
    overhearing = VoiceBargeIn(detector, VadConfig(start_ms=90))
    heard = zip(frames("xxxxx"), (1, 1, 2, 2, 2), strict=True)
    assert [overhearing.interrupts(*one) for one in heard] == [False] * 4 + [True]
    assert detector.resets == 2
