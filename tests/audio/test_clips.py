from __future__ import annotations

import math
import os
import queue
import re
import struct
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes import SECONDS, Events, engine_on_fakes
from voxtui.audio.clips import (
    BLOCK_SAMPLES,
    SILENT_FRAMES,
    Clip,
    check_clip,
    load_clip,
    pieces,
    speak,
)
from voxtui.audio.resampling import resample
from voxtui.commands.headless import Headless
from voxtui.dialogue.data import FRAME_SAMPLES, FRAME_SECONDS, SAMPLE_RATE, Frame
from voxtui.dialogue.engine_commands import Cancel, Command, Release, Talk
from voxtui.dialogue.events import State, StateChanged, TurnFinished, TurnStarted
from voxtui.dialogue.timestamps import Outcome
from voxtui.errors import InputError

LIMIT = 10.0


def tone(seconds: float, rate: int, hertz: float = 440.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def written(path: Path, rate: int = 16_000, channels: int = 1, **how: str) -> Path:
    mono = tone(0.5, rate)
    soundfile.write(path, np.stack([mono] * channels, axis=1), rate, **how)
    return path


def assert_is_the_tone(clip: Clip, tolerance: float = 0.02) -> None:
    wanted = tone(0.5, SAMPLE_RATE)
    assert clip.samples.dtype == np.float32 and clip.samples.ndim == 1
    assert len(clip.samples) == pytest.approx(len(wanted), abs=3)
    inner = slice(200, len(wanted) - 200)
    assert np.abs(clip.samples[inner] - wanted[inner]).max() < tolerance


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_every_width_of_sample_is_read(tmp_path: Path, subtype: str) -> None:
    assert_is_the_tone(load_clip(written(tmp_path / "tone.wav", subtype=subtype), LIMIT))


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_every_rate_becomes_16_khz(tmp_path: Path, rate: int) -> None:
    assert_is_the_tone(load_clip(written(tmp_path / "tone.wav", rate), LIMIT))


@pytest.mark.parametrize("rate", [8000, 44_100])
def test_a_file_read_in_blocks_equals_the_file_read_at_once(tmp_path: Path, rate: int) -> None:
    """A long one is never in memory at its own rate."""
    sound = np.random.default_rng(0).normal(0, 0.1, BLOCK_SAMPLES * 2 + 77).astype(np.float32)
    soundfile.write(tmp_path / "noise.wav", sound, rate, subtype="FLOAT")
    whole = resample(sound, rate, SAMPLE_RATE)
    read = load_clip(tmp_path / "noise.wav", math.inf).samples
    assert abs(len(read) - len(whole)) <= 1
    assert np.abs(read[: len(whole)] - whole[: len(read)]).max() < 1e-6


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
def test_channels_are_mixed_in_equal_parts(tmp_path: Path, channels: int) -> None:
    assert_is_the_tone(load_clip(written(tmp_path / "tone.wav", channels=channels), LIMIT))


@pytest.mark.parametrize("name", ["tone.flac", "tone.ogg", "tone.mp3", "tone.aiff"])
def test_other_formats_are_read(tmp_path: Path, name: str) -> None:
    clip = load_clip(written(tmp_path / name, 48_000), LIMIT)
    assert clip.name == name
    assert clip.seconds == pytest.approx(0.5, abs=0.1)
    assert np.abs(clip.samples).max() == pytest.approx(0.5, abs=0.1)


def test_a_file_of_exactly_the_limit_is_taken(tmp_path: Path) -> None:
    assert load_clip(written(tmp_path / "tone.wav"), 0.5).seconds == 0.5


@pytest.mark.parametrize("subtype", ["GSM610", "G721_32", "NMS_ADPCM_32"])
def test_a_format_that_cannot_seek_is_read(tmp_path: Path, subtype: str) -> None:
    samples = load_clip(written(tmp_path / "tone.wav", subtype=subtype), LIMIT).samples
    wanted = tone(0.5, SAMPLE_RATE)
    assert len(wanted) <= len(samples) < len(wanted) + 400  # whole blocks
    assert np.corrcoef(samples[: len(wanted)], wanted)[0, 1] > 0.9


def test_a_truncated_file_is_read_up_to_its_end(tmp_path: Path) -> None:
    """Its header still names the full length."""
    path = written(tmp_path / "tone.mp3", 44_100)
    whole = load_clip(path, LIMIT).samples
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    half = load_clip(path, LIMIT).samples
    assert len(whole) / 8 < len(half) < len(whole) * 3 / 4
    assert np.abs(half - whole[: len(half)]).max() < 0.1


def test_a_file_that_is_damaged_further_on_is_read_up_to_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "noise.flac"
    sound = np.random.default_rng(0).normal(0, 0.1, BLOCK_SAMPLES * 3)
    soundfile.write(path, sound, 16_000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = pieces(path, math.inf)
    assert next(found)[:1000] == pytest.approx(sound[:1000], abs=1e-4)
    with pytest.raises(InputError, match="is damaged after 8 s"):
        list(found)


def test_samples_beyond_full_scale_are_clipped(tmp_path: Path) -> None:
    path = tmp_path / "loud.wav"
    soundfile.write(path, 32_767 * tone(0.5, 16_000), 16_000, subtype="FLOAT")
    samples = load_clip(path, LIMIT).samples
    assert (samples.min(), samples.max()) == (-1, 1)


def test_an_hour_is_read_in_the_memory_of_a_few_seconds(tmp_path: Path) -> None:
    path = hour_of_silence(tmp_path)
    sound = pieces(path, math.inf)
    tracemalloc.start()
    try:
        assert sum(len(next(sound)) for _ in range(30)) > 60 * SAMPLE_RATE
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
        sound.close()


def test_the_check_before_a_transcript_refuses_a_file_that_is_not_sound(tmp_path: Path) -> None:
    check_clip(hour_of_silence(tmp_path))
    path = tmp_path / "text.wav"
    path.write_bytes(b"hello")
    with pytest.raises(InputError, match="not a sound file"):
        check_clip(path)


def assert_names(path: Path, error: InputError) -> None:
    assert error.message.startswith(f"{path}: ")


def refusal(path: Path, max_seconds: float = LIMIT) -> str:
    """Return the one sentence with which `path` is refused."""
    with pytest.raises(InputError) as caught:
        load_clip(path, max_seconds)
    message = caught.value.message
    assert message.startswith(f"{path}: ") and message.endswith(".")
    assert not re.search(r"[.!?] [A-Z]", message.removeprefix(f"{path}: "))
    return message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nowhere.wav")


def test_a_line_break_in_a_file_name_does_not_forge_a_line_of_the_message(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_clip(tmp_path / "new\nanswer: line\r.wav", LIMIT)
    assert str(caught.value).splitlines() == [str(caught.value)]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.wav"
    path.touch()
    assert "empty" in refusal(path)


@pytest.mark.parametrize("content", [b"hello", b"RIFF", b"\0" * 5000, b"RIFF\xff\xff\xff\xffWAVE"])
def test_a_file_that_is_not_sound_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.wav"
    path.write_bytes(content)
    assert "not a sound file" in refusal(path)


def test_a_file_without_samples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nothing.wav"
    soundfile.write(path, np.zeros(0), 16_000)
    assert "no sound" in refusal(path)


def test_a_truncated_header_is_refused(tmp_path: Path) -> None:
    whole = written(tmp_path / "tone.wav").read_bytes()
    for length in (3, 11, 19, 30, 43):
        path = tmp_path / f"{length}.wav"
        path.write_bytes(whole[:length])
        refusal(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_numbers_are_refused(tmp_path: Path, bad: float) -> None:
    path = tmp_path / "bad.wav"
    samples = tone(0.5, 16_000)
    samples[77] = bad
    soundfile.write(path, samples, 16_000, subtype="FLOAT")
    assert "not numbers" in refusal(path)


def test_samples_that_overflow_single_precision_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.wav"
    soundfile.write(path, np.full(8000, 1e300), 16_000, subtype="DOUBLE")
    refusal(path)


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Continuous integration runs as root, who may read everything.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be read: Permission denied" in refusal(written(tmp_path / "tone.wav"))


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "pipe.wav"
    os.mkfifo(path)
    refusal(path)


@pytest.mark.parametrize("rate", [1, 999, 384_001, 4_000_000])
def test_a_sample_rate_of_no_device_is_refused(tmp_path: Path, rate: int) -> None:
    path = tmp_path / "odd.wav"
    soundfile.write(path, np.zeros(500), rate)
    assert f"{rate} samples a second" in refusal(path, 1000.0)


def test_a_file_too_short_for_a_single_sample_at_16_khz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.wav"
    soundfile.write(path, np.zeros(1), 96_000)
    assert "no sound" in refusal(path)


def test_too_long_a_file_is_refused_and_the_hint_names_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path / "tone.wav")
    assert "longer than 0.4 s" in refusal(path, 0.4)
    with pytest.raises(InputError) as caught:
        load_clip(path, 0.4)
    assert "audio.max_utterance_s" in caught.value.hint


def hour_of_silence(folder: Path) -> Path:
    """Write an hour of sound as a sparse file."""
    path = folder / "hour.wav"
    data = 3600 * 16_000 * 2
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", 36 + data, b"WAVE", b"fmt ", 16, 1, 1, 16_000, 32_000, 2, 16, b"data", data),
    )
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + data)
    return path


def test_too_long_a_file_is_refused_from_its_header_alone(tmp_path: Path) -> None:
    path = hour_of_silence(tmp_path)
    tracemalloc.start()
    try:
        assert "longer than" in refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "tone.wav"
    soundfile.write(path, tone(0.05, 8000), 8000, subtype="PCM_16")
    return path.read_bytes()


@pytest.mark.slow
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 900), flips=st.lists(st.tuples(st.integers(0, 843), st.integers(0, 7))))
def test_a_damaged_file_is_either_read_or_refused(
    tmp_path: Path, whole: bytes, cut: int, flips: list[tuple[int, int]]
) -> None:
    damaged = bytearray(whole)
    for at, bit in flips:
        damaged[at % len(damaged)] ^= 1 << bit
    path = tmp_path / "damaged.wav"
    path.write_bytes(bytes(damaged[:cut]))
    try:
        clip = load_clip(path, LIMIT)
    except InputError as error:
        assert_names(path, error)
        return
    assert 0 < clip.seconds <= LIMIT + 0.01
    assert clip.samples.dtype == np.float32 and np.isfinite(clip.samples).all()


TURN = 7


class FakeEngine:
    """Notes the calls of a clip, and when they came; sets `stop` with frame number `after`."""

    def __init__(self) -> None:
        self.talked: tuple[float, str, bool] | None = None
        self.released: float | None = None
        self.frames: list[Frame] = []
        self.late: list[float] = []
        self.frames_before_release = 0
        self.after: int | None = None
        self.stop = threading.Event()
        self.cancelled: list[int | None] = []

    def post(self, command: Command) -> int:
        match command:
            case Talk(at, source, paced):
                assert at is not None and not self.frames
                self.talked = (at, source, paced)
            case Release(at, turn):
                assert self.released is None and turn == TURN
                self.released = at
                self.frames_before_release = len(self.frames)
            case Cancel(turn):
                self.cancelled.append(turn)
            case _:
                raise AssertionError(command)
        return TURN

    def push(self, frame: Frame) -> None:
        self.late.append(time.monotonic() - frame.captured_at)
        self.frames.append(frame)
        if len(self.frames) == self.after:
            self.stop.set()


def clip_of(samples: int) -> Clip:
    return Clip("clip.wav", np.linspace(0.1, 0.9, samples, dtype=np.float32))


@pytest.mark.parametrize("paced", [False, True])
@pytest.mark.parametrize("samples", [100, 512, 5 * 512, 5 * 512 + 1])
def test_a_clip_is_spoken_whole_and_followed_by_silence(samples: int, paced: bool) -> None:
    engine, clip = FakeEngine(), clip_of(samples)
    speak(clip, engine, engine.stop, paced)
    assert engine.talked is not None and engine.talked[1:] == ("clip.wav", paced)
    begun = engine.talked[0]
    assert all(f.samples.shape == (FRAME_SAMPLES,) for f in engine.frames)
    assert {f.source for f in engine.frames} == {"clip.wav"}
    heard = np.concatenate([f.samples for f in engine.frames])
    assert heard.dtype == np.float32
    assert heard[:samples].tobytes() == clip.samples.tobytes()
    assert not heard[samples:].any() and len(heard) - samples >= SILENT_FRAMES * FRAME_SAMPLES
    times = [f.captured_at for f in engine.frames]
    assert times == pytest.approx([begun + (i + 1) * FRAME_SECONDS for i in range(len(times))])
    assert engine.released == pytest.approx(begun + clip.seconds)
    assert engine.cancelled == []


@pytest.mark.parametrize("samples", [512, 5 * 512])
def test_the_key_comes_up_after_the_last_sample_and_before_the_silence(samples: int) -> None:
    engine = FakeEngine()
    speak(clip_of(samples), engine, engine.stop, paced=False)
    assert engine.frames_before_release == samples // FRAME_SAMPLES


def test_a_paced_clip_is_never_ahead_of_time_and_does_not_drift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0

    class Late(threading.Event):
        """Wakes its waiter 4 ms too late."""

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += (timeout or 0.0) + 0.004
            return False

    monkeypatch.setattr(time, "monotonic", lambda: now)
    engine = FakeEngine()
    speak(clip_of(12 * 512), engine, Late())
    assert engine.late[1:] == pytest.approx([0.004] * (len(engine.late) - 1))


def test_a_question_is_over_when_its_clip_is_silent() -> None:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()

    class Quick(FakeEngine):
        def post(self, command: Command) -> int:
            if isinstance(command, Release):
                events.put(TurnFinished(cast("Any", None)))
            return super().post(command)

    engine, clip = Quick(), clip_of(5 * 512)
    asked = Headless(cast("Any", engine), cast("Any", None), events, engine.stop)
    assert [*asked.events(clip)]
    assert len(engine.frames) == 5 + SILENT_FRAMES


def test_an_unpaced_clip_ends_now() -> None:
    engine, before = FakeEngine(), time.monotonic()
    speak(clip_of(100 * 512), engine, engine.stop, paced=False)
    assert engine.talked is not None and engine.talked[0] < before - 3.0
    assert engine.released is not None
    assert before - FRAME_SECONDS <= engine.released <= time.monotonic()


@pytest.mark.parametrize("paced", [False, True])
@pytest.mark.parametrize("after", [3, 11])
def test_a_stopped_clip_falls_silent_at_once_and_cancels_its_turn(paced: bool, after: int) -> None:
    """Without that the engine would wait for the release of a turn that gets no more frames."""
    engine = FakeEngine()
    engine.after = after
    speak(clip_of(10 * 512), engine, engine.stop, paced)
    assert len(engine.frames) == after and engine.cancelled == [TURN]
    assert (engine.released is None) == (after < 10)


def test_the_engine_is_ready_again_after_a_stopped_clip() -> None:
    events, stop = Events(), threading.Event()
    engine = engine_on_fakes(events)
    engine.start()
    try:
        events.until(StateChanged, lambda event: event == StateChanged(State.READY))
        playing = threading.Thread(target=speak, args=(clip_of(16_000), engine, stop))
        playing.start()
        events.until(TurnStarted)
        stop.set()
        playing.join(SECONDS)
        finished = events.until(TurnFinished)
        assert isinstance(finished, TurnFinished) and finished.turn.outcome is Outcome.CANCELLED
        events.until(StateChanged, lambda event: event == StateChanged(State.READY))
    finally:
        engine.close()


@pytest.mark.parametrize("paced", [False, True])
def test_a_clip_that_is_stopped_before_it_begins_begins_no_turn(paced: bool) -> None:
    engine = FakeEngine()
    engine.stop.set()
    speak(clip_of(512), engine, engine.stop, paced)
    assert engine.talked is None and engine.cancelled == []
