import json
import wave
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from voxtui.dialogue.data import Utterance
from voxtui.dialogue.events import Captured, SpokenUpTo, TurnFinished, TurnStarted, UserWords
from voxtui.dialogue.timestamps import Outcome, Timestamps, Turn
from voxtui.errors import InputError
from voxtui.storage import saved_session
from voxtui.storage.saved_session import Record

BEGAN = datetime(2026, 3, 4, 5, 6, 7)


def speech(seconds: float = 0.5) -> Utterance:
    return Utterance(np.full(int(16_000 * seconds), 0.25, np.float32), ((0.0, seconds),), 1.0)


def turn(number: int, **fields) -> Turn:
    timestamps = {"released": 0.0, "first_token": 0.084}
    given = {"outcome": Outcome.ANSWERED, "reply": "It is Paris.", **fields}
    return Turn(number, "scripted", timestamps=timestamps, **given)


@pytest.fixture
def record() -> Record:
    record = Record(BEGAN)
    record.take(TurnStarted(1, "microphone", Timestamps()))
    record.take(Captured(1, speech()))
    record.take(UserWords(1, "What is the capital?"))
    record.take(TurnFinished(turn(1, heard="What is the capital?")))
    record.take(TurnStarted(2, "typed", Timestamps()))
    record.take(UserWords(2, "And of Italy?"))
    record.take(SpokenUpTo(2, "It is"))
    record.take(TurnFinished(turn(2, reply="It is Rome.")))
    record.take(TurnStarted(3, "replay", Timestamps()))
    record.take(Captured(3, speech()))
    record.take(TurnFinished(turn(3, heard="What is the capital?", reply="Paris!")))
    record.take(TurnStarted(4, "typed", Timestamps()))
    record.take(UserWords(4, "And of Spain?"))
    record.take(TurnFinished(turn(4, outcome=Outcome.FAILED, reply="Mad", error="Out of memory.")))
    record.take(TurnStarted(5, "microphone", Timestamps()))
    record.take(TurnFinished(turn(5, outcome=Outcome.NO_SPEECH, reply="")))
    record.take(TurnStarted(6, "microphone", Timestamps()))  # it is not over yet
    record.take(Captured(6, speech()))
    return record


def test_a_session_is_saved_as_markdown_json_and_a_wav_per_spoken_turn(record, tmp_path):
    place = record.save(tmp_path / "new" / "sessions")
    assert sorted(file.name for file in place.iterdir()) == [
        "session.json", "session.md", "turn-0001.wav",
    ]  # fmt: skip
    text = (place / "session.md").read_text()
    assert "**You** (microphone, 0.5 s, [sound](turn-0001.wav)): What is the capital?" in text
    assert "**Vox**: It is Paris." in text
    assert "**Vox**: It is ~~Rome.~~" in text
    assert "**You** (replay, 0.5 s): What is the capital?" in text
    assert "**Vox**: (Out of memory.)" in text
    assert "no speech" not in text  # a turn without words leaves no trace
    assert "TTFT 84 ms" in text
    turns = json.loads((place / "session.json").read_text())["turns"]
    question = "What is the capital?"
    assert [t["heard"] for t in turns] == [
        question, "And of Italy?", question, "And of Spain?",
    ]  # fmt: skip
    assert [t["source"] for t in turns[:3]] == ["microphone", "typed", "replay"]
    assert [t["wav"] for t in turns] == ["turn-0001.wav", None, None, None]
    assert turns[1]["heard_reply"] == "It is"
    assert turns[0]["ttft_ms"] == 84.0
    with wave.open(str(place / "turn-0001.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getnframes()) == (16_000, 1, 8000)


def test_saving_twice_keeps_both(record, tmp_path):
    first, second = record.save(tmp_path), record.save(tmp_path)
    assert first.name == "2026-03-04_05-06-07"
    assert second.name == "2026-03-04_05-06-07_2"


def test_a_save_that_fails_leaves_no_file_and_names_the_folder(record, tmp_path, monkeypatch):
    def full(path, sound):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"not saved.*No space left.*Make room"):
        record.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_sentence(record, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not saved"):
        record.save(tmp_path / "file" / "sessions")


def test_the_home_of_an_unknown_user_is_refused_and_no_folder_made(record, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="~nobody-here/voxtui: there is no such user"):
        record.save(saved_session.saved_sessions("~nobody-here/voxtui"))
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_speech_is_dropped_and_its_words_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(saved_session, "KEPT_SPEECH_SECONDS", 1.2)
    record = Record(BEGAN)
    for n in range(1, 5):
        record.take(TurnStarted(n, "microphone", Timestamps()))
        record.take(Captured(n, speech()))
        record.take(TurnFinished(turn(n, heard=f"words {n}")))
    place = record.save(tmp_path)
    assert [file.name for file in sorted(place.glob("*.wav"))] == ["turn-0003.wav", "turn-0004.wav"]
    assert "words 1" in (place / "session.md").read_text()
    record.take(Captured(4, speech(1.5)))
    place = record.save(tmp_path)
    assert [file.name for file in place.glob("*.wav")] == ["turn-0004.wav"]


def test_speech_that_comes_during_a_save_takes_nothing_from_it(tmp_path):
    class Slow(Utterance):
        def as_wav(self) -> bytes:
            record.take(Captured(3, speech(saved_session.KEPT_SPEECH_SECONDS)))
            return super().as_wav()

    record = Record(BEGAN)
    for n in (1, 2):
        record.take(TurnStarted(n, "microphone", Timestamps()))
        record.take(Captured(n, Slow(speech().samples, ((0.0, 0.5),), 1.0)))
        record.take(TurnFinished(turn(n)))
    record.take(TurnStarted(3, "microphone", Timestamps()))
    place = record.save(tmp_path)
    turns = json.loads((place / "session.json").read_text())["turns"]
    assert [t["wav"] for t in turns] == ["turn-0001.wav", "turn-0002.wav"]
    assert sorted(wav.name for wav in place.glob("*.wav")) == [t["wav"] for t in turns]


def test_events_of_an_unknown_turn_are_ignored(tmp_path):
    record = Record(BEGAN)
    record.take(UserWords(9, "x"))
    record.take(SpokenUpTo(9, "x"))
    record.take(Captured(9, speech()))
    record.take(TurnFinished(turn(9)))
    assert record.finished == []


def test_typed_words_and_replies_give_the_terminal_no_command(tmp_path):
    record = Record(BEGAN)
    record.take(TurnStarted(1, "typed", Timestamps()))
    record.take(UserWords(1, "\x1b]0;title\x07Hi \udc80 \u202eeno\u2028two \x9b31m"))
    record.take(TurnFinished(turn(1, reply="\x1b[2JIt is 👩\u200d🚀, שלום\u200f.")))
    folder = record.save(tmp_path)
    for name in ("session.md", "session.json"):
        text = (folder / name).read_text()
        assert not any(c in text for c in "\x1b\x07\x9b\u202e\u2028")
        assert "👩\u200d🚀, שלום\u200f." in text


def test_a_link_with_the_name_of_the_session_is_left_alone(record, tmp_path):
    (tmp_path / "2026-03-04_05-06-07").symlink_to(tmp_path / "elsewhere")
    assert record.save(tmp_path).name == "2026-03-04_05-06-07_2"
    assert not (tmp_path / "elsewhere").exists()
