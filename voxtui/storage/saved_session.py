"""Hold the session in memory, and write it to disk when the user saves it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from voxtui.dialogue.data import REPLAY, Utterance
from voxtui.dialogue.events import Captured, Event, SpokenUpTo, TurnFinished, TurnStarted, UserWords
from voxtui.dialogue.timestamps import Turn
from voxtui.errors import InputError, strip_control_characters
from voxtui.settings.paths import user_folders, user_path

KEPT_SPEECH_SECONDS = 600.0
"""Maximum length of speech in memory (38 MB). Older speech is dropped; its words stay."""


def saved_sessions(folder: str) -> Path:
    return user_path(folder) if folder else user_folders().user_data_path / "sessions"


@dataclass(slots=True)
class SessionTurn:
    source: str
    utterance: Utterance | None = None
    words: str | None = None
    heard_reply: str | None = None
    """the heard part of a reply that was cut off"""
    result: Turn | None = None
    replaces: int | None = None
    """the number of the turn that leaves the record once this one is over"""


@dataclass(slots=True)
class Record:
    began: datetime
    turns: dict[int, SessionTurn] = field(default_factory=dict[int, SessionTurn])

    def take(self, event: Event) -> None:
        """Note `event`. Drops the oldest speech beyond KEPT_SPEECH_SECONDS."""
        match event:
            case TurnStarted(number, source, _, replaces):
                self.turns[number] = SessionTurn(source, replaces=replaces)
            case Captured(number, utterance) if number in self.turns:
                self.turns[number].utterance = utterance
                seconds = 0.0
                for turn in reversed(self.turns.values()):
                    seconds += turn.utterance.seconds if turn.utterance else 0.0
                    if seconds > KEPT_SPEECH_SECONDS and turn.utterance is not utterance:
                        turn.utterance = None
            case UserWords(number, text) if turn := self.turns.get(number):
                turn.words = text
            case SpokenUpTo(number, text) if turn := self.turns.get(number):
                turn.heard_reply = text
                if not text:  # the history keeps the turn before, too
                    turn.replaces = None
            case TurnFinished(result) if turn := self.turns.get(result.number):
                turn.result = result
                if turn.replaces is not None and result.reply:
                    self.turns.pop(turn.replaces, None)
            case _:
                pass

    @property
    def finished(self) -> list[SessionTurn]:
        """Return the finished turns that have words or sound, oldest first. Any thread."""
        over = (turn for turn in list(self.turns.values()) if turn.result)
        return [turn for turn in over if turn.utterance or _words(turn) or _result(turn).reply]

    def save(self, folder: Path) -> Path:
        """Write `folder`/DATE with session.md, session.json and a WAV file per spoken turn.

        Returns its path. If one file fails, nothing stays. The files are written in a new folder of
        mkdtemp, which only the owner may enter, so no link of others is followed. Raises
        InputError.
        """
        part: Path | None = None
        if str(folder).startswith("~"):  # expanduser() knows no such user
            raise InputError(
                f"The session was not saved: {folder}: there is no such user.",
                "Choose another place: ui.save_dir.",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder))
            self._write(part)
            path = _free_path(folder / f"{self.began:%Y-%m-%d_%H-%M-%S}")
            part.rename(path)
        except OSError as error:
            if part is not None:
                shutil.rmtree(part, ignore_errors=True)
            no_room = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise InputError(
                f"The session was not saved: {folder}: {error.strerror or error}.",
                "Make room and save it again." if no_room else "Choose another place: ui.save_dir.",
            ) from error
        return path

    def _write(self, part: Path) -> None:
        turns = [replace(turn) for turn in self.finished]  # the conversation goes on meanwhile
        for turn in turns:
            if turn.utterance is not None and (name := _wav(turn)):
                (part / name).write_bytes(turn.utterance.as_wav())
        began = self.began.astimezone().isoformat(timespec="seconds")
        whole = {"began": began, "turns": [_json(turn) for turn in turns]}
        _write_text(part / "session.json", json.dumps(whole, ensure_ascii=False, indent=2))
        _write_text(part / "session.md", "\n".join(self._markdown(turns)))

    def _markdown(self, turns: Sequence[SessionTurn]) -> Iterator[str]:
        yield f"# voxtui, {self.began:%Y-%m-%d %H:%M}"
        for turn in turns:
            result = _result(turn)
            yield f"\n## Turn {result.number}\n"
            yield f"**You** ({_how(turn)}): {_words(turn) or '(no words known)'}\n"
            yield f"**Vox**: {_reply(turn)}\n"
            if times := _times(result):
                yield f"*{times}*"


def _write_text(file: Path, text: str) -> None:
    """Write `text` without control characters, which `cat` would send to the terminal."""
    file.write_text(f"{strip_control_characters(text)}\n", encoding="utf-8")


def _result(turn: SessionTurn) -> Turn:
    assert turn.result is not None
    return turn.result


def _wav(turn: SessionTurn) -> str | None:
    """Return the name of the speech file; None for a replay, whose speech another turn has."""
    if turn.utterance is None or turn.source == REPLAY:
        return None
    return f"turn-{_result(turn).number:04}.wav"


def _json(turn: SessionTurn) -> dict[str, Any]:
    """Return the JSON of `ask --json`, with the additional keys of a saved session."""
    result = _result(turn)
    return {
        **result.as_json(),
        "number": result.number,
        "source": turn.source,
        "heard": _words(turn),
        "heard_reply": turn.heard_reply,
        "wav": _wav(turn),
    }


def _words(turn: SessionTurn) -> str | None:
    return turn.words or _result(turn).heard


def _how(turn: SessionTurn) -> str:
    if turn.utterance is None:
        return turn.source
    length = f"{turn.source}, {turn.utterance.seconds:.1f} s"
    wav = _wav(turn)
    return f"{length}, [sound]({wav})" if wav else length


def _reply(turn: SessionTurn) -> str:
    result, heard = _result(turn), turn.heard_reply
    if result.error or not result.reply:
        return f"({result.error or result.outcome.value.replace('_', ' ')})"
    if heard is None or heard == result.reply:
        return result.reply.strip()
    return f"{heard.strip()} ~~{result.reply[len(heard) :].strip()}~~".strip()


def _times(result: Turn) -> str:
    named = {"TTFT": result.ttft_ms, "first sound": result.first_sound_ms, "total": result.total_ms}
    return ", ".join(f"{name} {ms:.0f} ms" for name, ms in named.items() if ms is not None)


def _free_path(wanted: Path) -> Path:
    path, n = wanted, 1
    while os.path.lexists(path):
        n += 1
        path = wanted.with_name(f"{wanted.name}_{n}")
    return path
