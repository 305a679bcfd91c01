"""The conversation in a file: what is written, read again, deleted and refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.dialogue.talking import talking
from tests.fakes import ScriptedBrain
from voxtui.dialogue.commands import SendText
from voxtui.dialogue.data import Token
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import Past, PastTurn
from voxtui.storage.saved_conversation import SavedConversation

DATE = "(It is Sunday, 22 November 2026, 12:04.)"
TURN = PastTurn("I am Ann.", "I am Ann.", (Token("Hello"), Token(", Ann.")), number=3, clock=DATE)
GIVEN = Attachment("notes.txt", "Milk\nBread").as_turn()


def texts(past: Past) -> list[tuple[str, str, str, bool]]:
    return [(turn.user_text, turn.reply_text, turn.clock, turn.attached) for turn in past]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversation.json"


def kept(file: Path, past: Past, said: list[str] | None = None) -> Past:
    """Run a voxtui that keeps `past` at its end. Return what it found at its start."""
    conversation = SavedConversation(file, (said if said is not None else []).append)
    found = conversation.begin()
    conversation.store((TURN,) * 5)
    conversation.store(past)
    conversation.close()
    assert not conversation.is_open
    return found


def test_a_conversation_goes_on_in_the_next_voxtui(file: Path) -> None:
    assert kept(file, (TURN, GIVEN)) == ()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = kept(file, (TURN,))
    assert texts(found) == texts((TURN, GIVEN))
    assert {turn.number for turn in found} == {0}
    brain = ScriptedBrain()
    with talking(brain, kept=found) as talk:
        talk.engine.post(SendText("Who am I?"))
        talk.turn()
        assert texts(brain.pasts[0]) == texts((TURN, GIVEN))
        assert texts(talk.engine.past)[2] == ("Who am I?", "Yes.", "", False)
        assert texts(brain.read_pasts[0][0]) == texts((TURN, GIVEN))  # before the first turn


def test_an_empty_conversation_has_no_file(file: Path) -> None:
    kept(file, (TURN,))
    kept(file, ())
    assert not file.exists()
    assert kept(file, ()) == ()


def test_the_second_of_two_voxtui_keeps_nothing(file: Path) -> None:
    said: list[str] = []
    first, second = (SavedConversation(file, said.append) for _ in range(2))
    first.begin()
    assert second.begin() == ()
    assert said == ["This conversation is not kept, because another voxtui keeps its own."]
    second.store((TURN,))
    second.close()
    assert not second.is_open
    first.store((TURN, TURN))
    first.close()
    assert len(kept(file, ())) == 2


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"you": 1}]', b"\xff", b'[{"you": "x'])
def test_a_damaged_file_is_put_aside(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    said: list[str] = []
    assert kept(file, (TURN,), said) == ()
    assert said == [f"{file} is no conversation that voxtui wrote. It is now conversation.damaged."]
    assert file.with_suffix(".damaged").read_bytes() == content
    assert len(kept(file, ())) == 1


def test_a_file_that_cannot_be_written_is_said_once(file: Path) -> None:
    said: list[str] = []
    conversation = SavedConversation(file, said.append)
    conversation.begin()
    file.mkdir()
    conversation.store((TURN,))
    conversation.close()
    assert len(said) == 1
    assert said[0].startswith(f"This conversation is not kept: {file}: Is a directory")


def test_control_characters_of_a_file_reach_no_terminal(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('[{"you": "a\\u001b[2Jb", "vox": "c\\u0007d e"}]')
    (turn,) = kept(file, ())
    assert (turn.user_text, turn.reply_text) == ("a[2Jb", "cd e")
