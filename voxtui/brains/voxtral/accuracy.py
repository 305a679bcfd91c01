"""Check that changed weights still hear what the model's own weights hear."""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from voxtui.brains.voxtral.decoder import Cache, Decoder
from voxtui.brains.voxtral.embedder import AudioEmbedder
from voxtui.brains.voxtral.fp8 import HINT
from voxtui.brains.voxtral.generate import ReplyGenerator
from voxtui.brains.voxtral.prompt import (
    AUDIO,
    EOS,
    Clip,
    token_ids,
    transcription,
    without_trailing_zeros,
)
from voxtui.brains.voxtral.sampling import Sampler
from voxtui.errors import ModelError

AGREEMENT = 0.95
"""Least share of the tokens of the transcripts that must stay the likeliest ones."""

CLIPS = Path(__file__).parents[2] / "data" / "clips"

TRANSCRIPT_TOKENS, CAPACITY = 64, 1024
"""of a packaged clip"""


class AccuracyCheck:
    """Compare the weights of a decoder with what they were, on transcripts of packaged clips.

    Made before the weights change. Each position of a transcript is computed with the words before
    it as they were, so that one other word does not change all later ones.
    """

    def __init__(self, decoder: Decoder, embedder: AudioEmbedder) -> None:
        self._heard: list[tuple[list[int], Tensor, int]] = []
        """token ids, the rows of the sound, and where the transcript begins"""
        sampler = Sampler(decoder.head.shape[0], EOS, decoder.embedding.device)
        loop = ReplyGenerator(decoder, embedder, sampler, CAPACITY)
        for clip in packaged_clips():
            prompt = transcription(lambda text: [], clip, None)
            written = [
                token
                for token in loop.reply(prompt, [clip], TRANSCRIPT_TOKENS)
                if token is not None
            ]
            with torch.inference_mode():
                rows = embedder.rows(clip).clone()
            embedder.forget_all_but(set())
            self._heard.append(([*token_ids(prompt), *written], rows, len(prompt)))
        self._before = self._likeliest(decoder)

    def agreement(self, decoder: Decoder) -> float:
        """Return the share of positions whose likeliest token is still the same."""
        pairs = [
            before == after
            for before, after in zip(self._before, self._likeliest(decoder), strict=True)
        ]
        return sum(pairs) / len(pairs)

    def verify(self, decoder: Decoder) -> None:
        """Raise ModelError if too many tokens differ."""
        if (share := self.agreement(decoder)) < AGREEMENT:
            raise ModelError(
                f"With fp8 weights {1 - share:.0%} of the words of a test differ from the model's "
                f"own; {1 - AGREEMENT:.0%} may.",
                HINT,
            )

    def _likeliest(self, decoder: Decoder) -> list[int]:
        return [
            token
            for ids, rows, start in self._heard
            for token in logits(decoder, ids, rows)[start - 1 :].argmax(-1).tolist()
        ]


def logits(decoder: Decoder, ids: Sequence[int], heard: Tensor | None = None) -> Tensor:
    """Return (n, vocabulary) float32 for each of `ids`; `heard` replaces the audio tokens."""
    device = decoder.embedding.device
    with torch.inference_mode():
        tokens = torch.tensor(ids, device=device)
        x = decoder.embed(tokens)
        if heard is not None:
            x[tokens == AUDIO] = heard
        positions = torch.arange(len(ids), device=device)
        hidden = decoder.run(x, positions, Cache(decoder, len(ids)), len(ids), masked=True)
        return torch.cat([decoder.logits(part).float() for part in hidden.split(64)])


def packaged_clips() -> list[Clip]:
    """Return the questions in `data/clips` that the standard library can read."""
    found: list[Clip] = []
    for number, path in enumerate(sorted(CLIPS.glob("*.wav"))):
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        sound = samples.astype(np.float32) / np.float32(32_768)
        found.append(Clip(number, without_trailing_zeros(sound)))
    return found
