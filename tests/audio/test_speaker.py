"""The speaker on the real PortAudio; another program records what it plays."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from tests.audio.sounds import edges, find, question, report
from tests.fakes import SECONDS
from tests.virtual_audio import RATE, SPEAKER, Recorder, VirtualAudio
from voxtui.audio.resampling import resample
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.data import AUDIBLE, SpeechChunk
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import DeviceError

pytestmark = pytest.mark.audio

VOICE_RATE = 24_000

BARGE_IN_MS = 50


never = threading.Event()


def tone(seconds: float, rate: int = VOICE_RATE, level: float = 0.4) -> SpeechChunk:
    samples = level * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)
    return SpeechChunk(samples.astype(np.float32), rate, "la")


@pytest.fixture
def speaker(virtual_audio: VirtualAudio) -> Iterator[SounddeviceSpeaker]:
    speaker = SounddeviceSpeaker(SPEAKER)
    speaker.open()
    yield speaker
    speaker.close()


@pytest.fixture
def recorder(virtual_audio: VirtualAudio) -> Iterator[Recorder]:
    with virtual_audio.record() as recorder:
        yield recorder


def say(speaker: SounddeviceSpeaker, *chunks: SpeechChunk) -> tuple[Timestamps, float]:
    timestamps = Timestamps()
    for chunk in chunks:
        speaker.play(chunk, timestamps, never)
    return timestamps, speaker.finish(timestamps, never)


def recorded(recorder: Recorder) -> np.ndarray:
    """Return what was recorded up to 150 ms from now."""
    recorder.until(time.monotonic() + 0.15)
    return recorder.stop()


def audible(samples: np.ndarray) -> tuple[int, int]:
    """Return the indices of the first and the last audible sample."""
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    assert len(loud), "nothing was played"
    return int(loud[0]), int(loud[-1])


@pytest.mark.parametrize(
    "rate",
    [
        pytest.param(16_000, marks=pytest.mark.slow),
        pytest.param(22_050, marks=pytest.mark.slow),
        24_000,
        pytest.param(48_000, marks=pytest.mark.slow),
    ],
)
def test_two_chunks_are_heard_as_one_and_whole(
    speaker: SounddeviceSpeaker, recorder: Recorder, rate: int
) -> None:
    samples = question("opposite-of-hot", rate)
    half = len(samples) // 2
    _, seconds = say(
        speaker, SpeechChunk(samples[:half], rate, "a"), SpeechChunk(samples[half:], rate, "b")
    )
    heard, wanted = recorded(recorder), resample(samples, rate, RATE)
    at, correlation = find(wanted, heard)
    first, last = edges(wanted, heard, RATE)
    joint = round(half / rate * RATE)
    around = slice(joint - RATE // 20, joint + RATE // 20)
    _, joined = find(wanted[around], heard[at : at + len(wanted)])
    report(f"correlation {correlation:.4f}, ends {first:.4f} {last:.4f}, joint {joined:.4f}")
    assert min(correlation, joined) >= 0.97 and min(first, last) >= 0.95
    assert seconds == pytest.approx(len(samples) / rate, abs=0.002)
    before = heard[: max(0, at - RATE // 50)]
    after = heard[at + len(wanted) + RATE // 50 :]
    assert not before.any() and np.abs(after).max(initial=0.0) < AUDIBLE


@pytest.mark.slow
def test_many_short_chunks_make_one_tone_without_a_click(
    speaker: SounddeviceSpeaker, recorder: Recorder
) -> None:
    whole = tone(1.5)
    pieces = np.array_split(whole.samples, 37)
    say(speaker, *(SpeechChunk(piece, whole.rate, "") for piece in pieces))
    heard = recorded(recorder)
    first, last = audible(heard)
    inner = heard[first + RATE // 50 : last - RATE // 50]
    assert len(inner) / RATE == pytest.approx(1.5 - 0.04, abs=0.01)
    steepest = 2 * np.pi * 440 / RATE * 0.4
    assert np.abs(np.diff(inner)).max() < 1.2 * steepest
    # A gap or a repetition shifts the phase; a tone is its own continuation after a period.
    spectrum = np.abs(np.fft.rfft(inner * np.hanning(len(inner))))
    peak = int(np.argmax(spectrum))
    spectrum[max(0, peak - 8) : peak + 9] = 0.0
    assert spectrum.max() < 0.01 * len(inner) / 4 * 0.4


def test_first_and_last_sound_are_marked_when_they_are_heard(
    speaker: SounddeviceSpeaker, recorder: Recorder
) -> None:
    silence = np.zeros(VOICE_RATE // 5, np.float32)
    sound = tone(0.4).samples
    chunk = SpeechChunk(np.concatenate([silence, sound, silence]), VOICE_RATE, "la")
    recorder.until(time.monotonic() + 0.3)
    timestamps, _ = say(speaker, chunk)
    heard = recorded(recorder)
    for mark, index in zip(
        (Milestone.FIRST_SOUND, Milestone.LAST_SOUND), audible(heard), strict=True
    ):
        marked = timestamps.at(mark)
        assert marked is not None
        difference = marked - recorder.began_at - index / RATE
        report(f"{mark} is marked {difference * 1000:+.1f} ms from the recording")
        assert abs(difference) < 0.03


def test_finish_waits_until_all_was_heard(speaker: SounddeviceSpeaker, recorder: Recorder) -> None:
    say(speaker, tone(0.5))
    ended = time.monotonic()
    _, last = audible(recorded(recorder))
    assert recorder.began_at + last / RATE < ended + 0.03


def test_silence_marks_no_first_sound(speaker: SounddeviceSpeaker, recorder: Recorder) -> None:
    timestamps, seconds = say(speaker, SpeechChunk(np.zeros(4800, np.float32), VOICE_RATE, ""))
    assert (
        timestamps.at(Milestone.FIRST_SOUND) is None and timestamps.at(Milestone.LAST_SOUND) is None
    )
    assert seconds == pytest.approx(0.2, abs=0.002)
    assert not recorded(recorder).any()


def test_finish_without_speech_marks_nothing(speaker: SounddeviceSpeaker) -> None:
    timestamps = Timestamps()
    assert speaker.finish(timestamps, never) == 0.0
    assert not timestamps.since_release()


@pytest.mark.slow
def test_an_idle_speaker_writes_nothing_stays_open_and_plays_the_next_reply_whole(
    speaker: SounddeviceSpeaker, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sounddevice

    opened, written = list[object](), list[float]()
    start, write = sounddevice.OutputStream.start, sounddevice.OutputStream.write

    def starting(stream: object) -> None:
        opened.append(stream)
        start(stream)

    def writing(stream: object, samples: np.ndarray) -> None:
        written.append(time.monotonic())
        write(stream, samples)

    monkeypatch.setattr(sounddevice.OutputStream, "start", starting)
    monkeypatch.setattr(sounddevice.OutputStream, "write", writing)
    monkeypatch.setattr("voxtui.audio.speaker.STALL_SECONDS", 0.4)
    say(speaker, tone(0.2))
    recorder.until(time.monotonic() + 0.5)
    idle = len(written)
    assert idle > 0
    recorder.until(time.monotonic() + 0.2)
    assert len(written) == idle  # or the next reply would wait behind the silence
    said = question("meow", VOICE_RATE)
    say(speaker, SpeechChunk(said, VOICE_RATE, ""))
    heard = recorded(recorder)
    at, correlation = find(resample(said, VOICE_RATE, RATE), heard)
    assert correlation >= 0.97
    first, _ = audible(heard)
    between = heard[first + round(0.25 * RATE) : at - RATE // 50]
    assert len(between) > 0.4 * RATE and np.abs(between).max() < AUDIBLE
    assert opened == []


class KeyPress:
    """Sets its flag after `after` seconds and notes when."""

    def __init__(self, after: float) -> None:
        self.flag = threading.Event()
        self.at = 0.0
        self._timer = threading.Timer(after, self._press)
        self._timer.start()

    def _press(self) -> None:
        self.at = time.monotonic()
        self.flag.set()


def barge_in(
    virtual_audio: VirtualAudio, speaker: SounddeviceSpeaker, after: float
) -> tuple[float, float, float]:
    """Stop a long tone `after` seconds.

    Return the seconds from the key to silence, those heard by `finish`, and those recorded.
    """
    with virtual_audio.record() as recorder:
        timestamps, key = Timestamps(), KeyPress(after)
        for _ in range(5):
            speaker.play(tone(1.0), timestamps, key.flag)
        seconds = speaker.finish(timestamps, key.flag)
        assert key.flag.is_set()
        heard = recorded(recorder)
    first, last = audible(heard)
    stopped, marked = recorder.began_at + last / RATE, timestamps.at(Milestone.LAST_SOUND)
    assert marked is not None and abs(marked - stopped) < 0.05
    return stopped - key.at, seconds, (last - first) / RATE


def test_a_key_press_silences_it_within_50_ms(
    virtual_audio: VirtualAudio, speaker: SounddeviceSpeaker
) -> None:
    runs = [barge_in(virtual_audio, speaker, 0.3 + 0.017 * run) for run in range(5)]
    silent = np.array([run[0] for run in runs]) * 1000
    report(f"silent after {np.median(silent):.1f} ms, max {silent.max():.1f}")
    claimed = np.array([run[1] - run[2] for run in runs]) * 1000
    report(f"heard: {claimed.min():+.1f} to {claimed.max():+.1f} ms from the recording")
    assert np.percentile(silent, 95) <= BARGE_IN_MS
    assert np.abs(claimed).max() < 50


def test_speech_that_is_stopped_before_it_sounds_has_neither_first_nor_last_sound(
    speaker: SounddeviceSpeaker, recorder: Recorder
) -> None:
    silence = np.zeros(round(0.5 * VOICE_RATE), np.float32)
    timestamps, key = Timestamps(), KeyPress(0.4)  # the tone is in the device by then
    samples = np.concatenate([silence, tone(0.5).samples])
    speaker.play(SpeechChunk(samples, VOICE_RATE, "la"), timestamps, key.flag)
    recorder.until(time.monotonic() + 1.0)  # past the time at which the tone was due
    speaker.finish(timestamps, key.flag)
    assert not recorded(recorder).any()
    assert (
        timestamps.at(Milestone.FIRST_SOUND) is None and timestamps.at(Milestone.LAST_SOUND) is None
    )


@pytest.mark.slow
def test_dropped_speech_is_not_heard_with_the_next_reply(
    virtual_audio: VirtualAudio, speaker: SounddeviceSpeaker
) -> None:
    barge_in(virtual_audio, speaker, 0.3)
    said = question("meow", VOICE_RATE)
    with virtual_audio.record() as recorder:
        _, seconds = say(speaker, SpeechChunk(said, VOICE_RATE, ""))
        heard = recorded(recorder)
    at, correlation = find(resample(said, VOICE_RATE, RATE), heard)
    assert correlation >= 0.97 and not heard[: max(0, at - RATE // 50)].any()
    assert seconds == pytest.approx(len(said) / VOICE_RATE, abs=0.002)


def test_a_chunk_after_the_key_press_is_not_played(
    speaker: SounddeviceSpeaker, recorder: Recorder
) -> None:
    timestamps = Timestamps()
    already = threading.Event()
    already.set()
    speaker.play(tone(0.5), timestamps, already)
    assert speaker.finish(timestamps, already) == pytest.approx(0.0, abs=0.05)
    heard = recorded(recorder)
    assert np.count_nonzero(np.abs(heard) > AUDIBLE) < 0.05 * RATE


def refuses(action: Callable[[], object]) -> str:
    """Return the sentence of the DeviceError that `action` raises."""
    with pytest.raises(DeviceError) as caught:
        action()
    return caught.value.message


LOST = f"The speaker '{SPEAKER}' stopped taking sound; was it unplugged?"


def play_on(speaker: SounddeviceSpeaker, begun: threading.Event, timestamps: Timestamps) -> None:
    """Play until the speaker raises, at most for SECONDS."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        speaker.play(tone(0.2), timestamps, never)
        if timestamps.at(Milestone.FIRST_SOUND) is not None:
            begun.set()
    speaker.finish(timestamps, never)


def lose(
    speaker: SounddeviceSpeaker, action: Callable[[], object], timestamps: Timestamps | None = None
) -> str:
    """Run `action` while the speaker plays; return the sentence of the DeviceError it raises."""
    begun = threading.Event()

    def act() -> None:
        assert begun.wait(SECONDS)
        action()

    actor = threading.Thread(target=act)
    actor.start()
    try:
        return refuses(lambda: play_on(speaker, begun, timestamps or Timestamps()))
    finally:
        actor.join()


def test_a_speaker_is_not_lost_because_the_process_was_suspended(
    virtual_audio: VirtualAudio, speaker: SounddeviceSpeaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl+Z the clock has moved on, and the device has not taken anything yet."""
    looks, timestamps = queue.SimpleQueue[None](), Timestamps()

    def later() -> float:
        looks.put(None)
        return time.monotonic() + 100

    speaker.play(tone(1.0), timestamps, never)
    while timestamps.at(Milestone.FIRST_SOUND) is None:
        threading.Event().wait(0.001)
    virtual_audio.stall()
    try:
        monkeypatch.setattr("voxtui.audio.speaker.time", SimpleNamespace(monotonic=later))
        for _ in range(9):
            looks.get(timeout=SECONDS)
    finally:
        virtual_audio.unstall()
    assert speaker.finish(timestamps, never) == pytest.approx(1.0, abs=0.002)


@pytest.mark.slow
def test_a_stalled_speaker_is_lost_and_can_be_opened_again(
    virtual_audio: VirtualAudio, speaker: SounddeviceSpeaker
) -> None:
    timestamps = Timestamps()
    try:
        assert lose(speaker, virtual_audio.stall, timestamps) == LOST
        assert timestamps.stalls
    finally:
        virtual_audio.unstall()
    _, seconds = say(speaker, tone(0.2))
    assert seconds == pytest.approx(0.2, abs=0.01)


def test_a_speaker_whose_server_dies_is_lost_and_comes_back(
    virtual_audio: VirtualAudio, speaker: SounddeviceSpeaker
) -> None:
    try:
        assert lose(speaker, virtual_audio.kill) == LOST
        assert "There is no speaker" in refuses(lambda: say(speaker, tone(0.2)))
    finally:
        virtual_audio.start()
    _, seconds = say(speaker, tone(0.2))
    assert seconds == pytest.approx(0.2, abs=0.01)


def test_a_bug_on_the_writing_thread_is_raised_by_play_and_finish(
    speaker: SounddeviceSpeaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sounddevice

    def broken(stream: object, samples: np.ndarray) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(sounddevice.OutputStream, "write", broken)
    timestamps = Timestamps()
    with pytest.raises(ZeroDivisionError):
        speaker.play(tone(0.2), timestamps, never)
        speaker.finish(timestamps, never)
    with pytest.raises(ZeroDivisionError):  # it is not hidden by opening the device again
        speaker.play(tone(0.2), timestamps, never)


@pytest.mark.parametrize("wanted", ["voxspeak", "99"])
def test_a_name_that_does_not_exist_is_refused(virtual_audio: VirtualAudio, wanted: str) -> None:
    sentence = refuses(SounddeviceSpeaker(wanted).open)
    assert sentence.startswith(f"There is no speaker '{wanted}' (audio.output).")


def test_close_twice_and_close_without_open_are_harmless(speaker: SounddeviceSpeaker) -> None:
    speaker.close()
    speaker.close()
    SounddeviceSpeaker(SPEAKER).close()


def test_closing_does_not_cut_the_end(speaker: SounddeviceSpeaker, recorder: Recorder) -> None:
    said = question("meow", VOICE_RATE)
    say(speaker, SpeechChunk(said, VOICE_RATE, ""))
    speaker.close()
    heard, wanted = recorded(recorder), resample(said, VOICE_RATE, RATE)
    assert min(edges(wanted, heard, RATE)) >= 0.95
