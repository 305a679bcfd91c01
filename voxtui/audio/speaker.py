"""The speaker: one stream for the app's life, fed in short slices."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from voxtui.audio.devices import (
    Device,
    find,
    list_devices,
    opening_failed,
    periods,
    portaudio,
    streams,
)
from voxtui.audio.resampling import Resampler
from voxtui.dialogue.data import SpeechChunk, audible
from voxtui.dialogue.marks import Mark, Marks
from voxtui.errors import DeviceError

PERIOD_SECONDS = 0.01
"""How often the device takes sound, where that can be chosen: a sound server begins to play only
then. PortAudio's own 50 ms would cost 25 ms of every first sound."""

WATCH_SECONDS = 0.001
"""How often it is looked whether the device has begun."""

DEEP_SECONDS = 0.2
"""How much speech is kept ahead: the interpreter may stall for so long without a gap."""

PIECE_SECONDS = 0.1
"""Speech that is converted to the device's rate at a time: a second of it takes 3 ms, or 10 on a
busy machine."""

QUEUED_SECONDS = 3.0
"""Speech queued beyond what the device holds. `play` returns once the rest fits, so the next clause
is made while so much still plays: as long as the timeout of a voice."""

STALL_SECONDS = 3.0
"""A device that takes nothing for so long is lost; a sound server on a busy machine may be late."""

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

Stopped = Callable[[], bool]


@dataclass(slots=True)
class Stretch:
    """Sound that the device plays without a break.

    It begins when the device first takes some of it, which no one knows before.
    """

    rate: float
    written: int = 0
    began_at: float | None = None

    def took(self, samples: int, now: float) -> None:
        """The device has taken so many since it was last asked; the latest of them play now."""
        if self.written and self.began_at is None:
            self.began_at = now - max(0.0, samples / self.rate - PERIOD_SECONDS)


@dataclass(frozen=True, slots=True)
class Moment:
    """When a sample leaves the converter."""

    stretch: Stretch
    sample: int

    @property
    def at(self) -> float | None:
        """Monotonic seconds; None while it is not known."""
        began = self.stretch.began_at
        return None if began is None else began + self.sample / self.stretch.rate


@dataclass(slots=True)
class Reply:
    """The speech of one turn on its way to the device."""

    marks: Marks
    stopped: Stopped
    written: int = 0
    """samples handed to the device"""
    heard: int | None = None
    """samples that were heard, once it is over"""
    ends: Moment | None = None
    """when the last sample written so far leaves the converter"""
    first_sound: Moment | None = None
    last_sound: Moment | None = None
    silenced_at: float | None = None
    finishing: bool = False
    """no more chunks will come"""


class SounddeviceSpeaker:
    """A Speaker on PortAudio. `device`: name, index, or "" for the default."""

    def __init__(self, device: str) -> None:
        self._wanted = device
        self._name = device or "default speaker"
        self._changed = threading.Condition()
        self._queue: deque[Any] = deque()
        self._queued = 0
        self._reply: Reply | None = None
        self._resampler: Resampler | None = None
        self._stream: Any = None
        self._device: Device | None = None
        self._channels = 1
        self._rinse = 0
        """samples of silence to write yet"""
        self._stretch = Stretch(1.0)
        self._lost: BaseException | None = None
        """what ended the writer's thread"""
        self._closing = False
        self._writer: threading.Thread | None = None

    @property
    def name(self) -> str:
        return self._name

    def open(self) -> None:
        with streams.lock:
            self._open()

    def _open(self) -> None:
        sounddevice: Any = portaudio()
        self._device = device = find(list_devices(), self._wanted, "output")
        self._name = device.name
        for channels in dict.fromkeys((1, min(2, device.outputs), device.outputs)):
            stream = None
            try:
                with periods(round(DEEP_SECONDS / PERIOD_SECONDS)):
                    stream = sounddevice.OutputStream(
                        device=device.index,
                        samplerate=device.rate,
                        channels=channels,
                        dtype="float32",
                        latency=DEEP_SECONDS,
                    )
                stream.start()
            except sounddevice.PortAudioError as error:
                if stream is not None:
                    stream.close(ignore_errors=True)
                if channels == device.outputs:
                    raise opening_failed(device, "output", error) from error
                continue
            self._stream, self._channels = stream, channels
            streams.opened()
            break
        self._lost, self._closing = None, False
        self._rinse, self._stretch = 0, Stretch(device.rate)
        self._writer = threading.Thread(target=self._write, name="voxtui-speaker", daemon=True)
        self._writer.start()

    def play(self, chunk: SpeechChunk, marks: Marks, stopped: Stopped) -> None:
        if not isinstance(self._lost, DeviceError | None):
            raise self._lost
        if (self._lost is not None or self._writer is None) and self._reply is None:
            self._end_writer()
            self.open()
        with self._changed:
            if self._reply is None:
                self._reply = Reply(marks, stopped)
                self._resampler = None
        # The first piece is on its way while the next is converted.
        length = round(PIECE_SECONDS * chunk.rate)
        for start in range(0, len(chunk.samples), length):
            self._add(chunk.samples[start : start + length], chunk.rate)

    def _add(self, samples: Samples, rate: int) -> None:
        with self._changed:
            if self._over():
                self._raise_if_lost()
                return
            if self._resampler is None:  # one for a reply, so that joints do not click
                self._resampler = Resampler(rate, self._rate)
            piece = self._resampler.process(samples)
            self._queue.append(piece)
            self._queued += len(piece)
            self._changed.notify_all()
            room = QUEUED_SECONDS * self._rate
            self._changed.wait_for(lambda: self._queued <= room or self._over())
            self._raise_if_lost()

    def finish(self, marks: Marks, stopped: Stopped) -> float:
        with self._changed:
            reply = self._reply
            if reply is None:
                return 0.0
            self._flush_resampler()
            reply.finishing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: reply.heard is not None or self._lost is not None)
            self._raise_if_lost()
            self._forget()
            sounded = marks.at(Mark.FIRST_SOUND) is not None  # and was not stopped before it could
            if sounded and reply.last_sound is not None and (at := reply.last_sound.at) is not None:
                marks.mark(Mark.LAST_SOUND, min(at, reply.silenced_at or at))
            return (reply.heard or 0) / self._rate

    def close(self) -> None:
        self._end_writer()

    @property
    def _rate(self) -> float:
        return self._device.rate if self._device else 1.0

    def _over(self) -> bool:
        return self._lost is not None or (
            self._reply is not None and self._reply.silenced_at is not None
        )

    def _raise_if_lost(self) -> None:
        if self._lost is not None:
            self._forget()
            raise self._lost

    def _forget(self) -> None:
        """The reply is over: none of it may be heard with the next one."""
        self._reply = None
        self._resampler = None
        self._queue.clear()
        self._queued = 0

    def _flush_resampler(self) -> None:
        if self._resampler is None:
            return
        rest = self._resampler.flush()
        self._resampler = None
        self._queue.append(rest)
        self._queued += len(rest)

    # The writer's thread.

    def _write(self) -> None:
        sounddevice: Any = portaudio()
        try:
            self._feed()
        except sounddevice.PortAudioError:
            self._lose(self._unplugged())
        except BaseException as error:  # noqa: BLE001 - raised again where sound is played
            self._lose(error)
        finally:
            streams.close(self._stream)

    def _lose(self, error: BaseException) -> None:
        with self._changed:
            self._lost = error
            self._changed.notify_all()

    def _unplugged(self) -> DeviceError:
        return DeviceError(
            f"The speaker {self._name!r} stopped taking sound; was it unplugged?",
            "`voxtui devices` lists the others.",
        )

    def _feed(self) -> None:
        """Keep the device 200 ms ahead while there is speech, and let it run dry otherwise.

        A sound server plays a stream that ran dry only once there is something in it again: a
        little silence kept ahead would never be played, and speech would wait behind it.
        """
        import numpy as np

        stream, rate = self._stream, self._rate
        period = round(PERIOD_SECONDS * rate)
        capacity = stream.write_available
        # Not by the clock, which goes on while the process is suspended (Ctrl+Z).
        stood_still, filled = 0.0, 0
        while True:
            now = time.monotonic()
            filled_before, filled = filled, capacity - stream.write_available
            if filled < filled_before:
                stood_still = 0.0
                self._stretch.took(filled_before - filled, now)
            with self._changed:
                if self._closing:
                    break
                self._tell_first_sound(now)
                self._silence_if_stopped(now)
                self._end_if_heard(now)
                if not self._queue and not self._rinsing():
                    self._changed.wait(self._soon() if self._reply else None)
                    stood_still = 0.0
                    continue
                room = capacity - period - filled
                if room <= 0:
                    if stood_still > STALL_SECONDS:
                        self._lose(self._unplugged())
                        return
                    stood_still += (soon := self._soon())
                    self._changed.wait(soon)
                    continue
                reply, samples = self._reply, self._next_slice(room)
            if filled <= 0:
                self._stretch = Stretch(rate)
            if samples is None or reply is None:
                samples = np.zeros(period, np.float32)
                self._rinse -= period
            else:
                self._note(samples, reply)
                self._rinse = capacity
            stream.write(np.repeat(samples[:, None], self._channels, axis=1))
            self._stretch.written += len(samples)
            filled += len(samples)
        stream.stop()

    def _soon(self) -> float:
        """Until when there is nothing to do: first sound is as true as it is looked for."""
        waiting = self._stretch.written and self._stretch.began_at is None
        return WATCH_SECONDS if waiting else PERIOD_SECONDS / 2

    def _rinsing(self) -> bool:
        """After the last words the device's ring is filled with zeros.

        Some play on when dry, and a stream that ends may lose its last 40 to 50 ms.
        """
        return self._rinse > 0 and (self._reply is None or self._reply.finishing)

    def _next_slice(self, length: int) -> Any:
        """Up to `length` samples of queued speech, or None."""
        if not self._queue:
            return None
        samples = self._queue.popleft()
        if len(samples) > length:
            self._queue.appendleft(samples[length:])
            samples = samples[:length]
        self._queued -= len(samples)
        self._changed.notify_all()
        return samples

    def _note(self, samples: Any, reply: Reply) -> None:
        """Where in the stretch `samples`, to be written next, can be heard."""
        stretch, heard = self._stretch, audible(samples)
        if len(heard):
            reply.first_sound = reply.first_sound or Moment(stretch, stretch.written + heard[0])
            reply.last_sound = Moment(stretch, stretch.written + heard[-1])
        reply.written += len(samples)
        reply.ends = Moment(stretch, stretch.written + len(samples))

    def _tell_first_sound(self, now: float) -> None:
        reply = self._reply
        if reply is None or reply.first_sound is None:
            return
        at = reply.first_sound.at
        if at is not None and at <= now:
            reply.marks.mark(Mark.FIRST_SOUND, at)

    def _silence_if_stopped(self, now: float) -> None:
        """Drop what the device still holds, at most once a reply."""
        reply = self._reply
        if reply is None or reply.silenced_at is not None or not reply.stopped():
            return
        self._queue.clear()
        self._queued = 0
        self._resampler = None
        self._stream.abort()
        self._stream.start()
        reply.silenced_at = time.monotonic()
        reply.heard = reply.written - self._unheard(reply, now)
        self._rinse, self._stretch = 0, Stretch(self._rate)
        self._changed.notify_all()

    def _unheard(self, reply: Reply, now: float) -> int:
        """How many samples of `reply` had not left the converter yet."""
        if reply.ends is None:
            return 0
        ends_at = reply.ends.at
        if ends_at is None:
            return min(reply.written, self._stretch.written)
        return max(0, min(reply.written, round((ends_at - now) * self._rate)))

    def _end_if_heard(self, now: float) -> None:
        reply = self._reply
        if reply is None or reply.heard is not None or not reply.finishing or self._queue:
            return
        ends_at = reply.ends.at if reply.ends else now
        if ends_at is not None and now >= ends_at:
            reply.heard = reply.written
            self._changed.notify_all()

    def _end_writer(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._writer is not None:
            self._writer.join()
            self._writer = None
