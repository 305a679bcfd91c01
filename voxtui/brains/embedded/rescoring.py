"""Choose among the recogniser's candidates by a language model of word sequences.

The recogniser knows the sound of words, and little of what people say. The numbers and their
sources: docs/decisions/2026-11-26-word-choice.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from voxtui.brains.embedded.recogniser import Heard, same_words

TRIGRAMS = "en-us/en-us.lm.bin"
"""The file of trigrams in the wheel of pocketsphinx, 27 MB."""

LOG_BASE = math.log(1.0001)
"""The base of pocketsphinx's logarithms."""

UNKNOWN = -14.0
"""Log-probability of an unknown word: 2 % of all words, shared by some 20,000."""

WEIGHT = 0.3
"""Weight of the language model's log-probability beside the recogniser's."""


class Rescoring:
    """Chooses a candidate; the recogniser's first one before `load` or without the trigrams.

    Some versions of Python have no wheel with trigrams. Thread-safe.
    """

    def __init__(self) -> None:
        self._model: Any = None

    def load(self) -> None:
        # ValueError: POCKETSPHINX_PATH may name another directory, or the file may be damaged.
        with suppress(ImportError, ValueError):
            pocketsphinx: Any = import_module("pocketsphinx")
            pocketsphinx.set_loglevel("FATAL")
            path = Path(pocketsphinx.get_model_path()) / TRIGRAMS
            self._model = pocketsphinx.NGramModel.readfile(str(path))

    def choose(self, candidates: Sequence[Heard]) -> Heard:
        if len(candidates) == 1 or self._model is None:
            return candidates[0]
        return max(candidates, key=lambda heard: heard.score + WEIGHT * self._score(heard.text))

    def close(self) -> None:
        self._model = None

    def _score(self, text: str) -> float:
        """Return the log-probability of the words of `text`, and of the end after them."""
        words = ["<s>", *same_words(text).split(), "</s>"]
        trigrams = (words[max(0, last - 2) : last + 1] for last in range(1, len(words)))
        return sum(max(self._model.prob(of[::-1]) * LOG_BASE, UNKNOWN) for of in trigrams)
