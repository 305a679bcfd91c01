"""How a reply begins, how long it becomes, and how it may not begin."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from voxtui.brains.reply_form import (
    FREE,
    IN_VERSE,
    SPEAKABLE,
    UNTOLD,
    ReplyForm,
    as_read,
    is_untold,
    repeated_subject,
    reply_form,
)
from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import AUDIO_INPUT, PastTurn


@pytest.mark.parametrize(
    ("words", "opening"),
    [
        ("Can you make me a plan for tomorrow?", "First,"),
        ("I don't need a plan for Sunday.", ""),
        ("Is the plan for Sunday alright?", ""),
        ("My son is ill. Tell him a story about a cat.", "Once upon a time,"),
        ("My son can't sleep, tell him a story about a cat.", "Once upon a time,"),
        ("Make up a short story about a whale.", "Once upon a time,"),
        ("How do I clean a window?", "First,"),
        ("Explain step by step how a lock works.", "First,"),
        ("I have two days in Prague. What should I do?", "You could"),
        ("Is a train or a bus better for me?", "I'd choose"),
        ("My uncle has a boat.", ""),
        ("I've just learned how to juggle.", ""),
        ("Show me how to juggle.", "First,"),
        ("What is the plan of the metro called?", ""),
        ("Who wrote this story?", ""),
        ("Hello there!", ""),
    ],
)
def test_the_request_decides_how_the_reply_begins(words: str, opening: str) -> None:
    assert reply_form(words).opening == opening


@pytest.mark.parametrize(
    ("before", "words", "opening"),
    [
        ("Can I freeze bread?", "Why?", "Because"),
        ("Who was Mozart?", "And his sister?", "His sister"),
        ("Where can I eat in Lyon?", "And if it's late?", "If it's late,"),
        ("How do I bake bread?", "What about my oven?", "Your oven"),
        ("Who was Mozart?", "And where was he born?", ""),
    ],
)
def test_words_that_follow_on_an_answer_are_taken_up(before: str, words: str, opening: str) -> None:
    assert reply_form(words, [before]).opening == opening


def test_a_story_that_goes_on_has_its_sentences() -> None:
    assert reply_form("What happens next?", ["Tell me a story about a fox."]).least == 4
    assert reply_form("What happens next?", ["Can I freeze bread?"]).least == 1


@pytest.mark.parametrize(
    "words", ["Write a poem for my mother.", "Tell me a story. " * 20, "How do I build a bomb?"]
)
def test_poems_long_texts_and_hints_at_harm_are_free(words: str) -> None:
    assert reply_form(words) == FREE


def test_only_a_conversation_in_another_script_may_be_answered_in_it() -> None:
    assert r"\u0370-\u1DFF" in reply_form("How do you say hello in Russian?").grammar()
    assert reply_form("Как дела?") == reply_form("And now?", ["Как дела?"]) == FREE


def test_only_a_request_for_a_poem_gets_a_note() -> None:
    assert as_read("Write a poem for my mother.") == f"Write a poem for my mother.\n{IN_VERSE}"
    for words in ("How do I clean a window?", "Give me three words that rhyme with cat."):
        assert as_read(words) == words


def test_a_refusal_and_the_users_own_words_are_avoided() -> None:
    avoided = set(reply_form("Bring me to the sea.").avoided)
    assert {"I'm sorry, but", "Bring me"} <= avoided
    assert "Is my" not in reply_form("Is my train late today?").avoided


def test_what_was_told_may_be_said_as_if_of_the_assistant() -> None:
    assert "My " in reply_form("What is my job?").avoided
    assert "My " in reply_form("What is my job?", ["Who was Mozart?"]).avoided
    assert "My " not in reply_form("What is my job?", ["I work as a baker."]).avoided


def test_a_story_that_goes_on_does_not_begin_with_the_sentence_it_began_with() -> None:
    past, replies = ("Tell me a story.",), ("Once upon a time, a fox was hungry. It ate.",)
    assert replies[0][:34] in reply_form("What happened next?", past, replies).avoided
    assert not any("fox" in text for text in reply_form("Make it funnier.", past, replies).avoided)


def test_a_beginning_that_another_begins_with_bans_both() -> None:
    both = ReplyForm(avoided=("I'm ", "I'm sorry, but")).grammar()
    assert both == ReplyForm(avoided=("I'm ",)).grammar()


def test_a_reply_that_goes_on_later_may_not_complete_a_beginning_that_it_may_not_have() -> None:
    form = ReplyForm(avoided=("I'm sorry, but", "Sure"))
    assert '"b" begun1' in form.grammar("I'm sorry, ")
    assert form.grammar("I'm glad").startswith("root ::= more")


def test_the_rest_of_a_reply_counts_what_it_has_already() -> None:
    form = ReplyForm(least=2, most=3)
    assert form.grammar("").startswith("root ::= [^")
    assert form.grammar("One.").startswith("root ::= tail |")
    assert "tail ::= next{0,0}" in form.grammar("One. Two. Th")
    assert "more ::= body (end tail)?" in form.grammar("One. Tw")
    assert "more ::= body end tail" in form.grammar("On")
    assert FREE.grammar("One.") == SPEAKABLE


def test_a_sentence_follows_on_an_opening_that_is_one() -> None:
    assert ReplyForm("Great!", 2, 3).grammar().startswith("root ::= tail\n")
    assert ReplyForm("Then", 1, 3).grammar().startswith("root ::= more\n")


def test_each_sentence_of_a_story_begins_with_words_that_make_a_plot() -> None:
    form = reply_form("Tell me a story about a fox.")
    begun = form.opening
    for starts in form.starts[1:]:
        first, *others = (f'" {start}"' for start in starts.split("|"))
        assert f"({' | '.join((first, *others))}) body end" in form.grammar(begun)
        begun += f" it was so.{first[1:-1]}"
        assert first not in form.grammar(begun)
    assert "tail ::= next{0,0}" in form.grammar(begun)


def test_the_first_words_of_a_later_sentence_are_completed() -> None:
    form = ReplyForm("Once upon a time,", starts=("", "But one day,"), least=2, most=2)
    assert form.grammar("Once upon a time, it rained. But o").startswith(
        'root ::= ("ne day,") more'
    )
    assert form.grammar("Once upon a time, it rained. Why not?").startswith("root ::= tail")
    assert form.grammar("Once upon a time, it ra").startswith("root ::= more")


def test_no_sign_lets_a_model_evade_the_first_words_of_a_sentence() -> None:
    assert "[0-9," in ReplyForm(starts=("", "But"), least=2, most=2).grammar("It rained. But")


def test_what_was_told_is_answered_by_a_reaction_of_a_list() -> None:
    form = reply_form("My uncle has a boat.")
    assert form.grammar().startswith('root ::= ("I\'m sorry to hear that" | ')
    assert form.grammar("How ni").startswith('root ::= ("ce") more')
    assert form.grammar("How nice that is. D").startswith('root ::= ("o you" | "id") more')
    assert form.grammar("How nice that is. Do you").startswith("root ::= more")


FISHING = tomllib.loads(
    (Path(__file__).parents[1] / "data" / "answers" / "fishing.toml").read_text(encoding="utf-8")
)

CHARACTER = "You are Bruno, the assistant of a hotel in Vienna. Answer in one sentence."


@pytest.mark.parametrize("words", [*FISHING["unknown"], *FISHING["unknown_later"]])
def test_a_fact_about_the_user_that_nobody_told_is_unknown(words: str) -> None:
    assert is_untold(words, ())
    assert is_untold(words, turns("Tell me a joke.", "What is the capital of Peru?"), CHARACTER)


@pytest.mark.parametrize("words", FISHING["elsewhere"])
def test_other_words_about_the_user_are_answered(words: str) -> None:
    assert not is_untold(words, ())


@pytest.mark.parametrize("row", FISHING["told"], ids=lambda row: row["asks"])
def test_what_the_user_told_is_not_unknown(row: dict[str, str]) -> None:
    assert not is_untold(row["asks"], turns(row["says"], "How far is the moon?"))


@pytest.mark.parametrize("row", FISHING["instructed"], ids=lambda row: row["instruction"])
def test_what_an_instruction_tells_is_not_unknown(row: dict[str, str]) -> None:
    assert not is_untold(row["asks"], (), row["instruction"])


def test_what_was_told_of_others_tells_nothing_of_the_one_who_is_asked_about() -> None:
    dogs = turns("I like dogs.")
    assert is_untold("What is my uncle allergic to?", dogs)
    assert is_untold("What is my name?", dogs)
    assert not is_untold("Where do I live?", dogs)
    assert not is_untold("What is my wife's name?", turns("I'm engaged to Helena."))
    assert not is_untold("What is my dog called?", turns("I have a labrador, Rex."))


def test_what_cannot_be_searched_may_have_told_it() -> None:
    attached = PastTurn("A curriculum vitae", "A curriculum vitae", (), attached=True)
    recorded = PastTurn(f"{AUDIO_INPUT}16000 samples, 1.00s]", None, ())
    greeting = PastTurn("", "", (Token("Welcome back, Ines!"),), number=-1)
    for turn in (attached, recorded, greeting):
        assert not is_untold("What is my name?", (turn,))
    assert is_untold("What is my name?", turns("What is my job?", "Do you know my name"))
    assert not is_untold("What did I just say?", turns("Tell me a joke."))


@pytest.mark.parametrize(
    "words",
    [
        "Who cut my hair?",
        "Is my house big?",
        "What colour is my front door?",
        "How long have I been married?",
        "What's the name of my street?",
        "Has my son got a bicycle?",
        "How many rooms does my flat have?",
        "What's in my fridge?",
    ],
)
def test_more_facts_that_nobody_told_are_unknown(words: str) -> None:
    assert is_untold(words, ())


def test_most_questions_of_a_list_that_the_patterns_were_not_made_for_are_unknown() -> None:
    assert sum(is_untold(words, ()) for words in FISHING["unseen"]) >= 32
    assert not [words for words in FISHING["unseen_elsewhere"] if is_untold(words, ())]


@pytest.mark.parametrize(
    "words",
    ["Was I too harsh?", "Who can fix my bike?", "Does my dog dream?", "What do I wear to work?"],
)
def test_advice_and_knowledge_are_not_unknown(words: str) -> None:
    assert not is_untold(words, ())


def test_an_answer_that_nobody_told_says_so() -> None:
    assert UNTOLD.grammar().startswith('root ::= ("I don\'t know, you haven\'t told me" | "You')
    assert UNTOLD.grammar("I don").startswith("root ::= (\"'t know, you haven't told me\") more")
    assert UNTOLD.grammar("You haven't told me your").startswith("root ::= more")


@pytest.mark.parametrize(
    "instruction",
    ["Antworte auf Deutsch.", "Answer in French.", "Begin each answer with Ahoy.", "Write JSON."],
)
def test_an_instruction_on_how_to_answer_holds_alone(instruction: str) -> None:
    assert not is_untold("What is my job?", (), instruction)


def turns(*texts: str) -> tuple[PastTurn, ...]:
    return tuple(PastTurn(text, text, (Token("I see."),)) for text in texts)


def test_the_answer_to_a_question_of_knowledge_begins_with_its_subject_or_by_no_rule() -> None:
    file = Path(__file__).parents[1] / "data/answers/openings.tsv"
    rows = (line for line in file.read_text().splitlines() if not line.startswith("#"))
    found = [(repeated_subject(words), words, allowed) for words, allowed in map(_row, rows)]
    # The verb may already have its preposition.
    wrong = [
        (opening, words)
        for opening, words, allowed in found
        if opening and not re.fullmatch(f"(?:{allowed})(?: in| by)?", opening, re.IGNORECASE)
    ]
    assert not wrong
    assert sum(bool(opening) for opening, *_ in found) >= 50


def _row(line: str) -> tuple[str, str]:
    words, _, allowed = line.partition("\t")
    return words, allowed
