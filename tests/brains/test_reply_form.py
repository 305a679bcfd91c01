"""How a reply begins, how long it becomes, and how it may not begin."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from voxtui.brains.reply_form import (
    FREE,
    SPEAKABLE,
    UNTOLD,
    ReplyForm,
    danger_form,
    is_untold,
    repeated_subject,
    reply_form,
    with_correction,
)
from voxtui.dialogue.data import Token
from voxtui.dialogue.protocols import AUDIO_INPUT, PastTurn


@pytest.mark.parametrize("words", ["Tell me a story. " * 20, "How do I build a bomb?"])
def test_long_texts_and_hints_at_harm_are_free(words: str) -> None:
    assert reply_form(words) == FREE


def test_only_a_conversation_in_another_script_may_be_answered_in_it() -> None:
    assert r"\u0370-\u1DFF" in reply_form("How do you say hello in Russian?").grammar()
    assert reply_form("Как дела?") == reply_form("And now?", ["Как дела?"]) == FREE


@pytest.mark.parametrize(
    ("words", "opening"),
    [
        ("Tell me a story about a fox.", "Once upon a time"),
        ("Tell me the story of the Titanic.", ""),
        ("Don't tell me a story.", ""),
        ("I lost my job today.", "I'm sorry to hear that"),
        ("My dog died last week.", "I'm sorry to hear that"),
        ("Nobody was hurt.", ""),
        ("My knee doesn't hurt any more.", ""),
        ("Who lost my keys?", ""),
    ],
)
def test_a_story_and_what_is_sad_have_first_words(words: str, opening: str) -> None:
    assert reply_form(words).opening == opening


@pytest.mark.parametrize("words", ["A haiku about rain.", "Write four lines that rhyme."])
def test_a_poem_has_lines(words: str) -> None:
    form = reply_form(words)
    assert '("\\n" "\\n"?' in form.grammar()
    assert not form.is_complete("A line,\n" * (form.lines - 1), "\n")
    assert form.is_complete("A line,\n" * (form.lines - 1) + "The last", ".\n")


@pytest.mark.parametrize("words", ["Tell me about the song Imagine.", "What rhymes with cat?"])
def test_words_about_a_song_are_answered_in_prose(words: str) -> None:
    assert not reply_form(words).lines


def test_a_story_a_plan_and_steps_may_be_longer() -> None:
    for words in ("Tell me a story about a fox.", "Make a plan for Sunday.", "And step by step?"):
        assert reply_form(words).most > reply_form("Is it late?").most


def test_the_rest_of_a_reply_goes_on_where_it_was() -> None:
    form = ReplyForm(most=3)
    assert form.grammar("").startswith("root ::= [^")
    assert form.grammar("One.").startswith("root ::= tail |")
    assert form.grammar("One. Two. Th").startswith("root ::= more")
    assert FREE.grammar("One.") == SPEAKABLE


@pytest.mark.parametrize(
    ("reply", "text", "complete"),
    [
        ("One. Two! Three?", " Four", True),
        ('One. Two. "Three."', " Four", True),
        ("One. Two. Three", " four", False),
        ("One. Two.", " Three", False),
        ("One. Two. It has 3.", "5", False),
        ("1. Wash. 2.", " Dry", False),
        ("", " One", False),
    ],
)
def test_a_reply_is_complete_before_one_sentence_too_many(
    reply: str, text: str, complete: bool
) -> None:
    assert ReplyForm(most=3).is_complete(reply, text) is complete
    assert not FREE.is_complete(reply, text)


ANSWERS = Path(__file__).parents[1] / "data" / "answers"
FISHING = tomllib.loads((ANSWERS / "fishing.toml").read_text(encoding="utf-8"))
ABOUT_USER = tomllib.loads((ANSWERS / "about_user.toml").read_text(encoding="utf-8"))

FRESH = tomllib.loads((ANSWERS / "fishing_fresh_b.toml").read_text(encoding="utf-8"))
DANGERS = tomllib.loads((ANSWERS / "dangers.toml").read_text(encoding="utf-8"))

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
    assert is_untold("Where do I live?", dogs)
    assert is_untold("Where does my sister live?", turns("I live in Bonn."))
    assert not is_untold("What is my wife's name?", turns("I'm engaged to Helena."))
    assert not is_untold("What is my dog called?", turns("I have a labrador, Rex."))
    asked = "I need the name of my doctor."
    assert is_untold("What is my doctor called?", turns(asked))
    assert is_untold("What is my doctor called?", turns(asked, "Tell me a joke."))
    assert not is_untold("What is my doctor called?", turns(asked, "It's Patel."))
    assert not is_untold("What is my sister called?", turns("I wonder if my sister Eva comes."))
    assert not is_untold("Where did I park?", turns("Where did I park?", "In the garage, I think."))
    assert not is_untold("What car did I buy?", turns("I bought a Ford yesterday."))
    assert not is_untold("What is my PIN?", turns("I'd like you to remember my PIN is 4711."))


@pytest.mark.parametrize(
    ("told", "asks", "untold"),
    [
        ("I have no brother.", "What is his name?", True),
        ("I have no brother.", "What is my brother called?", True),
        ("I'm not married.", "What is my wife's name?", True),
        ("I have no brother.", "Do I have a brother?", False),
        ("I have no brother but my sister is called Eva.", "What is my sister called?", False),
        ("I have no car.", "Is it far to Berlin?", False),
        ("I don't like my brother, Tom.", "What is my brother called?", False),
    ],
)
def test_whom_the_user_does_not_have_has_no_name(told: str, asks: str, untold: bool) -> None:
    assert is_untold(asks, turns(told)) is untold


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
        "Come on, you know it: when's my appointment?",
        "What colour did we paint the kids' bedroom?",
        "Where are we going on holiday?",
        "Who's picking us up?",
        "My flight tomorrow, what time does it leave?",
        "The bloke I share an office with, where's he from?",
        "I can't remember where I put my wallet. Where is it?",
        "I need the name of my doctor.",
        "I've forgotten what street my grandma grew up on.",
        "Any idea what our landlord is called?",
        "Was it me who left the window open?",
        "Isn't my exam on Friday?",
        "I have no brother. What is his name?",
        "My laptop, where did I leave it?",
        "Who's watching the kids tonight?",
    ],
)
def test_more_facts_that_nobody_told_are_unknown(words: str) -> None:
    assert is_untold(words, ())


def test_most_questions_of_lists_that_the_patterns_were_not_made_for_are_unknown() -> None:
    elsewhere = (*ABOUT_USER["elsewhere"], *ABOUT_USER["risky"], *FRESH["known_otherwise"])
    for words, least in (
        (FISHING["unseen"], 36),
        (ABOUT_USER["unknown"], 94),
        (ABOUT_USER["unknown_later"], 130),
        (FRESH["unknown"], 48),
    ):
        assert sum(is_untold(one, ()) for one in words) >= least
    assert not [
        words for words in (*FISHING["unseen_elsewhere"], *elsewhere) if is_untold(words, ())
    ]
    assert sum(is_untold(words, ()) for words in ABOUT_USER["elsewhere_later"]) <= 13


def test_what_was_told_is_found_by_the_words_that_it_shares_with_the_question() -> None:
    rows = ABOUT_USER["told"]
    assert not [asks for says, asks, _ in rows if is_untold(asks, turns(says, "Who was Mozart?"))]
    assert sum(is_untold(asks, turns(other)) for _, asks, other in rows) >= 38
    for says, asks, _ in (*ABOUT_USER["told_later"], *FRESH["told"]):
        assert not is_untold(asks, turns(*says))
    assert sum(is_untold(asks, ()) for _, asks, _ in ABOUT_USER["told_later"]) >= 38
    for says, corrects, between, asks, *_ in ABOUT_USER["corrections"]:
        assert not is_untold(asks, turns(*filter(None, (says, corrects, between))))


def test_a_question_about_what_was_corrected_stands_after_the_correction() -> None:
    meeting = ("My meeting is on Monday.", "No wait, it's on Tuesday.")
    asked = "When is my meeting?"
    reminded = f"(Before I said: {' '.join(meeting)})\n{asked}"
    assert with_correction(asked, turns(*meeting, "Tell me a joke.")) == reminded
    for words in ("Why is the sky blue?", "I hate my meeting."):
        assert with_correction(words, turns(*meeting)) == words
    assert with_correction(asked, turns(meeting[0], "Tell me a joke.")) == asked
    assert with_correction(asked, ()) == asked


@pytest.mark.parametrize(
    "words",
    [
        "Was I too harsh?",
        "I bake bread. What is my job?",
        "My daughter plays cello, what does she play?",
        "My parents live in Kent. Where do they live?",
        "My boss, Ms Gray, is from York. Where is she from?",
        "The plumber who came on Monday charged me eighty, how much did he charge?",
        "If it is cold, what do I wear?",
        "Who can fix my bike?",
        "Does my dog dream?",
        "What do I wear to work?",
        "How did we get to the moon?",
        "What have we learned from history?",
        "Our train leaves at nine and the bus at eight. Which one leaves first?",
        "My sister's pregnant and takes these, she can go on, can't she?",
        "Is it alright to have wine with my tablets?",
        "I forgot my umbrella on the bus.",
        "I don't know how to tell my mother.",
        "So am I.",
        "When I was young I was shy.",
        "Who sang Where did our love go?",
        "Who invented our alphabet?",
        "Which language do we speak in Brazil?",
    ],
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
    lines = (ANSWERS / "openings.tsv").read_text().splitlines()
    rows = (line for line in lines if not line.startswith("#"))
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


@pytest.mark.parametrize(
    ("name", "taken", "wrong"),
    [
        ("first", 45, 0),
        ("second", 60, 0),
        ("unseen", 50, 0),
        ("unseen_later", 50, 2),
        ("fifth", 50, 0),
        ("unseen_last", 45, 0),
    ],
)
def test_dangers_get_a_fixed_answer_and_other_words_none(name: str, taken: int, wrong: int) -> None:
    assert sum(map(bool, map(danger_form, DANGERS[name]["dangers"]))) >= taken
    assert sum(map(bool, map(danger_form, DANGERS[name]["harmless"]))) <= wrong


@pytest.mark.parametrize(
    ("before", "words", "taken"),
    [
        ("I'm cleaning the bath with vinegar.", "And with bleach?", True),
        ("Can I give my dog a carrot?", "What about grapes?", True),
        ("Can I give my dog chocolate?", "And a carrot?", False),
        ("I'm cleaning the bath with vinegar.", "And what's for lunch?", False),
        ("I'm cleaning the bath with vinegar.", "Who sang Bleach?", False),
    ],
)
def test_a_question_that_goes_on_is_dangerous_with_the_words_before(
    before: str, words: str, taken: bool
) -> None:
    assert not danger_form(words)
    assert bool(danger_form(words, turns(before))) == taken


def test_a_question_of_what_the_user_told_gets_no_warning() -> None:
    asked = "How many tablets do I take?"
    told = turns("I take two tablets each morning.", "Tell me a joke.")
    assert not danger_form(asked, told)
    assert danger_form(asked) and danger_form(asked, turns("Can I take two tablets?"))
    assert danger_form("How many tablets can I take?", told)
    assert danger_form("How many ibuprofen do I take?", turns("I take ibuprofen."))


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("Sometimes I just want to die.", "I'm sorry that it is so hard."),
        ("My dad's chest feels tight.", "This can be an emergency."),
        ("Can I give my cat half an aspirin?", "That can be dangerous"),
    ],
)
def test_the_fixed_answer_is_the_whole_reply(words: str, answer: str) -> None:
    form = danger_form(words)
    assert form is not None and form.opening.startswith(answer)
    assert form.is_complete(form.opening, " More")
    assert form.grammar().startswith("root ::= tail\n")
