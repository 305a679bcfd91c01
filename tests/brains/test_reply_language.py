"""The language of a brain's answers."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from voxtui.brains.reply_language import ReplyLanguage
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.settings.schema import LANGUAGES


class FakeIdentifier:
    """FakeLanguageIdentifier: knows three first clauses."""

    def __init__(self) -> None:
        self.languages: list[str] = []
        self._known = {"Bonjour !": ("fr", 0.9), "Oui,": ("de", 0.3), "Hello.": ("en", 0.8)}

    def set_languages(self, languages: list[str]) -> None:
        self.languages = languages

    def classify(self, text: str) -> tuple[str, float]:
        return self._known[text]


@pytest.fixture
def identifier(monkeypatch: pytest.MonkeyPatch) -> FakeIdentifier:
    """Install a FakeIdentifier in the place of py3langid."""
    fake = FakeIdentifier()
    module = ModuleType("py3langid.langid")
    module.MODEL_FILE = "model"  # type: ignore[attr-defined]
    module.LanguageIdentifier = SimpleNamespace(  # type: ignore[attr-defined]
        from_model_file=lambda file, norm_probs: fake
    )
    monkeypatch.setitem(sys.modules, "py3langid", ModuleType("py3langid"))
    monkeypatch.setitem(sys.modules, "py3langid.langid", module)
    return fake


def test_a_doubtful_answer_has_the_language_of_the_one_before(identifier: FakeIdentifier) -> None:
    language, timestamps = ReplyLanguage(""), Timestamps()
    language.warm_up()
    beginnings = ("Oui,", "Bonjour !", "Oui,", "Hello.")
    assert [language.of(text, timestamps) for text in beginnings] == ["en", "fr", "fr", "en"]
    assert identifier.languages == list(LANGUAGES)
    assert timestamps.at(Milestone.LANGUAGE) is not None


def test_a_configured_language_is_not_looked_for(identifier: FakeIdentifier) -> None:
    language, timestamps = ReplyLanguage("it"), Timestamps()
    language.warm_up()
    assert language.of("Bonjour !", timestamps) == "it"
    assert timestamps.at(Milestone.LANGUAGE) is None


def test_without_the_detector_every_answer_is_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    language = ReplyLanguage("")
    language.warm_up()
    assert language.of("Bonjour !", Timestamps()) == "en"


@pytest.mark.slow
def test_the_detector_itself_knows_the_languages_of_voxtral() -> None:
    pytest.importorskip("py3langid")
    language = ReplyLanguage("")
    language.warm_up()
    said = {
        "de": "Die Hauptstadt von Frankreich ist Paris.",
        "en": "The capital of France is Paris.",
        "es": "Está a unos setecientos kilómetros.",
        "fr": "C'est à environ sept cents kilomètres.",
        "hi": "आसमान हवा की वजह से नीला है।",
        "it": "Il cielo è blu a causa dell'aria.",
        "nl": "Het is ongeveer zevenhonderd kilometer.",
        "pt": "Você pode ferver por dez minutos.",
    }
    assert {code: language.of(text, Timestamps()) for code, text in said.items()} == {
        code: code for code in said
    }
