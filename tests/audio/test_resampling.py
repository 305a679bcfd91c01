from __future__ import annotations

import numpy as np
import pytest

from voxtui.audio.resampling import Resampler, resample


@pytest.mark.parametrize(("rate", "to"), [(24_000, 44_100), (24_000, 48_000), (16_000, 16_000)])
def test_a_stream_in_pieces_ends_like_the_whole(rate: int, to: int) -> None:
    sound = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)
    whole, stream = resample(sound, rate, to), Resampler(rate, to)
    pieces = [stream.process(piece) for piece in np.array_split(sound, 10)]
    joined = np.concatenate([*pieces, stream.flush()])
    assert len(whole) <= len(joined) <= len(whole) + 0.002 * to
    assert np.abs(joined[: len(whole)] - whole).max() < 1e-6
