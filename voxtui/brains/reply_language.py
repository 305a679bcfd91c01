from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import LANGUAGES

CONFIDENT = 0.5
"""Minimum probability of a change of language. In 96 first clauses of eight languages every mistake
was below 0.2; a single word such as "Oui" or "Claro" is, too."""


class ReplyLanguage:
    """The language of a brain's answers, remembered from one to the next.

    `configured` is `brain.language`. If it is empty, the language of each answer is detected by the
    package py3langid; without it every answer counts as English. Used by one thread at a time.
    """

    def __init__(self, configured: str) -> None:
        self._latest = configured or "en"
        self._configured = bool(configured)
        self._classify: Callable[[str], tuple[str, float]] | None = None

    def warm_up(self) -> None:
        """Load the detector, if it is needed and installed. Takes a second."""
        if self._configured:
            return
        try:
            package: Any = import_module("py3langid.langid")
        except ImportError:
            return
        identifier = package.LanguageIdentifier.from_model_file(package.MODEL_FILE, norm_probs=True)
        identifier.set_languages(list(LANGUAGES))
        self._classify = identifier.classify

    def of(self, beginning: str, timestamps: Timestamps) -> str:
        """Return the language of an answer with this `beginning`. Writes LANGUAGE if it detects.

        Takes less than a millisecond.
        """
        if self._classify is not None:
            language, probability = self._classify(beginning)
            if probability >= CONFIDENT:
                self._latest = language
            timestamps.record(Milestone.LANGUAGE)
        return self._latest
