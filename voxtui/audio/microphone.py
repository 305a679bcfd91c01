"""The microphone: one PortAudio stream at its own rate, cut into frames on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from voxtui.audio.echo_canceller import EchoCanceller
from voxtui.audio.portaudio import find, list_devices, open_stream, portaudio, shown_name, streams
from voxtui.audio.resampling import downsampler
from voxtui.dialogue.data import FRAME_SAMPLES, SAMPLE_RATE, Frame

BLOCK_SECONDS = 0.016
"""Half a frame. At 16 and 48 kHz every second block completes a frame, so no sample waits for the
next block. With 10 ms an idle microphone takes 1 % more of a core, and sound is known 2 ms sooner.
"""

LATENCY_SECONDS = 0.02
"""Latency of the stream, the smallest without losses on a sound server with both cores busy."""

UNATTENDED_SECONDS = 0.5
"""Interval of the converter while no frames are needed. Converting each block at once cost more
than the rest of an idle program."""

KEPT_SECONDS = 0.6
"""Length of the unconverted sound that is stored while no frames are needed: the pre-roll of a key
press, and the time until the press is known."""

STALL_SECONDS = 1.0
"""Time without a block after which a device is lost: a suspended one reports no error."""

WAKE_SECONDS = 5.0
"""Time without a first block after which a device is lost: a wireless or suspended microphone takes
seconds to wake up, each time it is opened."""

FOLLOW = 0.02
"""Share of the difference by which each block moves the frame clock towards the device's clock. The
times of callbacks jitter; the number of samples does not."""

SLACK_SAMPLES = 8
"""Samples that a resampler may return beyond its ratio."""

JUMP_SECONDS = 0.1
"""Difference between the clocks from which sound was lost; a smaller one is jitter."""

Blocks: TypeAlias = "SimpleQueue[tuple[float, bytes, bool] | None]"
"""(time of the last sample, samples, whether sound was lost before them); None at the end."""


class SounddeviceMicrophone:
    """A Microphone on PortAudio. `device` is a name, an index, or "" for the default.

    `canceller` makes an object that removes our own speech, if given.
    """

    def __init__(self, device: str, canceller: Callable[[], EchoCanceller] | None = None) -> None:
        self._wanted = device
        self._canceller = canceller
        self.name = device or "default microphone"
        self._stream: Any = None
        self._blocks: Blocks = SimpleQueue()
        self._converter: threading.Thread | None = None
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
        self._sink, self._report_loss = sink, lost
        with streams.lock:
            self._open()

    def _open(self) -> None:
        sounddevice: Any = portaudio()
        device = find(list_devices(), self._wanted, "input")
        self.name, self._closing = shown_name(device, "input"), False
        blocks: Blocks = SimpleQueue()
        self._blocks = blocks

        def make(rate: float, channels: int) -> Any:
            def captured(data: Any, count: int, times: Any, status: Any) -> None:
                # Only the copy is made here: this thread must not wait for other Python threads.
                lag = times.currentTime - times.inputBufferAdcTime - count / rate
                at = time.monotonic() - (lag if 0.0 < lag < 0.5 else 0.0)
                blocks.put((at, bytes(data), status.input_overflow))

            return sounddevice.RawInputStream(
                device=device.index,
                samplerate=rate,
                channels=channels,
                dtype="float32",
                blocksize=round(BLOCK_SECONDS * rate),
                latency=LATENCY_SECONDS,
                callback=captured,
                finished_callback=lambda: blocks.put(None),
            )

        self._stream, rate, channels = open_stream(device, "input", make)
        self._attended.set()
        self._converter = threading.Thread(
            target=self._convert,
            args=(blocks, rate, channels),
            name="voxtui-microphone",
            daemon=True,
        )
        self._converter.start()

    def close(self) -> None:
        if self._stream is None:
            return
        self._closing = True
        streams.close(self._stream)
        self._stream = None
        self._blocks.put(None)
        self._attended.set()
        if self._converter is not None:
            self._converter.join()

    def _convert(self, blocks: Blocks, rate: float, channels: int) -> None:
        import numpy as np

        framer = Framer(rate, self._canceller() if self._canceller else None)
        unattended: deque[tuple[float, Any, bool]] = deque()
        waited, patience, ended = 0.0, WAKE_SECONDS, False
        while not ended:
            attended = self._attended.wait(UNATTENDED_SECONDS)
            try:
                taken = [blocks.get(timeout=STALL_SECONDS / 2)]
            except Empty:
                # In halves, because the first wait may have passed during a suspend (Ctrl+Z).
                waited += STALL_SECONDS / 2
                if waited < patience:
                    continue
                break
            waited, patience = 0.0, STALL_SECONDS
            while not blocks.empty():
                taken.append(blocks.get())
            peak = 0.0
            for block in taken:
                if ended := block is None:
                    break
                at, data, overflow = block
                samples = np.frombuffer(data, np.float32)
                if channels > 1:
                    samples = samples.reshape(-1, channels).mean(axis=1)
                peak = max(peak, float(np.abs(samples).max(initial=0.0)))
                unattended.append((at, samples, overflow))
            self.level = peak
            if attended:
                while unattended:
                    at, samples, overflow = unattended.popleft()
                    for frame in framer.frames(samples, at, overflow):
                        self._sink(frame)
            while unattended and unattended[-1][0] - unattended[0][0] > KEPT_SECONDS:
                at, samples, _ = unattended.popleft()
                framer.skip(len(samples), at)
        self.level = 0.0
        if not self._closing:
            self._report_loss(
                f"The microphone {self.name!r} stopped delivering sound; was it unplugged?"
            )


class Framer:
    """Cuts blocks at any rate into 16 kHz frames, each with the capture time of its last sample.

    `canceller` removes our own speech from them.
    """

    def __init__(self, rate: float, canceller: EchoCanceller | None = None) -> None:
        import numpy as np

        self._rate = rate
        self._canceller = canceller
        self._resampler = downsampler(rate)
        self._clock = 0.0
        """the monotonic time of the last sample taken, or 0 before the first one"""
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

        self._follow(len(samples), at)
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
        last_at = self._clock - (self._taken / self._rate - self._made / SAMPLE_RATE)
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

    def skip(self, count: int, at: float) -> None:
        """Skip `count` samples, captured until `at`. The next frame begins after them."""
        self._follow(count, at)
        self._waiting.clear()
        self._waits = 0
        self._rest = self._rest[:0]

    def _follow(self, count: int, at: float) -> None:
        expected = self._clock + count / self._rate
        jumps = abs(at - expected) > JUMP_SECONDS
        self._clock = at if jumps or not self._clock else expected + FOLLOW * (at - expected)
