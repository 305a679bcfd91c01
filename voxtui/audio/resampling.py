"""Sample rate conversion by libsamplerate, which delays a stream by 1 ms.

libsoxr is as fast and clean, but works in blocks and delays a stream by up to 37 ms.
"""

from __future__ import annotations

from typing import Any

from voxtui.dialogue.data import SAMPLE_RATE, Samples

QUALITY = "sinc_fastest"
"""The converter with -100 dB of aliasing. Each better one has a longer delay."""

DELAY_SECONDS = 0.002
"""Length of the zeros that flush the delay line at any rate."""

HALF_TAPS = 16
"""Half the length of the low-pass filter before a decimation, at the lower rate: 1 ms."""

PASSED = 0.9
"""Share of the lower rate's band that passes. The rest has an aliasing of at most -60 dB."""

TOGETHER = 32
"""Number of samples per row of a product, the fastest of 8 to 64."""


class Resampler:
    """Converts a stream of mono float32, piece by piece, without a click at the joints.

    Rates are in Hz. Samples have the shape (n,) on both sides. Equal rates change nothing.
    """

    def __init__(self, rate_in: float, rate_out: float) -> None:
        import samplerate

        self._ratio = rate_out / rate_in
        self._delay = round(DELAY_SECONDS * rate_in)
        library: Any = samplerate
        self._stream: Any = library.Resampler(QUALITY, channels=1) if self._ratio != 1.0 else None

    def process(self, samples: Samples, last: bool = False) -> Samples:
        import numpy as np

        if self._stream is None:
            return samples
        converted = self._stream.process(samples, self._ratio, end_of_input=last)
        return np.asarray(converted, np.float32)

    def flush(self) -> Samples:
        """Flush the delay line by zeros, because libsamplerate returns output only for input."""
        import numpy as np

        if self._stream is None:
            return np.zeros(0, np.float32)
        return self.process(np.zeros(self._delay, np.float32), last=True)


class Decimator:
    """Takes every `factor`-th sample after a low-pass, in a quarter of a Resampler's time."""

    def __init__(self, factor: int) -> None:
        import numpy as np

        half = HALF_TAPS * factor
        at = np.arange(-half, half + 1)
        taps = np.sinc(PASSED / factor * at) * np.kaiser(len(at), 8.0)
        taps = (taps / taps.sum()).astype(np.float32)
        self._factor, self._length = factor, len(taps)
        # Column k filters sample k of a row. One product takes half the time of a convolution,
        # because that works out the samples that are left out, too.
        self._filters = np.zeros((len(taps) + factor * (TOGETHER - 1), TOGETHER), np.float32)
        for k in range(TOGETHER):
            self._filters[k * factor :][: len(taps), k] = taps
        self._before = np.zeros(half, np.float32)
        """the latest samples, which the filter needs with the next ones"""

    def process(self, samples: Samples) -> Samples:
        import numpy as np

        width, factor = len(self._filters), self._factor
        count = max(0, (len(self._before) + len(samples) - self._length) // factor + 1)
        unused = np.zeros(width, np.float32)
        sound = np.concatenate([self._before, samples, unused], dtype=np.float32)
        self._before = sound[count * factor : len(sound) - width]
        rows = np.lib.stride_tricks.as_strided(
            sound,
            (-(-count // TOGETHER), width),
            (TOGETHER * factor * sound.itemsize, sound.itemsize),
            writeable=False,
        )
        return np.asarray(rows @ self._filters, np.float32).ravel()[:count]


def downsampler(rate: float) -> Resampler | Decimator:
    factor = rate / SAMPLE_RATE
    if factor > 1 and factor.is_integer():
        return Decimator(int(factor))
    return Resampler(rate, SAMPLE_RATE)


def resample(samples: Samples, rate_in: float, rate_out: float) -> Samples:
    return Resampler(rate_in, rate_out).process(samples, last=True)
