"""Sample rate conversion by libsamplerate, which delays a stream by 1 ms.

libsoxr is as fast and clean, but works in blocks and delays a stream by up to 37 ms.
"""

from __future__ import annotations

from typing import Any

from voxtui.dialogue.data import Samples

QUALITY = "sinc_fastest"
"""The converter with -100 dB of aliasing. Each better one has a longer delay."""

DELAY_SECONDS = 0.002
"""Length of the zeros that flush the delay line at any rate."""


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


def resample(samples: Samples, rate_in: float, rate_out: float) -> Samples:
    return Resampler(rate_in, rate_out).process(samples, last=True)
