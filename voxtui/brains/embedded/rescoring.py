"""The choice among the recogniser's candidates, by a small language model as well.

The recogniser knows what a word sounds like, and little of what people say. The weight is from
other clips than those that judge the choice (docs/benchmarks/2026-11-25-ears.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Protocol

from voxtui.brains.embedded.chat_process import USER, LanguageModel, plain
from voxtui.brains.embedded.recogniser import Heard
from voxtui.errors import ModelError
from voxtui.models.catalogue import WORD_MODEL
from voxtui.models.installed import model_file

CONTEXT_TOKENS = 512
"""Room for the words of a pass, which lasts 28 s at most."""

LIVE_CANDIDATES, MOST_CANDIDATES = 2, 3
"""Candidates that are scored in a conversation, and where nobody waits for an answer. The third
takes the chat model's time: the first sound came 17 % later at the median with it, 2 % without."""

LIVE_SECONDS = 0.1
"""Longest time of a choice in a conversation. A slow machine scores some four words in it."""

WORD_SECONDS = 0.02
"""Time to score a word, before it is known."""

WEIGHT = 0.3
"""How much the language model's log-probability counts beside the recogniser's."""


class Language(Protocol):
    """Says how likely words are. See LanguageModel."""

    def load(self, path: Path) -> None: ...

    def log_probabilities(self, prompt: str, text: str) -> Sequence[float]: ...

    def close(self) -> None: ...


class Rescoring:
    """Chooses a candidate. An utterance grows, so it remembers the scores of the words so far.

    It chooses the recogniser's first candidate without the model's file, if the model fails, or
    where `seconds` are too few for the words that are new. Not thread-safe.
    """

    def __init__(
        self,
        most: int = MOST_CANDIDATES,
        seconds: float = inf,
        model: Language | None = None,
    ) -> None:
        self._model = model or LanguageModel(CONTEXT_TOKENS)
        self._most = most
        self._seconds = seconds
        self._word_seconds = WORD_SECONDS
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
        candidates = candidates[: self._most]
        texts = [(*plain(heard.text).split(), "") for heard in candidates]
        shared = sum(
            1 for _ in takewhile(lambda same: len({*same}) == 1, zip(*texts, strict=False))
        )
        beginnings = [[words[:end] for end in range(shared + 1, len(words) + 1)] for words in texts]
        wanted = {beginning for path in beginnings for beginning in path}
        self._scores = {words: score for words, score in self._scores.items() if words in wanted}
        ends_at = time.monotonic() + self._seconds
        try:
            for path in beginnings:
                self._score(path, ends_at)
        except ModelError:
            return candidates[0]
        if len(self._scores) < len(wanted):
            return candidates[0]
        scores = [
            heard.score + WEIGHT * sum(self._scores[beginning] for beginning in path)
            for heard, path in zip(candidates, beginnings, strict=True)
        ]
        return candidates[scores.index(max(scores))]

    def close(self) -> None:
        self._loaded = False
        self._model.close()

    def _score(self, path: Sequence[tuple[str, ...]], ends_at: float) -> None:
        """Add the scores of the beginnings in `path` that are new, as many as time is left for."""
        started = time.monotonic()
        known = sum(1 for _ in takewhile(self._scores.__contains__, path))
        room = min((ends_at - started) / self._word_seconds, len(path))
        new = path[known : known + max(0, int(room))]
        if not new:
            return
        *words, last = new[-1]
        before = len(new[0]) - 1
        text = " ".join(filter(None, [*words[before:], last]))
        scores = self._model.log_probabilities(
            USER + " ".join(words[:before]), f" {text}" if before and text else text
        )
        self._scores.update(zip(new, scores, strict=False))  # without the end, if more is to come
        took = (time.monotonic() - started) / len(new)
        self._word_seconds += (took - self._word_seconds) / 4
