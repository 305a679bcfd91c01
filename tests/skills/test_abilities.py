"""Answers about what voxtui can do, on sentences committed before the rules."""

from __future__ import annotations

from tests.skills.corpus import FOLDER
from voxtui.settings.schema import BrainConfig, Config
from voxtui.skills.rules.about_itself import about_itself

SAID = {
    "deed": "I can't do that",
    "live": "I can't know that",
    "abilities": "set timers",
    "self": "I'm Vox",
    "none": "",
}


def rows(file: str) -> list[list[str]]:
    return [line.split("\t") for line in (FOLDER / file).read_text().splitlines()]


def test_what_voxtui_cannot_do_or_know_has_a_true_answer_and_nothing_else_is_taken() -> None:
    for kind, words in rows("itself.tsv"):
        told = about_itself(words, "", Config()) or ""
        assert (SAID[kind] in told) and bool(told) == (kind != "none"), words


def test_a_server_and_an_instruction_of_the_users_own_answer_for_themselves() -> None:
    for words in ("What's your name?", "Send an e-mail to Ann.", "What can you do?"):
        assert about_itself(words, "example.org", Config()) is None
        mine = Config(brain=BrainConfig(instruction="You are Marvin."))
        assert about_itself(words, "", mine) is None


def test_a_request_for_words_about_a_thing_is_no_request_for_the_thing() -> None:
    for words in (
        "Get me a pizza recipe.",
        "Get me a song about coffee",
        "Book recommendations for a train",
        "Call my startup something catchy",
        "Can you write letters?",
        "Print this in capitals",
    ):
        assert about_itself(words, "", Config()) is None
    for words in ("Get me a pizza.", "Order a large pizza for two", "Get me a taxi home"):
        assert about_itself(words, "", Config()) == "I can't do that. I can only talk with you."
