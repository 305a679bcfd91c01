"""What was said, as embeddings: front end, encoder and projector, each window at most once."""

# torch and transformers are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from voxtui.brains.voxtral.mel import LogMel
from voxtui.brains.voxtral.prompt import WINDOW_TOKENS, Clip

if TYPE_CHECKING:
    from transformers import VoxtralForConditionalGeneration


class Ears:
    """Encodes clips and remembers them: a rebuilt cache costs no second encoding."""

    def __init__(self, model: VoxtralForConditionalGeneration) -> None:
        self._model: Any = model.model
        self.mel = LogMel(model.device)
        self._known: dict[int, Tensor] = {}
        self._whole: list[tuple[Tensor, Tensor]] = []
        """features and embeddings of the latest clip's windows but the last"""
        self.windows = 0
        """how many windows were encoded so far"""

    def rows(self, clip: Clip) -> Tensor:
        """(windows * 375, hidden) embeddings of `clip`."""
        if clip.number not in self._known:
            self._known[clip.number] = self._encoded(clip)
        return self._known[clip.number]

    def part(self, number: int, start: int, end: int) -> Tensor:
        """Rows of a clip that was encoded before."""
        return self._known[number][start:end]

    @property
    def known(self) -> set[int]:
        """The clips that are remembered."""
        return set(self._known)

    def forget_all_but(self, numbers: set[int]) -> None:
        self._known = {n: rows for n, rows in self._known.items() if n in numbers}

    def _encoded(self, clip: Clip) -> Tensor:
        features = self.mel(self.mel.filled(clip.samples, clip.windows))
        rows = [self._window(window) for window in features]
        self._whole = list(zip(features[:-1], rows[:-1], strict=True))
        return torch.cat(rows)

    def _window(self, features: Tensor) -> Tensor:
        """A window that sounds the same as in a shorter clip is not encoded again."""
        for known, rows in self._whole:
            if torch.equal(known, features):
                return rows
        self.windows += 1
        rows = self._model.get_audio_features(features[None], return_dict=True).pooler_output
        assert rows.shape[0] == WINDOW_TOKENS
        return rows
