"""The choice among the recogniser's candidates, by a small language model as well.

The recogniser knows what a word sounds like, and little of what people say. The weight is from
other clips than those that judge the choice (docs/benchmarks/2026-11-25-ears.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from voxtui.brains.embedded.chat_process import USER, LanguageModel, plain
from voxtui.brains.embedded.recogniser import Heard
from voxtui.errors import ModelError
from voxtui.models.catalogue import WORD_MODEL
from voxtui.models.installed import model_file

CONTEXT_TOKENS = 512
"""Room for the words of a pass, which lasts 28 s at most."""

MOST_CANDIDATES = 3
"""Candidates that are scored: the most of 1 to 5 that got more words right in the recordings of
people which decided it (docs/benchmarks/2026-11-25-ears.md)."""

WEIGHT = 0.3
"""How much the language model's log-probability counts beside the recogniser's."""


class Language(Protocol):
    """Says how likely words are. See LanguageModel."""

    def load(self, path: Path) -> None: ...

    def log_probabilities(self, prompt: str, text: str) -> Sequence[float]: ...

    def close(self) -> None: ...


class Rescoring:
    """Chooses a candidate. An utterance grows, so it remembers the scores of the words so far.

    Without the model's file, or if the model fails, it chooses the recogniser's first candidate.
    Not thread-safe.
    """

    def __init__(self, model: Language | None = None) -> None:
        self._model = model or LanguageModel(CONTEXT_TOKENS)
        self._loaded = False
        self._scores: dict[tuple[str, ...], float] = {}
        """the log-probability of the last word of each beginning, where the end is an empty word"""

    def load(self) -> None:
        with suppress(ModelError):
            self._model.load(model_file(WORD_MODEL))
            self._loaded = True

    def choose(self, candidates: Sequence[Heard]) -> Heard:
        if len(candidates) == 1 or not self._loaded:
            return candidates[0]
        candidates = candidates[:MOST_CANDIDATES]
        texts = [(*plain(heard.text).split(), "") for heard in candidates]
        shared = sum(
            1 for _ in takewhile(lambda same: len({*same}) == 1, zip(*texts, strict=False))
        )
        known, self._scores = self._scores, {}
        try:
            scores = [
                heard.score + WEIGHT * self._log_probability(words, shared, known)
                for heard, words in zip(candidates, texts, strict=True)
            ]
        except ModelError:
            return candidates[0]
        return candidates[scores.index(max(scores))]

    def close(self) -> None:
        self._loaded = False
        self._model.close()

    def _log_probability(
        self, words: tuple[str, ...], shared: int, known: dict[tuple[str, ...], float]
    ) -> float:
        """Return the log-probability of the `words` after the first `shared` ones."""
        beginnings = [words[: end + 1] for end in range(shared, len(words))]
        first = next((len(b) - 1 for b in beginnings if b not in known), None)
        if first is not None:
            text = " ".join(words[first:-1])
            new = self._model.log_probabilities(
                USER + " ".join(words[:first]), f" {text}" if first and text else text
            )
            known.update(zip(beginnings[first - shared :], new, strict=True))
        self._scores.update((b, known[b]) for b in beginnings)
        return sum(known[b] for b in beginnings)
