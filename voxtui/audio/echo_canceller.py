"""Remove our own speech from the microphone's sound by WebRTC's AEC3, the extra `hands-free`."""

from __future__ import annotations

from typing import Any

from voxtui.audio.played import Played
from voxtui.audio.resampling import DELAY_SECONDS, Resampler
from voxtui.dialogue.data import SAMPLE_RATE, Samples
from voxtui.errors import DeviceError, how_to_install

BLOCK_SAMPLES = 160
"""Samples of a block of the canceller, 10 ms."""

FILTER_SAMPLES = 128
"""Measured delay of the canceller's output, 8 ms."""

SLACK_SAMPLES = 8
"""Samples in reserve for the next block, because a device delivers somewhat more or less than ten
milliseconds. Without them a block would often wait for a sample of the next one."""

RECENT_SAMPLES = 640
"""Samples that fill the canceller's filters after a rest: 40 ms, in whole blocks."""

IDLE_SECONDS = 1.0
"""Time without our speech after which the canceller rests: no echo is longer."""

LEAD_SECONDS = 0.05
"""Lead of the reference over the echo. An echo must not come before its cause, and the times of
both devices are known to some ten milliseconds."""

DRIFT_SECONDS = 0.03
"""Difference between the devices' times above which the canceller does not follow by itself."""

DRIFTING_SECONDS = 0.5
"""Minimum duration of such a difference, because a busy machine delivers blocks late."""

SAME_SECONDS = 0.003
"""Correction of the time at which our speech began, up to which the delay counts as unchanged."""

SETTLING_SECONDS = 1.8
"""Maximum time that the canceller needs after our speech has begun or paused, because the echo then
has another delay. Until then some echo may remain."""

FLOOR = 1e-7
"""Amplitude of the noise in place of digital silence: -140 dB, which counts as silence elsewhere.
Without it the canceller's filters decay to denormal numbers. A silent reference then costs ten
times the processor time, and a silent microphone twice."""


class EchoCanceller:
    """Removes the sound of `played` from that of one microphone. Used by one thread."""

    def __init__(self, played: Played, offset_s: float = 0.0) -> None:
        """Assume that sound is captured `offset_s` seconds after the time in `played`."""
        import numpy as np

        try:
            from pywebrtc_audio import EchoCanceller as Aec3
        except ImportError as error:
            raise DeviceError(
                f"The echo canceller did not load: {error}.", how_to_install("hands-free")
            ) from error

        delay_ms = round((LEAD_SECONDS + max(0.0, offset_s)) * 1000)
        self._aec: Any = Aec3(SAMPLE_RATE, stream_delay_ms=delay_ms)
        self._played = played
        self._near: Samples | None = None
        """samples that wait for the next block"""
        self._before = np.zeros(RECENT_SAMPLES, np.float32)
        self._silent_s = IDLE_SECONDS
        """the seconds since our speech was last audible"""
        self._far = np.zeros(0, np.float32)
        self._far_until: float | None = None
        """the monotonic time of the end of the speech taken from `played`"""
        self._noise: Any = np.random.default_rng(0)
        self._resampler: Resampler | None = None
        self._rate = 0.0
        self._drifting_s = 0.0
        self._began_at = 0.0
        """the monotonic time at which the latest audible speech began"""
        self._heard_s = 0.0
        """the seconds of that speech at an unchanged delay"""

    @property
    def delay_s(self) -> float:
        """Seconds by which the returned sound lags behind the input."""
        waiting = 0 if self._near is None else len(self._near)
        return (FILTER_SAMPLES + waiting) / SAMPLE_RATE

    @property
    def settled(self) -> bool:
        """True once the echo's delay is known, so that the remaining sound is not our speech."""
        return self._heard_s >= SETTLING_SECONDS

    def needs(self, wanted: int) -> int:
        if self._near is None:  # the first ones are filled up to whole blocks
            return wanted
        return -(-wanted // BLOCK_SAMPLES) * BLOCK_SAMPLES - len(self._near)

    def process(self, samples: Samples, until: float) -> Samples:
        """Return whole blocks without our speech. `samples` (16 kHz) end at the time `until`."""
        import numpy as np

        if self._near is None:  # the first blocks are complete at once
            self._near = np.zeros((SLACK_SAMPLES - len(samples)) % BLOCK_SAMPLES, np.float32)
        self._near = np.concatenate([self._near, samples], dtype=np.float32)
        whole = len(self._near) // BLOCK_SAMPLES * BLOCK_SAMPLES
        if not whole:
            return self._near[:0]
        near, self._near = self._near[:whole], self._near[whole:]
        rested = self._silent_s >= IDLE_SECONDS
        far = self._reference(whole, until - len(self._near) / SAMPLE_RATE + LEAD_SECONDS)
        before = self._before
        self._before = np.concatenate([before, near])[-RECENT_SAMPLES:]
        if far is None:
            return np.concatenate([before[-FILTER_SAMPLES:], near[:-FILTER_SAMPLES]])
        if rested:  # its filters hold the sound from before the rest
            self._cancel(before, np.zeros(RECENT_SAMPLES, np.float32))
        return self._cancel(near, far)

    def _cancel(self, near: Samples, far: Samples) -> Samples:
        return self._aec.process(self._with_floor(near), self._with_floor(far))

    def _reference(self, count: int, until: float) -> Samples | None:
        """Return `count` samples of our speech, up to `until`; None after a while without any."""
        import numpy as np

        seconds = count / SAMPLE_RATE
        begin = until - seconds if self._far_until is None else self._far_until
        drifts = abs(begin + seconds - until) > DRIFT_SECONDS
        self._drifting_s = self._drifting_s + seconds if drifts else 0.0
        if self._drifting_s > DRIFTING_SECONDS:
            begin, self._drifting_s, self._heard_s = until - seconds, 0.0, 0.0
        self._far_until = begin + seconds
        rate, sound, began_at = self._played.between(begin, self._far_until)
        self._silent_s += seconds
        if began_at is not None:
            self._silent_s = 0.0
            same = abs(began_at - self._began_at) < SAME_SECONDS
            self._began_at, self._heard_s = began_at, (self._heard_s if same else 0.0) + seconds
        if self._silent_s >= IDLE_SECONDS:
            return None
        if rate != self._rate:
            self._rate, self._resampler = rate, Resampler(rate, SAMPLE_RATE)
            # The resampler returns its first samples late.
            self._far = np.zeros(round(DELAY_SECONDS * SAMPLE_RATE) + 1, np.float32)
        assert self._resampler is not None
        self._far = np.concatenate([self._far, self._resampler.process(sound)], dtype=np.float32)
        far, self._far = self._far[:count], self._far[count:]
        if len(far) < count:
            far = np.concatenate([far, np.zeros(count - len(far), np.float32)])
        return far

    def _with_floor(self, sound: Samples) -> Samples:
        import numpy as np

        if sound.any():
            return sound
        return np.float32(FLOOR) * self._noise.standard_normal(len(sound), np.float32)
