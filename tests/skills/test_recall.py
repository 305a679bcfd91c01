"""What was said, letter by letter and word for word; and the time elsewhere."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest

from voxtui.dialogue.data import Token, Utterance
from voxtui.dialogue.history.history import History
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import PastTurn, SkillRequest, placeholder
from voxtui.settings.schema import Config, HistoryConfig
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.skills.rules.clock import time_in
from voxtui.skills.rules.understand import understand

SAID = ("My sister is Anna.", "Who wrote Faust?", "I like tea.", "And when?", "Thank you.")


@pytest.fixture
def history() -> History:
    history = History(
        LiveConfig(Config(history=HistoryConfig(max_tokens=40)))
    )  # which drops the first turns
    for number, words in enumerate(SAID, 1):
        reply = f"Reply {number}."
        history.add(PastTurn(words, words, (Token(reply),), number=number), reply)
    return history


def ask(tmp_path, words: str, past=()) -> str | None:
    skills = AssistantSkills(tmp_path, rings=False, now=lambda: datetime(2026, 11, 22, 13, 4))
    answered = skills.answer(SkillRequest(words, past=past))
    return answered and answered.text


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("What did I just say?", "You said: “Thank you.”"),
        ("Do you remember what I just said?", None),
        ("What was the first thing I said?", "First you said: “My sister is Anna.”"),
        ("What did I ask you first?", "First you asked: “Who wrote Faust?”"),
        ("What was my last question?", "You asked: “And when?”"),
        ("Repeat that, please.", "Reply 5."),
        ("Could you say that again?", "Reply 5."),
        ("Sorry, could you repeat that?", "Reply 5."),
        ("What did I ask you at the very beginning?", "First you asked: “Who wrote Faust?”"),
        ("Wie lautete meine erste Frage?", "Zuerst hast du gefragt: „Who wrote Faust?“"),
        ("Wie bitte?", "Reply 5."),
        ("Sag das noch einmal etwas langsamer.", "Reply 5."),
        ("¿Qué fue lo primero que te pregunté?", "Primero preguntaste: «Who wrote Faust?»"),
        ("¿Qué acabas de decir?", "Reply 5."),
        ("Habla más despacio, por favor.", "Reply 5."),
        ("What did you say?", "Reply 5."),
        ("What did I say to Anna?", None),
        ("What did he just say?", None),
        ("Repeat after me.", None),
    ],
)
def test_what_was_said_is_known_word_for_word(tmp_path, history, words, answer):
    assert len(history.past) < len(SAID)
    assert ask(tmp_path, words, (*history.dropped, *history.past)) == answer


def test_nothing_is_recalled_of_an_empty_or_unheard_history(tmp_path):
    sound = Utterance(np.zeros(512, np.float32), (), 0.0)
    unheard = PastTurn(placeholder(sound), None, (Token("Yes."),))
    attached = PastTurn("A text", None, (Token("Read."),), attached=True)
    for words in ("What did I just say?", "What did I ask you first?", "Repeat that."):
        for past in ((), (attached,)):
            assert ask(tmp_path, words, past) == "Nothing has been said yet."
    assert ask(tmp_path, "Was habe ich gerade gesagt?", ()) == "Bisher wurde nichts gesagt."
    for words in ("What did I just say?", "What did I ask you first?"):
        assert ask(tmp_path, words, (unheard,)) is None
    assert ask(tmp_path, "Repeat that.", (unheard,)) == "Yes."


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("How do you spell necessary?", "necessary: N, E, C, E, S, S, A, R, Y."),
        ("Can you spell Zürich for me?", "Zürich: Z, Ü, R, I, C, H."),
        ("Spell twelve.", "twelve: T, W, E, L, V, E."),
        ("How is rhythm spelled?", "rhythm: R, H, Y, T, H, M."),
        ("How many letters are in strawberry?", "“strawberry” has 10 letters."),
        ("How many letters does the word queue have?", "“queue” has 5 letters."),
        ("Kannst du Tisch buchstabieren?", "Tisch: T, I, S, C, H."),
        ("Aus wie vielen Buchstaben besteht Tisch?", "„Tisch“ hat 5 Buchstaben."),
        ("¿Cuántas letras hay en la palabra mesa?", "«mesa» tiene 4 letras."),
        ("How many r's are in strawberry?", "R is in “strawberry” 3 times."),
        ("How do you spell that?", None),
        ("How do you spell my name?", None),
        ("How many letters are in the alphabet?", None),
        ("How many letters are in English?", None),
        ("How many letters did you send?", None),
    ],
)
def test_a_word_is_spelled_and_counted(tmp_path, words, answer):
    assert ask(tmp_path, words) == answer


@pytest.mark.parametrize(
    ("place", "there"),
    [
        ("Tokyo", "2026-07-01 21:00"),
        ("the eastern time zone", "2026-07-01 08:00"),
        ("pacific time", "2026-07-01 05:00"),
        ("France", "2026-07-01 14:00"),
        ("eastern standard time", None),  # it is summer there
        ("Georgia", None),  # a country and a state
        ("Samoa", "2026-07-02 01:00"),
        ("American Samoa", "2026-07-01 01:00"),
        ("the UK", "2026-07-01 13:00"),
        ("Korea", "2026-07-01 21:00"),
        ("Trinidad and Tobago", "2026-07-01 08:00"),
        ("Port-au-Prince", "2026-07-01 08:00"),
        ("San Juan", None),  # in Puerto Rico, not in Argentina, for most people
        ("Petersburg", None),  # in Russia, not in Indiana
        ("Norfolk", None),
        ("the Congo", None),  # two countries
        ("Davis", None),  # in California, not in Antarctica
        ("the United States", None),
        ("Russia", None),
        ("the movie", None),
        ("Paris Texas", None),
    ],
)
def test_the_time_in_a_place_is_right_or_unknown(place, there):
    now = datetime.fromisoformat("2026-07-01T12:00:00+00:00")
    found = time_in(place, now)
    assert (found and f"{found:%Y-%m-%d %H:%M}") == there


@pytest.mark.parametrize(
    ("before", "question", "known"),
    [
        ((), "What's my name?", False),
        (("Hello.",), "Where do I live?", False),
        (("Hello.",), "What did I plan for today?", False),
        (("I went swimming.",), "What did I do yesterday?", True),
        (("What is my name?",), "And where do I live?", False),
        (("I'm Lena.",), "What is my name?", True),
        (("Call me Paul.",), "What is my name?", True),
        (("Our house is in Graz.",), "Where do I live?", True),
        (("One.", "Two.", "Three."), "What is my name?", True),  # more may have been dropped
        ((), "What is your name?", True),
        ((), "Who am I speaking to?", True),
        ((), "What is my name in Greek letters?", True),
    ],
)
def test_what_nobody_told_is_said_to_be_unknown(
    before: tuple[str, ...], question: str, known: bool
) -> None:
    past = tuple(PastTurn(text, text, (Token("I see."),)) for text in before)
    meaning = understand(question, datetime(2026, 11, 24, 12, 0), past)
    assert (meaning is None) == known
