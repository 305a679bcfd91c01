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


@pytest.mark.parametrize("rate", [48_000, 44_100, 32_000, 16_000])
def test_a_stream_to_16_khz_is_that_of_the_whole_sound(rate: int) -> None:
    at = np.arange(rate) / rate
    sound = (np.sin(2 * np.pi * 440 * at) + np.sin(2 * np.pi * 5000 * at)).astype(np.float32)
    stream = Resampler(rate, 16_000)
    pieces = [stream.process(piece) for piece in np.array_split(sound, 97)]
    joined, whole = np.concatenate(pieces), resample(sound, rate, 16_000)
    assert 0 <= len(whole) - len(joined) <= 0.002 * 16_000
    assert np.abs(joined - whole[: len(joined)])[100:].max() < 0.01


@pytest.mark.parametrize("hz", [8_500, 12_000, 20_000])
def test_what_16_khz_cannot_hold_is_filtered_out(hz: int) -> None:
    sound = np.sin(2 * np.pi * hz * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(Resampler(48_000, 16_000).process(sound)[100:]).max() < 0.001
