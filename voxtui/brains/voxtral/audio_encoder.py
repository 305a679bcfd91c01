"""Turn sound into embeddings: front end, audio encoder and projector, once per window."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional

from voxtui.brains.voxtral.graphs import Graphs, Record
from voxtui.brains.voxtral.prompt import WINDOW_SAMPLES, WINDOW_TOKENS, PromptClip

if TYPE_CHECKING:
    from transformers import VoxtralForConditionalGeneration

    from voxtui.dialogue.data import Samples

Affine: TypeAlias = "tuple[Tensor, Tensor | None]"
"""Weight and bias."""

FFT, HOP, BINS = 400, 160, 128
WINDOW_FRAMES = WINDOW_SAMPLES // HOP


@dataclass(frozen=True, slots=True, eq=False)
class EncoderLayer:
    norm: Affine
    qkv: Affine
    """query, key and value weights joined: one product instead of three"""
    out: Affine
    mlp_norm: Affine
    wide: Affine
    narrow: Affine


class AudioTower:
    """Turns one window of features into embeddings for the language model.

    Takes the weights out of `model`, whose own encoder is unusable afterwards.
    """

    def __init__(self, model: VoxtralForConditionalGeneration) -> None:
        audio: Any = model.config.audio_config
        tower: Any = model.model.audio_tower
        projector: Any = model.model.multi_modal_projector
        self._heads: int = audio.encoder_attention_heads
        self._stacked: int = audio.intermediate_size
        self._convolutions = (_affine(tower.conv1), _affine(tower.conv2))
        self._positions: Tensor = tower.embed_positions.weight.data
        self.layers = [extract_weights(layer) for layer in tower.layers]
        self._norm = _affine(tower.layer_norm)
        self._projector = (_affine(projector.linear_1), _affine(projector.linear_2))
        self.device: torch.device = self._positions.device
        self.dtype: torch.dtype = self._norm[0].dtype
        self.width: int = self._projector[1][0].shape[0]

    def __call__(self, features: Tensor) -> Tensor:
        """Compute (375, hidden) embeddings from (1, 128, 3000) features."""
        first, second = self._convolutions
        x = functional.gelu(functional.conv1d(features.to(self.dtype), *first, padding=1))
        x = functional.gelu(functional.conv1d(x, *second, stride=2, padding=1))
        x = (x[0].T + self._positions).to(self.dtype)
        for layer in self.layers:
            x = x + self._attend(_normed(x, layer.norm), layer)
            h = functional.linear(_normed(x, layer.mlp_norm), *layer.wide)
            x = x + functional.linear(functional.gelu(h), *layer.narrow)
            if x.dtype == torch.half:
                most = torch.finfo(torch.half).max - 1000
                x = x.clamp(-most, most)
        x = _normed(x, self._norm).reshape(-1, self._stacked)
        first, second = self._projector
        return functional.linear(functional.gelu(functional.linear(x, *first)), *second)

    def _attend(self, h: Tensor, layer: EncoderLayer) -> Tensor:
        count, width = h.shape
        qkv = functional.linear(h, *layer.qkv).view(1, count, 3, self._heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return functional.linear(mixed[0].transpose(0, 1).reshape(count, width), *layer.out)


def _normed(x: Tensor, norm: Affine) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), *norm)


def _affine(module: Any) -> Affine:
    return module.weight.data, None if module.bias is None else module.bias.data


def extract_weights(layer: Any) -> EncoderLayer:
    """Remove the weights from a transformers layer, so that no two copies exist."""
    attention = layer.self_attn
    modules = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight = torch.cat([module.weight.data for module in modules])
    bias = torch.cat(
        [m.weight.new_zeros(len(m.weight)) if m.bias is None else m.bias.data for m in modules]
    )
    attention.q_proj = attention.k_proj = attention.v_proj = None
    return EncoderLayer(
        _affine(layer.self_attn_layer_norm),
        (weight, bias),
        _affine(attention.out_proj),
        _affine(layer.final_layer_norm),
        _affine(layer.fc1),
        _affine(layer.fc2),
    )


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
        """Copy `samples` to the device asynchronously, with zeros up to `windows` of 30 s."""
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


class AudioEmbedder:
    """Encodes a clip once while it exists: rebuilding a KV cache needs no second encoding."""

    def __init__(self, encoder: AudioTower) -> None:
        self.encoder = encoder
        self.mel = LogMel(encoder.device)
        self.graphs = Graphs()
        self._samples = torch.zeros(WINDOW_SAMPLES, device=encoder.device)
        self._features = torch.zeros(1, BINS, WINDOW_FRAMES, device=encoder.device)
        self._rows = torch.zeros(
            WINDOW_TOKENS, encoder.width, dtype=encoder.dtype, device=encoder.device
        )
        self.known: WeakKeyDictionary[PromptClip, Tensor] = WeakKeyDictionary()
        """the rows of the clips that still exist"""
        self._whole: list[tuple[Tensor, Tensor]] = []
        """features and embeddings of all windows but the last of the latest clip"""
        self.windows = 0
        """the number of windows encoded so far"""

    def rows(self, clip: PromptClip) -> Tensor:
        """Return the (windows * 375, hidden) embeddings of `clip`."""
        if clip not in self.known:
            self.known[clip] = self._encoded(clip)
        return self.known[clip]

    def capture(self, record: Record) -> None:
        self.graphs.capture(record, "clip", self._hear_clip)
        self.graphs.capture(record, "window", self._hear_window)

    def _encoded(self, clip: PromptClip) -> Tensor:
        filled = self.mel.filled(clip.samples, clip.windows)
        if clip.windows == 1:
            self.windows += 1
            self._whole = []
            self._samples.copy_(filled)
            self.graphs.run("clip", self._hear_clip)
            return self._rows.clone()
        features = self.mel(filled)
        rows = [self._window(window) for window in features]
        self._whole = list(zip(features[:-1], rows[:-1], strict=True))
        return torch.cat(rows)

    def _window(self, features: Tensor) -> Tensor:
        """Encode a window, unless a shorter clip had the same one."""
        for known, rows in self._whole:
            if torch.equal(known, features):
                return rows
        self.windows += 1
        self._features.copy_(features[None])
        self.graphs.run("window", self._hear_window)
        return self._rows.clone()

    # Operations that are captured: from one fixed tensor to another.

    def _hear_clip(self) -> None:
        self._features.copy_(self.mel(self._samples))
        self._hear_window()

    def _hear_window(self) -> None:
        self._rows.copy_(self.encoder(self._features))
