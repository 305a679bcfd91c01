"""Sample rate conversion by libsamplerate, which delays a stream by 1 ms.

libsoxr is as fast and as clean, but works in blocks and delays a stream by up to 37 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

QUALITY = "sinc_fastest"
"""-100 dB of aliasing. Each better quality has a longer delay."""

DELAY_SECONDS = 0.002
"""Longer than the delay line at any rate."""


class Resampler:
    """Converts a stream of mono float32, piece by piece, without a click at the joints.

    Rates are in Hz. Samples have the shape (n,) on both sides. They are returned unchanged if the
    rates are equal.
    """

    def __init__(self, rate_in: float, rate_out: float) -> None:
        self._ratio = rate_out / rate_in
        self._delay = round(DELAY_SECONDS * rate_in)
        library: Any = _library()
        self._stream: Any = library.Resampler(QUALITY, channels=1) if self._ratio != 1.0 else None

    def process(self, samples: Samples, last: bool = False) -> Samples:
        """Return the output that `samples` complete; `last`: no more samples follow."""
        import numpy as np

        if self._stream is None:
            return samples
        converted = self._stream.process(samples, self._ratio, end_of_input=last)
        return np.asarray(converted, np.float32)

    def flush(self) -> Samples:
        """Flush the delay line of a stream that is over; the result ends with silence.

        libsamplerate returns output only for input, so a short block of zeros is fed.
        """
        import numpy as np

        if self._stream is None:
            return np.zeros(0, np.float32)
        return self.process(np.zeros(self._delay, np.float32), last=True)


def resample(samples: Samples, rate_in: float, rate_out: float) -> Samples:
    """Convert a whole sound, mono float32, to another rate (Hz)."""
    return Resampler(rate_in, rate_out).process(samples, last=True)


def _library() -> Any:
    import samplerate

    return samplerate
