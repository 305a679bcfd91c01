"""The speaker: one PortAudio stream for the app's life, written in short slices by one thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from voxtui.audio.chime import AHEAD_SECONDS, Chime
from voxtui.audio.played import PERIOD_SECONDS, PLAYED, PlayedSegment
from voxtui.audio.portaudio import Device, open_stream, periods, portaudio, streams
from voxtui.audio.resampling import Resampler
from voxtui.dialogue.data import Samples, SpeechChunk, audible
from voxtui.dialogue.protocols import StopFlag
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import DeviceError

WATCH_SECONDS = 0.001
"""Polling interval while playback has not begun. It bounds the error of `first_sound`."""

DEEP_SECONDS = 0.2
"""Length of speech in the device's buffer: the interpreter may stall that long without a gap."""

PIECE_SECONDS = 0.1
"""Length of speech that is resampled at a time: a second takes 3 ms, or 10 ms on a busy machine."""

QUEUED_SECONDS = 3.0
"""Length of speech queued beyond the device's buffer. `play` returns once the rest fits, so the
next clause is made while this much still plays: as long as the timeout of a voice."""

SILENT_SECONDS = 0.5
"""Time after which a device that takes no sound is reported as silent."""

STALL_SECONDS = 3.0
"""Time after which a device that takes no sound is lost: a busy server may be late by less."""


@dataclass(frozen=True, slots=True)
class StreamTime:
    """The time at which the device takes a sample of a segment."""

    segment: PlayedSegment
    sample: int

    @property
    def at(self) -> float | None:
        """Return monotonic seconds, or None while the segment has not begun."""
        began = self.segment.began_at
        return None if began is None else began + self.sample / self.segment.rate


@dataclass(slots=True)
class Playback:
    """The speech of one turn on its way to the device."""

    timestamps: Timestamps
    stopped: StopFlag
    written: int = 0
    """the number of samples passed to the device"""
    heard: int | None = None
    """the number of samples that the device took, or None until playback is over"""
    ends: StreamTime | None = None
    """the time at which the last sample written so far is audible"""
    first_sound: StreamTime | None = None
    last_sound: StreamTime | None = None
    silenced_at: float | None = None
    finishing: bool = False


class SounddeviceSpeaker:
    """A Speaker on PortAudio. `device` is a name, an index, or "" for the default."""

    def __init__(self, device: str) -> None:
        self._wanted = device
        self.name = device or "default speaker"
        self._changed = threading.Condition()
        self._queue: deque[Any] = deque()
        self._queued = 0
        """the number of samples in the queue"""
        self._playback: Playback | None = None
        self._resampler: Resampler | None = None
        self._stream: Any = None
        self._rate = 48_000.0
        self._channels = 1
        self._drain = 0
        """the samples of silence still to be written after the last words"""
        self._segment = PlayedSegment(1.0)
        self._chime: Chime | None = None
        self._lost: BaseException | None = None
        self._closing = False
        self._writer: threading.Thread | None = None

    def open(self) -> None:
        sounddevice: Any = portaudio()

        def make(device: Device, rate: float, channels: int) -> Any:
            with periods(round(DEEP_SECONDS / PERIOD_SECONDS)):
                return sounddevice.OutputStream(
                    device=device.index,
                    samplerate=rate,
                    channels=channels,
                    dtype="float32",
                    latency=DEEP_SECONDS,
                )

        opened = open_stream(self._wanted, "output", make)
        self._stream, self.name, self._rate, self._channels = opened
        # It was made while the rate was a guess, or that of another device.
        if self._chime is not None and self._chime.rate != self._rate:
            self._chime = Chime(self._chime.at, self._rate)
        self._lost, self._closing = None, False
        self._drain, self._segment = 0, PlayedSegment(self._rate)
        self._writer = threading.Thread(target=self._write, name="voxtui-speaker", daemon=True)
        self._writer.start()

    def play(self, chunk: SpeechChunk, timestamps: Timestamps, stopped: StopFlag) -> None:
        if not isinstance(self._lost, DeviceError | None):
            raise self._lost
        if (self._lost is not None or self._writer is None) and self._playback is None:
            self._end_writer()
            self.open()
        with self._changed:
            if self._playback is None:
                self._playback = Playback(timestamps, stopped)
                self._resampler = None
        # In pieces, so that the first one plays while the next is resampled.
        length = round(PIECE_SECONDS * chunk.rate)
        for start in range(0, len(chunk.samples), length):
            self._add(chunk.samples[start : start + length], chunk.rate)

    def _add(self, samples: Samples, rate: int) -> None:
        with self._changed:
            if self._over():
                self._raise_if_lost()
                return
            if self._resampler is None:  # one for all of a turn, so that joints do not click
                self._resampler = Resampler(rate, self._rate)
            piece = self._resampler.process(samples)
            self._queue.append(piece)
            self._queued += len(piece)
            self._changed.notify_all()
            room = QUEUED_SECONDS * self._rate
            self._changed.wait_for(lambda: self._queued <= room or self._over())
            self._raise_if_lost()

    def finish(self, timestamps: Timestamps, stopped: StopFlag) -> float:
        with self._changed:
            playback = self._playback
            if playback is None:
                return 0.0
            if self._resampler is not None:
                rest, self._resampler = self._resampler.flush(), None
                self._queue.append(rest)
                self._queued += len(rest)
            playback.finishing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: playback.heard is not None or self._lost is not None)
            self._raise_if_lost()
            self._forget()
            sounded = timestamps.at(Milestone.FIRST_SOUND) is not None
            last = playback.last_sound.at if playback.last_sound else None
            if sounded and last is not None:
                timestamps.record(Milestone.LAST_SOUND, min(last, playback.silenced_at or last))
            return (playback.heard or 0) / self._rate

    def chime(self, at: float | None) -> None:
        chime = None if at is None else Chime(at, self._rate)
        with self._changed:
            if chime is None and self._chime is not None:
                self._chime.end()
            else:
                self._chime = chime
            self._changed.notify_all()

    def close(self) -> None:
        self._end_writer()

    def _over(self) -> bool:
        return self._lost is not None or (
            self._playback is not None and self._playback.silenced_at is not None
        )

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            self._forget()
            raise self._lost

    def _forget(self) -> None:
        self._playback = None
        self._resampler = None
        self._queue.clear()
        self._queued = 0

    # Runs on the writer's thread.

    def _write(self) -> None:
        sounddevice: Any = portaudio()
        try:
            self._feed()
        except sounddevice.PortAudioError:
            self._lose(self._unplugged())
        except BaseException as error:  # noqa: BLE001 - raised again by `play` and `finish`
            self._lose(error)
        finally:
            streams.close(self._stream)

    def _lose(self, error: BaseException) -> None:
        with self._changed:
            self._lost = error
            self._changed.notify_all()

    def _unplugged(self) -> DeviceError:
        return DeviceError(
            f"The speaker {self.name!r} stopped taking sound; was it unplugged?",
            "`voxtui devices` lists the others.",
        )

    def _feed(self) -> None:
        """Keep 200 ms of speech in the device's buffer, and let the buffer run empty otherwise.

        A sound server restarts a stream that ran dry only once it has sound again. A little silence
        written ahead would never be played, and speech would wait behind it.
        """
        import numpy as np

        stream, rate = self._stream, self._rate
        period = round(PERIOD_SECONDS * rate)
        capacity = stream.write_available
        # Waits are added up, because the clock goes on during a suspend (Ctrl+Z).
        stood_still, filled = 0.0, 0
        while True:
            now = time.monotonic()
            filled_before, filled = filled, capacity - stream.write_available
            if filled < filled_before:
                stood_still = 0.0
                self._report_stall(False)
                self._segment.took(filled_before - filled, now)
            with self._changed:
                if self._closing:
                    break
                self._mark_first_sound(now)
                if self._silence_if_stopped(now):
                    filled = 0  # the device dropped it; a chime may be written at once
                self._end_if_heard(now)
                chime = self._due_chime(now)
                if not self._queue and not self._draining() and chime is None:
                    self._changed.wait(self._until_chime(now))
                    stood_still = 0.0
                    continue
                room = capacity - period - filled
                if room <= 0:
                    if stood_still > STALL_SECONDS:
                        self._lose(self._unplugged())
                        return
                    stood_still += (interval := self._interval())
                    if stood_still > SILENT_SECONDS:
                        self._report_stall(True)
                    self._changed.wait(interval)
                    continue
                playback, samples = self._playback, self._next_slice(room)
            if filled <= 0:
                self._segment = self._segment.following()
            if samples is None or playback is None:
                # All at once before a chime: written by the period, silence never gets ahead of a
                # device on a machine so busy that this loop takes as long.
                samples = np.zeros(room if chime is not None else period, np.float32)
                self._drain -= period
            else:
                self._note(samples, playback)
                self._drain = capacity
            if chime is not None:
                samples, self._drain = chime.mix(samples, self._segment, now), capacity
            PLAYED.add(self._segment, samples)
            stream.write(np.repeat(samples[:, None], self._channels, axis=1))
            self._segment.written += len(samples)
            filled += len(samples)
        stream.stop()

    def _report_stall(self, stalls: bool) -> None:
        if (playback := self._playback) is not None:
            playback.timestamps.stalls = stalls

    def _due_chime(self, now: float) -> Chime | None:
        if self._chime is not None and self._chime.over:
            self._chime = None
        return self._chime if self._chime is not None and self._chime.due(now) else None

    def _until_chime(self, now: float) -> float | None:
        """Return the longest wait for something to write, or None to wait for a change."""
        if self._playback is not None:
            return self._interval()
        return None if self._chime is None else max(0.0, self._chime.at - AHEAD_SECONDS - now)

    def _interval(self) -> float:
        waiting = self._segment.written and self._segment.began_at is None
        return WATCH_SECONDS if waiting else PERIOD_SECONDS / 2

    def _draining(self) -> bool:
        """Return True if silence must be written, so that the device's ring holds only zeros.

        Some devices repeat their ring when it runs empty, and a stream that ends may lose its last
        40 to 50 ms.
        """
        return self._drain > 0 and (self._playback is None or self._playback.finishing)

    def _next_slice(self, length: int) -> Any:
        if not self._queue:
            return None
        samples = self._queue.popleft()
        if len(samples) > length:
            self._queue.appendleft(samples[length:])
            samples = samples[:length]
        self._queued -= len(samples)
        self._changed.notify_all()
        return samples

    def _note(self, samples: Any, playback: Playback) -> None:
        segment, heard = self._segment, audible(samples)
        if len(heard):
            first = StreamTime(segment, segment.written + heard[0])
            playback.first_sound = playback.first_sound or first
            playback.last_sound = StreamTime(segment, segment.written + heard[-1])
        playback.written += len(samples)
        playback.ends = StreamTime(segment, segment.written + len(samples))

    def _mark_first_sound(self, now: float) -> None:
        playback = self._playback
        if playback is None or playback.first_sound is None or playback.silenced_at is not None:
            return
        at = playback.first_sound.at
        if at is not None and at <= now:
            playback.timestamps.record(Milestone.FIRST_SOUND, at)

    def _silence_if_stopped(self, now: float) -> bool:
        playback = self._playback
        if playback is None or playback.silenced_at is not None or not playback.stopped.is_set():
            return False
        self._queue.clear()
        self._queued = 0
        self._resampler = None
        self._stream.abort()
        playback.silenced_at = self._segment.dropped_at = time.monotonic()
        self._stream.start()
        playback.heard = playback.written - self._unheard(playback, now)
        self._drain, self._segment = 0, self._segment.following()
        self._changed.notify_all()
        return True

    def _unheard(self, playback: Playback, now: float) -> int:
        if playback.ends is None:
            return 0
        ends_at = playback.ends.at
        if ends_at is None:
            return min(playback.written, self._segment.written)
        return max(0, min(playback.written, round((ends_at - now) * self._rate)))

    def _end_if_heard(self, now: float) -> None:
        playback = self._playback
        if playback is None or playback.heard is not None:
            return
        if not playback.finishing or self._queue:
            return
        ends_at = playback.ends.at if playback.ends else now
        if ends_at is not None and now >= ends_at:
            playback.heard = playback.written
            self._changed.notify_all()

    def _end_writer(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
