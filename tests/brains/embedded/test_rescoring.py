"""The choice among the recogniser's candidates by a language model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from voxtui.brains.embedded.chat_process import USER, LanguageModel
from voxtui.brains.embedded.recogniser import Heard
from voxtui.brains.embedded.rescoring import CONTEXT_TOKENS, Rescoring
from voxtui.errors import ModelError
from voxtui.models.catalogue import WORD_MODEL
from voxtui.models.installed import model_file


class FakeLanguage:
    """Finds each word as likely as `words` says, and remembers what it was asked."""

    def __init__(self, **words: float) -> None:
        self.words = words
        self.requests: list[tuple[str, str]] = []
        self.error: ModelError | None = None

    def load(self, path: Path) -> None:
        if self.error is not None:
            raise self.error

    def log_probabilities(self, prompt: str, text: str) -> Sequence[float]:
        if self.error is not None:
            raise self.error
        self.requests.append((prompt.removeprefix(USER), text))
        return [self.words.get(word.strip("?."), -1.0) for word in text.split()] + [-0.5]

    def close(self) -> None: ...


def candidates(*texts: str, each: float = 1.0) -> list[Heard]:
    return [Heard(text, score=-each * number) for number, text in enumerate(texts)]


def loaded(model: FakeLanguage) -> Rescoring:
    rescoring = Rescoring(model)
    rescoring.load()
    return rescoring


@pytest.fixture(autouse=True)
def any_file(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "models" not in request.keywords:
        monkeypatch.setattr("voxtui.brains.embedded.rescoring.model_file", Path)


def test_the_word_that_people_say_wins_where_it_sounds_almost_as_likely() -> None:
    rescoring = loaded(FakeLanguage(Sissily=-20.0, Sicily=-10.0))
    heard = candidates("Is Sissily large?", "Is Sicily large?")
    assert rescoring.choose(heard).text == "Is Sicily large?"
    heard = candidates("Is Sissily large?", "Is Sicily large?", each=3.5)
    assert rescoring.choose(heard).text == "Is Sissily large?"


def test_only_what_differs_and_is_new_is_scored_while_an_utterance_grows() -> None:
    language = FakeLanguage()
    rescoring = loaded(language)
    rescoring.choose(candidates("Is it Sicily", "Is it Italy"))
    assert language.requests == [("Is it", " Sicily"), ("Is it", " Italy")]
    language.requests.clear()
    rescoring.choose(candidates("Is it Sicily or not?", "Is it Italy or not?"))
    assert language.requests == [("Is it Sicily", " or not?"), ("Is it Italy", " or not?")]
    language.requests.clear()
    rescoring.choose(candidates("Is it Sicily or not?", "Is it Italy or not?"))
    assert not language.requests


def test_speech_that_is_clear_asks_no_model() -> None:
    language = FakeLanguage()
    assert loaded(language).choose(candidates("Yes.")).text == "Yes."
    assert not language.requests


def test_without_the_model_or_if_it_fails_the_recognisers_order_remains() -> None:
    language = FakeLanguage(two=-50.0)
    language.error = ModelError("No file.")
    heard = candidates("two", "too")
    assert loaded(language).choose(heard).text == "two"
    language.error = None
    rescoring = loaded(language)
    assert rescoring.choose(heard).text == "too"
    language.error = ModelError("The process ended.")
    heard = candidates("two men", "too men")
    assert rescoring.choose(heard).text == "two men"
    language.error = None
    assert rescoring.choose(heard).text == "too men"


@pytest.mark.models
def test_the_runtime_says_how_likely_a_text_is() -> None:
    """Fails if another version of the runtime takes the request differently."""
    with closing(LanguageModel(CONTEXT_TOKENS)) as model:
        model.load(model_file(WORD_MODEL))
        whole = model.log_probabilities(USER, "What is the capital of Italy?")
        tail = model.log_probabilities(f"{USER}What is the capital of", " Italy?")
        invented = model.log_probabilities(f"{USER}What is the capital of", " Ittle?")
        assert model.log_probabilities(f"{USER}Is it Café naïve at 10:30 a.m.?", "")[0] < 0.0
        accents = model.log_probabilities(USER, "Is it Café naïve at 10:30 a.m.?")
    assert len(whole) == 7 and len(accents) == 8
    assert tail == pytest.approx(whole[-2:], abs=0.3)
    assert whole[-2] > invented[0] + 3.0
    assert -12.0 < whole[0] < -1.0 and whole[4] > -0.5  # "of" follows "the capital"
