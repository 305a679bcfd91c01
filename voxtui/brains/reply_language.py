"""Find out in which language a brain answers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import LANGUAGES

CONFIDENT = 0.5
"""Probability below which an answer has the language of the one before. In 96 first clauses of
eight languages every mistake was below 0.2; a single word such as "Oui" or "Claro" is, too."""


class ReplyLanguage:
    """The language of a brain's answers, kept from one to the next.

    `configured` is `brain.language`; if it is empty, the words of each answer tell. That needs the
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
        """Return the language of an answer with this `beginning`. Writes LANGUAGE if it looks.

        Takes less than a millisecond.
        """
        if self._classify is not None:
            language, probability = self._classify(beginning)
            if probability >= CONFIDENT:
                self._latest = language
            timestamps.record(Milestone.LANGUAGE)
        return self._latest
