"""Sample rate conversion by libsamplerate, which holds back 1 ms of a stream.

libsoxr, as fast and as clean, works on a stream in blocks and holds back up to 37 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

QUALITY = "sinc_fastest"
"""-100 dB of aliasing; each better quality holds back longer."""

HELD_SECONDS = 0.002
"""More than is held back at any of these rates."""


class Resampler:
    """Converts a stream of mono float32, piece by piece, without a click at the joints.

    Rates are in Hz. Samples have the shape (n,) on both sides; where the rates are the same they
    are handed on as they are.
    """

    def __init__(self, rate_in: float, rate_out: float) -> None:
        self._ratio = rate_out / rate_in
        self._held = round(HELD_SECONDS * rate_in)
        library: Any = _library()
        self._stream: Any = library.Resampler(QUALITY, channels=1) if self._ratio != 1.0 else None

    def process(self, samples: Samples, last: bool = False) -> Samples:
        """What `samples` complete; `last`: nothing follows them."""
        import numpy as np

        if self._stream is None:
            return samples
        converted = self._stream.process(samples, self._ratio, end_of_input=last)
        return np.asarray(converted, np.float32)

    def flush(self) -> Samples:
        """What was held back of a stream that is over, and a little silence.

        The library gives no more than it gets: for nothing, nothing.
        """
        import numpy as np

        if self._stream is None:
            return np.zeros(0, np.float32)
        return self.process(np.zeros(self._held, np.float32), last=True)


def resample(samples: Samples, rate_in: float, rate_out: float) -> Samples:
    """A whole sound, mono float32, at another rate (Hz)."""
    return Resampler(rate_in, rate_out).process(samples, last=True)


def _library() -> Any:
    import samplerate

    return samplerate
