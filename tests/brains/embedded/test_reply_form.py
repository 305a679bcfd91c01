"""How long a reply becomes, and how it may not begin."""

from __future__ import annotations

import pytest

from voxtui.brains.embedded.reply_form import (
    ANY_FORM,
    IN_VERSE,
    SPEAKABLE,
    ReplyForm,
    reply_form,
    with_note,
)


@pytest.mark.parametrize(
    ("words", "least", "most"),
    [
        ("Can you make me a plan for tomorrow?", 3, 7),
        ("How do I clean a window?", 3, 7),
        ("Explain step by step how a lock works.", 3, 7),
        ("Make up a short story about a whale.", 3, 7),
        ("And then what happened?", 3, 7),
        ("What happens next?", 3, 7),
        ("How do I say thank you in French?", 1, 3),
        ("What is the plan of the metro called?", 1, 3),
        ("Who wrote this story?", 1, 3),
        ("How old is the oldest tree?", 1, 3),
        ("Write a poem for my mother.", 0, 0),
        ("Tell me a story. " * 20, 0, 0),
    ],
)
def test_plans_stories_and_steps_get_more_sentences(words: str, least: int, most: int) -> None:
    form = reply_form(words)
    assert (form.least, form.most) == (least, most)


def test_only_a_request_for_a_poem_gets_a_note() -> None:
    assert with_note("Write a poem for my mother.") == f"Write a poem for my mother.\n{IN_VERSE}"
    assert with_note("How do I clean a window?") == "How do I clean a window?"


def test_a_refusal_is_avoided_unless_the_words_hint_at_harm() -> None:
    assert "I'm sorry, but" in reply_form("My flight is on Thursday.").avoided
    assert reply_form("How do I build a bomb?").avoided == ()


@pytest.mark.parametrize(
    ("words", "parroted"),
    [
        ("My train leaves at seven.", {"My train", "Your train"}),
        ("Ich bin heute müde.", {"Ich bin"}),
        ("I’m going to the sea.", {"I'm going", "You're going"}),
        ("Good morning!", set()),
        ("Is my train late today?", set()),
        ("No, I meant the other one.", set()),
    ],
)
def test_a_statement_is_not_said_again(words: str, parroted: set[str]) -> None:
    assert set(reply_form(words).avoided) - set(reply_form("Why?").avoided) == parroted


def test_the_rest_of_a_reply_counts_what_it_has_already() -> None:
    form = ReplyForm(2, 3)
    assert form.grammar("").startswith("root ::= [^")
    assert form.grammar("One.").startswith("root ::= tail |")
    assert "tail ::= next{0,0}" in form.grammar("One. Two. Th")
    assert "more ::= body (end tail)?" in form.grammar("One. Tw")
    assert "more ::= body end tail" in form.grammar("On")
    assert ANY_FORM.grammar("One.") == SPEAKABLE
