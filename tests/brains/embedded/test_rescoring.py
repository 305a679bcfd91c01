"""The choice among the recogniser's candidates by which words follow each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from voxtui.brains.embedded.recogniser import Heard
from voxtui.brains.embedded.rescoring import Rescoring


@pytest.fixture(scope="module")
def rescoring() -> Rescoring:
    made = Rescoring()
    made.load()
    return made


def candidates(*texts: str, each: float = 0.5) -> list[Heard]:
    return [Heard(text, score=-each * number) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("heard", "meant"),
    [
        ("What is the capital of Frans?", "What is the capital of France?"),
        ("How many days are there in a weak?", "How many days are there in a week?"),
        ("Is it two late to call?", "Is it too late to call?"),
        ("12345.", "One two three four five."),
        ("Set a timer for fifty minutes.", "Set a timer for 15 minutes."),
    ],
)
def test_the_words_that_people_say_win_where_they_sound_almost_as_likely(
    rescoring: Rescoring, heard: str, meant: str
) -> None:
    assert rescoring.choose(candidates(heard, meant)).text == meant
    assert rescoring.choose(candidates(heard, meant, each=8.0)).text == heard


def test_each_candidate_may_be_chosen(rescoring: Rescoring) -> None:
    meant = "What is the capital of France?"
    others = (
        "What is the cattle of Frans?",
        "What is the kapital of Frans?",
        "Watt is the capital of Frans?",
    )
    assert rescoring.choose(candidates(*others, meant, each=0.1)).text == meant


def test_an_unknown_word_is_unlikely_and_not_impossible(rescoring: Rescoring) -> None:
    heard = candidates("Do you know Vrkljan?", "Do you know verge Ian?", each=6.0)
    assert rescoring.choose(heard).text == "Do you know Vrkljan?"
    assert rescoring.choose(candidates("", "Ω 7")).text in ("", "Ω 7")


def test_the_first_candidate_stands_alone_and_before_the_loading(rescoring: Rescoring) -> None:
    assert rescoring.choose(candidates("weak")).text == "weak"
    assert Rescoring().choose(candidates("a weak", "a week")).text == "a weak"


def test_without_the_trigrams_the_first_candidate_stands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POCKETSPHINX_PATH", str(tmp_path))
    without = Rescoring()
    without.load()
    assert without.choose(candidates("a weak", "a week")).text == "a weak"
