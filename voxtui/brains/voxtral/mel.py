"""Voxtral's front end, on the device the model is on."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from voxtui.brains.voxtral.prompt import WINDOW_SAMPLES

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples

FFT, HOP, BINS = 400, 160, 128
WINDOW_FRAMES = WINDOW_SAMPLES // HOP


class LogMel:
    """Log-mel features as transformers' WhisperFeatureExtractor computes them."""

    def __init__(self, device: torch.device) -> None:
        from transformers.audio_utils import mel_filter_bank

        bank = mel_filter_bank(
            num_frequency_bins=1 + FFT // 2,
            num_mel_filters=BINS,
            min_frequency=0.0,
            max_frequency=8000.0,
            sampling_rate=16_000,
            norm="slaney",
            mel_scale="slaney",
        )
        self._bank = torch.from_numpy(bank).float().T.to(device)
        self._window = torch.hann_window(FFT, device=device)
        self._device = device

    def filled(self, samples: Samples, windows: int) -> Tensor:
        """Copy `samples` to the device, padded with zeros to whole windows: (windows * 30 s,).

        The copy is asynchronous.
        """
        staged = torch.empty(len(samples), pin_memory=self._device.type == "cuda")
        staged.numpy()[:] = samples
        filled = torch.zeros(windows * WINDOW_SAMPLES, device=self._device)
        filled[: len(samples)].copy_(staged, non_blocking=True)
        return filled

    def __call__(self, filled: Tensor) -> Tensor:
        """Compute (windows, 128, 3000) features from (windows * 480000,) samples.

        The loudest bin of the whole clip sets the floor of all its windows.
        """
        spectrum = torch.stft(filled, FFT, HOP, window=self._window, return_complex=True)
        power = (spectrum[..., :-1].abs() ** 2).contiguous()
        log = torch.clamp(self._bank @ power, min=1e-10).log10()
        log = torch.maximum(log, log.max() - 8.0)
        return ((log + 4.0) / 4.0).reshape(BINS, -1, WINDOW_FRAMES).transpose(0, 1)
