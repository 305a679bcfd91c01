"""Answers about the assistant itself."""

from __future__ import annotations

import pytest

from benchmarks.answers import KNOWLEDGE, read
from tests.dialogue.talking import talking
from tests.fakes import ScriptedBrain
from voxtui.dialogue.data import SKILL
from voxtui.dialogue.timestamps import Outcome
from voxtui.settings.schema import Config, SessionConfig, VadConfig
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.skills.rules.about_itself import about_itself


def told(words: str, sends_to: str = "", **vad: bool) -> str:
    return about_itself(words, sends_to, Config(vad=VadConfig(**vad))) or ""


def test_a_kept_conversation_is_admitted() -> None:
    kept = Config(session=SessionConfig(keep=True))
    assert about_itself("Do you record everything I say?", "", kept) == (
        "As you chose, our words are kept in a file until you delete them. "
        "It is never sent anywhere."
    )
    far = about_itself("Am I being recorded?", "gpu:8000", kept)
    assert far == (
        "What you say goes to gpu:8000. Here our words are kept in a file until you delete them."
    )
    assert (about_itself("Will you remember me tomorrow?", "", kept) or "").startswith("Yes, ")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("Are you listening to me all the time?", "talk key"),
        ("Do you hear everything we talk about?", "talk key"),
        ("When exactly can you hear me?", "talk key"),
        ("So, is the microphone always on?", "talk key"),
        ("Do you listen when I don't press the key?", "talk key"),
        ("Do you record everything I say?", "stored only"),
        ("Am I being recorded?", "stored only"),
        ("What do you do with my voice?", "stored only"),
        ("Is our conversation private?", "stored only"),
        ("Does my voice go to some company on the internet?", "Nothing is sent"),
        ("Do you send what I say to a server?", "Nothing is sent"),
        ("Where does my data go?", "Nothing is sent"),
        ("Who else can hear what we talk about?", "Nothing is sent"),
        ("Are you spying on me?", "Nothing is sent"),
        ("Where do you run, on my computer or somewhere else?", "on this computer"),
        ("Do you need the internet to answer me?", "no internet"),
        ("Can you work offline?", "no internet"),
        ("Are you a human being?", "program"),
        ("Am I talking to a machine?", "program"),
        ("Will you remember me tomorrow?", "Only this conversation"),
        ("Do you remember what I told you yesterday?", "Only this conversation"),
    ],
)
def test_a_question_about_itself_has_a_true_answer(words: str, part: str) -> None:
    assert part in told(words)


@pytest.mark.parametrize(
    "words",
    [
        "Can you hear me?",
        "Do whales hear each other?",
        "Who can hear ultrasound?",
        "Do you record songs on a tape or on a disk?",
        "Where do you buy good bread in Berlin, near the station and the river?",
        "Are you hungry?",
        "Are you a fan of jazz?",
        "Is it private property?",
        "Do you need a visa for Japan?",
        "What do you do with leftover rice?",
        "Do you remember my name?",
        "Where is my meeting?",
        "I am Tom. Are you listening to me?",
        "Who reads the news?",
        "",
    ],
)
def test_any_other_question_is_left_to_the_model(words: str) -> None:
    assert told(words) == ""


def test_no_question_of_knowledge_is_taken() -> None:
    asked = [turn.says for name in ("build", "judge") for talk in read(name) for turn in talk.turns
             if talk.topic == KNOWLEDGE]  # fmt: skip
    assert [words for words in asked if told(words)] == []


def test_with_a_server_the_answers_name_it() -> None:
    host = "example.org and 127.0.0.1:8000"
    for words in ("Do you record me?", "Where does my voice go?", "Do you need the internet?"):
        assert host in told(words, host)
        assert "this computer" not in told(words, host)


def test_hands_free_is_not_denied() -> None:
    asked = "Are you always listening?"
    assert told(asked, hands_free=True).endswith("all the time.")


def test_the_answer_is_spoken_without_the_brain_and_names_where_the_words_go(tmp_path) -> None:
    brain = ScriptedBrain(heard="Where does my voice go?")
    brain.sends_to = "example.org"
    with talking(brain, skills=AssistantSkills(tmp_path, rings=False)) as t:
        turn = t.ask()
        assert (turn.brain, turn.outcome) == (SKILL, Outcome.ANSWERED)
        assert turn.reply == "Your voice and your words go to example.org, and nowhere else."
        assert t.voice.clauses[0].startswith("Your voice and your words go")
