"""From sound to embeddings: front end, encoder and projector, each window at most once."""

# torch is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import torch
from torch import Tensor

from voxtui.brains.voxtral.audio_tower import BINS, WINDOW_FRAMES, AudioTower, LogMel
from voxtui.brains.voxtral.graphs import Graphs, Record
from voxtui.brains.voxtral.prompt import WINDOW_SAMPLES, WINDOW_TOKENS, PromptClip


class AudioEmbedder:
    """Encodes clips and caches the result, so that a rebuilt KV cache costs no second encoding."""

    def __init__(self, encoder: AudioTower) -> None:
        self.encoder = encoder
        self.mel = LogMel(encoder.device)
        self.graphs = Graphs()
        self._samples = torch.zeros(WINDOW_SAMPLES, device=encoder.device)
        self._features = torch.zeros(1, BINS, WINDOW_FRAMES, device=encoder.device)
        self._rows = torch.zeros(
            WINDOW_TOKENS, encoder.width, dtype=encoder.dtype, device=encoder.device
        )
        self._known: dict[int, Tensor] = {}
        self._whole: list[tuple[Tensor, Tensor]] = []
        """features and embeddings of the latest clip's windows but the last"""
        self.windows = 0
        """windows encoded so far"""

    def rows(self, clip: PromptClip) -> Tensor:
        """Return the (windows * 375, hidden) embeddings of `clip`."""
        if clip.number not in self._known:
            self._known[clip.number] = self._encoded(clip)
        return self._known[clip.number]

    def part(self, number: int, start: int, end: int) -> Tensor:
        return self._known[number][start:end]

    @property
    def known(self) -> set[int]:
        return set(self._known)

    def forget_all_but(self, numbers: set[int]) -> None:
        self._known = {n: rows for n, rows in self._known.items() if n in numbers}

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
        """Encode a window, unless a shorter clip had an equal one."""
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
