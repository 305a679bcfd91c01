"""The microphone: one PortAudio stream at its own rate, cut into frames on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.portaudio import Device, open_stream, periods, portaudio, streams
from voxtui.audio.resampling import Resampler
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame

BLOCK_SECONDS = 0.016
"""Half a frame: at 16 and 48 kHz every second block completes one, so no sample waits."""

BUFFERED_BLOCKS = 128
"""Length of the buffer behind a sound server, in blocks: two seconds."""

LATENCY_SECONDS = 0.02
"""Length of the buffer elsewhere, where a device may deliver it in one piece."""

POLL_SECONDS = 0.001
"""Polling interval for a block that is due: a sound server sends uneven pieces."""

UNATTENDED_BLOCKS = 62
"""Blocks read at a time while no frames are needed: a second. Waking for each of them cost more
than the rest of an idle program."""

UNATTENDED_POLLS = 3
"""Polls for that many blocks, after which fewer are read."""

KEPT_BLOCKS = 38
"""Unconverted blocks that are stored while no frames are needed: the pre-roll of a key press, and
the time until the press is known. They are whole, so that frames end with a block."""

STALL_SECONDS = 1.0
"""Time that a block is overdue after which a device is lost: a suspended one reports no error."""

WAKE_SECONDS = 5.0
"""Time without a first block after which a device is lost: a wireless or suspended microphone takes
seconds to wake up, each time it is opened."""

LATE_READINGS = 64
"""Late readings in a row that are not jitter: the clocks differ, or sound was lost unreported."""

SLACK_SAMPLES = 8
"""Samples that a resampler may return beyond its ratio."""

JUMP_SECONDS = 0.1
"""Lateness of a reading from which sound was lost; a smaller one is jitter."""


class SounddeviceMicrophone:
    """A Microphone on PortAudio. `device` is a name, an index, or "" for the default."""

    def __init__(self, device: str, canceller: Callable[[], EchoCanceller] | None = None) -> None:
        self._wanted = device
        self._canceller = canceller
        self.name = device or "default microphone"
        self._stream: Any = None
        self._reader: threading.Thread | None = None
        self._closing = False
        self._attended = threading.Event()
        self.level = 0.0

    def attend(self, attended: bool) -> None:
        # The canceller has to hear all of an echo to remove it.
        if attended or self._canceller is not None:
            self._attended.set()
        else:
            self._attended.clear()

    def open(self, sink: Callable[[Frame], None], lost: Callable[[str], None]) -> None:
        self._sink, self._report_loss, self._closing = sink, lost, False
        sounddevice: Any = portaudio()

        def make(device: Device, rate: float, channels: int) -> Any:
            # A sound server sends a period at a time; a sound card may not have as many.
            served = device.host == "ALSA" and "(hw:" not in device.name
            latency = BUFFERED_BLOCKS * BLOCK_SECONDS if served else LATENCY_SECONDS
            with periods(BUFFERED_BLOCKS + 1):
                return sounddevice.RawInputStream(
                    device=device.index,
                    samplerate=rate,
                    channels=channels,
                    dtype="float32",
                    blocksize=round(BLOCK_SECONDS * rate),
                    latency=latency,
                )

        canceller = self._canceller() if self._canceller else None
        opened = open_stream(self._wanted, "input", make)
        self._stream, self.name, rate, channels = opened
        self._attended.set()
        self._reader = threading.Thread(
            target=self._read,
            args=(self._stream, Framer(rate, canceller), rate, channels),
            name="voxtui-microphone",
            daemon=True,
        )
        self._reader.start()

    def close(self) -> None:
        if self._stream is None:
            return
        self._closing = True
        self._attended.set()
        if self._reader is not None:
            self._reader.join()
        streams.close(self._stream)
        self._stream = None

    def _read(self, stream: Any, framer: Framer, rate: float, channels: int) -> None:
        import numpy as np

        failure: Any = portaudio().PortAudioError
        clock, block = ArrivalClock(rate), round(BLOCK_SECONDS * rate)
        resting = max(1, min(UNATTENDED_BLOCKS, int(stream.latency / BLOCK_SECONDS / 2)))
        blocks, lost, rested = deque[Any](), False, False
        waited, patience = 0.0, WAKE_SECONDS
        while not self._closing and waited < patience:
            attended = self._attended.is_set()
            wanted = block * (1 if attended else resting)
            try:
                available = stream.read_available
                now, count = time.monotonic(), available - available % block
                # Looked for early, else the clock would never learn that a block comes sooner.
                early = clock.at + wanted / rate - POLL_SECONDS - now
                if not attended and early < -UNATTENDED_POLLS * POLL_SECONDS:
                    wanted = block
                if count < wanted:
                    # Added up, because the clock goes on during a suspend (Ctrl+Z).
                    waited += POLL_SECONDS
                    wait = max(early, POLL_SECONDS)
                    (time.sleep if attended else self._attended.wait)(wait)
                    continue
                data, overflow = stream.read(count)
            except failure:
                break
            waited, patience = 0.0, STALL_SECONDS
            clock.advance(count, now - (available - count) / rate, overflow)
            samples = np.frombuffer(data, np.float32)
            if channels > 1:
                samples = samples.reshape(-1, channels).mean(axis=1)
            self.level = float(np.abs(samples).max())
            blocks.extend(samples.reshape(-1, block))
            lost = lost or overflow
            if rested or not attended:
                framer.restart()
                while len(blocks) > KEPT_BLOCKS:
                    blocks.popleft()
            while attended and blocks:
                samples = blocks.popleft()
                at = clock.at - len(blocks) * block / rate
                for frame in framer.frames(samples, at, lost):
                    self._sink(frame)
                lost = False
            rested = not attended
        self.level = 0.0
        if not self._closing:
            self._report_loss(
                f"The microphone {self.name!r} stopped delivering sound; was it unplugged?"
            )


class ArrivalClock:
    """Dates the sound of a stream without jitter, by the number of its samples.

    A sample is read after it was captured, never before, so the earliest reading is right.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.at = 0.0
        """the monotonic time of the last sample read, or 0 before the first one"""
        self._least_late, self._late = inf, 0

    def advance(self, count: int, at: float, lost: bool) -> None:
        """Count `count` samples that arrived by `at`; `lost`: sound before them was lost."""
        expected = self.at + count / self._rate
        late = at - expected
        self._least_late, self._late = min(self._least_late, late), self._late + 1
        if lost or not 0.0 < late < JUMP_SECONDS:
            self.at = at
        elif self._late < LATE_READINGS:
            self.at = expected
            return
        else:
            self.at = expected + self._least_late
        self._least_late, self._late = inf, 0


class Framer:
    """Cuts blocks at any rate into 16 kHz frames, each with the time of its last sample."""

    def __init__(self, rate: float, canceller: EchoCanceller | None = None) -> None:
        import numpy as np

        self._rate = rate
        self._canceller = canceller
        self._resampler = Resampler(rate, SAMPLE_RATE)
        self._waiting: list[Any] = []
        """blocks that wait to be converted together"""
        self._waits = 0
        """the number of samples in these blocks"""
        self._taken = 0
        self._made = 0
        self._rest = np.zeros(0, np.float32)
        self._overflow = False

    def frames(self, samples: Any, at: float, overflow: bool = False) -> list[Frame]:
        """Return the frames completed by `samples` (float32, mono).

        `at` is the capture time of the last sample. `overflow`: sound before them was lost. Blocks
        are converted once they complete a frame, because each call costs more than its samples.
        """
        import numpy as np

        self._overflow = self._overflow or overflow
        self._waiting.append(samples)
        self._waits += len(samples)
        missing = FRAME_SAMPLES - len(self._rest)
        if self._canceller is not None:
            missing = self._canceller.needs(missing)
        if self._waits * SAMPLE_RATE < (missing - SLACK_SAMPLES) * self._rate:
            return []
        self._taken += self._waits
        fresh = self._resampler.process(np.concatenate(self._waiting))
        if not self._made:
            # Zeros for what the resampler holds back. Else each frame would wait for another block.
            held_back = max(0, int(self._waits * SAMPLE_RATE / self._rate) - len(fresh))
            self._rest = np.zeros(held_back, np.float32)
        self._waiting.clear()
        self._waits = 0
        self._made += len(fresh)
        # Sample k of the output has the time of sample k * rate / 16000 of the input.
        last_at = at - (self._taken / self._rate - self._made / SAMPLE_RATE)
        settled = False
        if self._canceller is not None:
            fresh = self._canceller.process(fresh, last_at)
            last_at -= self._canceller.delay_s
            settled = self._canceller.settled
        sound = np.concatenate([self._rest, fresh], dtype=np.float32)
        whole = len(sound) // FRAME_SAMPLES * FRAME_SAMPLES
        self._rest = sound[whole:]
        frames: list[Frame] = []
        for start in range(0, whole, FRAME_SAMPLES):
            end = start + FRAME_SAMPLES
            captured_at = last_at - (len(sound) - end) / SAMPLE_RATE
            frames.append(
                Frame(sound[start:end], captured_at, overflow=self._overflow, echo_free=settled)
            )
            self._overflow = False
        return frames

    def restart(self) -> None:
        """Begin the next frame behind a gap."""
        self._waiting.clear()
        self._waits = 0
        self._rest = self._rest[:0]
