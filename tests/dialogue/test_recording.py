from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import frames, record
from voxtui.dialogue.data import FRAME_SECONDS
from voxtui.dialogue.listening.endpointing import end_after_release
from voxtui.dialogue.recording import LEAD_FRAMES, TRAIL_SAMPLES


def test_without_speech_there_is_no_utterance() -> None:
    assert record("....").utterance() is None
    assert record("").utterance() is None


def test_the_extent_is_kept_and_not_counted_again() -> None:
    """The engine and the brain read it for each frame of an utterance of two minutes."""
    recording = record("..xx")
    assert recording.extent is recording.extent
    assert recording.extent.speech_frames == 2


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
    end = end_after_release(record(pattern), 10.0 + released * FRAME_SECONDS)
    assert (end is not None) is over


def test_frames_behind_the_end_are_returned_and_no_longer_belong_to_the_recording() -> None:
    recording = record("xx......")
    end = end_after_release(recording, 10.0 + 4 * FRAME_SECONDS)
    assert end is not None
    behind = recording.cut(end)
    assert (len(behind), len(recording.frames), recording.extent.seconds) == (
        4,
        4,
        4 * FRAME_SECONDS,
    )
    assert recording.extent.quiet_frames == 2
    assert end_after_release(recording, 10.0 + 4 * FRAME_SECONDS) == end


@given(st.text(alphabet=".x", max_size=40), st.text(alphabet=".x", max_size=20))
def test_an_earlier_extent_gives_the_utterance_of_that_time(before: str, more: str) -> None:
    recording = record(before)
    extent, then = recording.extent, recording.utterance()
    for frame, c in zip(frames(more, 2000.0), more, strict=True):
        recording.append(frame, c == "x")
    now = recording.utterance(extent)
    assert (now is None) == (then is None)
    if now and then:
        assert now.samples.tobytes() == then.samples.tobytes()
        assert now.is_same(then)


@given(st.text(alphabet=".x", max_size=40), st.text(alphabet=".x", max_size=20))
def test_utterances_are_the_same_only_without_speech_in_between(before: str, more: str) -> None:
    recording = record(before)
    first = recording.utterance()
    for frame, c in zip(frames(more, 2000.0), more, strict=True):
        recording.append(frame, c == "x")
    second = recording.utterance()
    if first and second:
        assert first.is_same(second) == ("x" not in more)


def test_equal_sound_of_another_recording_is_another_utterance() -> None:
    first, second = record("..xx..").utterance(), record("..xx..").utterance()
    assert first and second and not first.is_same(second)
