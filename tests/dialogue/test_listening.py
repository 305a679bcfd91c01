from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import LoudIsSpeech, frames
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.listening import (
    LEAD_FRAMES,
    TRAIL_SAMPLES,
    Endpointer,
    Recording,
    SpeechGate,
    VoiceBargeIn,
)
from voxtui.settings.schema import VadConfig


def record(pattern: str) -> Recording:
    recording = Recording()
    for frame, c in zip(frames(pattern), pattern, strict=True):
        recording.append(frame, c == "x")
    return recording


def test_without_speech_there_is_no_utterance() -> None:
    assert record("....").utterance() is None
    assert record("").utterance() is None


@given(st.text(alphabet=".x", max_size=60), st.integers(0, 20))
def test_silence_after_the_last_speech_changes_nothing(pattern: str, more: int) -> None:
    first, second = record(pattern).utterance(), record(pattern + "." * more).utterance()
    assert (first is None) == (second is None)
    if first and second:
        assert first.samples.tobytes() == second.samples.tobytes()
        assert (first.speech, first.ended_at) == (second.speech, second.ended_at)


def test_it_is_trimmed_to_speech_and_padding() -> None:
    said = record("." * 20 + "xx..xxx" + "." * 9).utterance()
    assert said is not None
    assert len(said.samples) == (LEAD_FRAMES + 7) * 512 + TRAIL_SAMPLES
    begin = LEAD_FRAMES * FRAME_SECONDS
    assert said.speech == (
        pytest.approx((begin, begin + 2 * FRAME_SECONDS)),
        pytest.approx((begin + 4 * FRAME_SECONDS, begin + 7 * FRAME_SECONDS)),
    )


@pytest.mark.parametrize(
    ("pattern", "released", "over"),
    [
        ("xx..", 4, True),
        ("xx..", 4.5, True),
        ("xx..", 5.1, False),  # a whole frame before the release is still on its way
        ("xxx.", 4, False),  # speech in the last 64 ms
        ("xxx..", 4, True),
        ("xxxxxxxx", 4, False),
        ("xxxxxxxxxxx", 4, True),  # 200 ms past the release
        ("", 0, False),
    ],
)
def test_the_end_is_the_release_unless_speech_goes_on(
    pattern: str, released: float, over: bool
) -> None:
    assert record(pattern).over(1000.0 + released * FRAME_SECONDS) is over


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
