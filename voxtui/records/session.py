"""A session that can be saved: kept in memory, written only when the user says so."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from voxtui.dialogue.data import REPLAY, Utterance
from voxtui.dialogue.events import Captured, Event, SpokenUpTo, TurnFinished, TurnStarted, UserWords
from voxtui.dialogue.marks import Turn
from voxtui.errors import InputError
from voxtui.settings.paths import user_folders, user_path

KEPT_SPEECH_SECONDS = 600.0
"""Older speech is let go, so that memory has a limit; its words stay."""


def saved_sessions(folder: str) -> Path:
    """`folder`, or where sessions are saved if that is empty."""
    return user_path(folder) if folder else user_folders().user_data_path / "sessions"


@dataclass(slots=True)
class Exchange:
    """A turn as it is saved."""

    source: str
    said: Utterance | None = None
    words: str | None = None
    heard_reply: str | None = None
    """the part of the reply that was heard, where it was cut off"""
    turn: Turn | None = None
    """once it is over"""


@dataclass(slots=True)
class Record:
    """What was said and answered since the start."""

    began: datetime
    exchanges: dict[int, Exchange] = field(default_factory=dict[int, Exchange])

    def take(self, event: Event) -> None:
        """Remember what the engine reports."""
        match event:
            case TurnStarted(turn, source):
                self.begin(turn, source)
            case Captured(turn, said):
                self.add_speech(turn, said)
            case UserWords(turn, text):
                self.add_words(turn, text)
            case SpokenUpTo(turn, text):
                self.cut(turn, text)
            case TurnFinished(turn):
                self.finish(turn)
            case _:
                pass

    def begin(self, turn: int, source: str) -> None:
        self.exchanges[turn] = Exchange(source)

    def add_words(self, turn: int, words: str) -> None:
        if exchange := self.exchanges.get(turn):
            exchange.words = words

    def cut(self, turn: int, heard: str) -> None:
        """No more than this of its reply was heard."""
        if exchange := self.exchanges.get(turn):
            exchange.heard_reply = heard

    def finish(self, turn: Turn) -> None:
        if exchange := self.exchanges.get(turn.number):
            exchange.turn = turn

    def add_speech(self, turn: int, said: Utterance) -> None:
        """Keep it, and let go of speech beyond KEPT_SPEECH_SECONDS, oldest first."""
        if turn not in self.exchanges:
            return
        self.exchanges[turn].said = said
        seconds = 0.0
        for exchange in reversed(self.exchanges.values()):
            seconds += exchange.said.seconds if exchange.said else 0.0
            if seconds > KEPT_SPEECH_SECONDS and exchange.said is not said:
                exchange.said = None

    @property
    def finished(self) -> list[Exchange]:
        """Those whose turn is over, oldest first. Any thread."""
        return [exchange for exchange in list(self.exchanges.values()) if exchange.turn]

    def save(self, folder: Path) -> Path:
        """Write `folder`/DATE with session.md, session.json and a WAV per spoken turn; all or none.

        Returns where it is. Raises InputError.
        """
        part: Path | None = None
        if str(folder).startswith("~"):  # what no user's home took the place of
            raise InputError(
                f"The session was not saved: there is no home for {folder}.",
                "Choose another place: ui.save_dir.",
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(prefix=".saving-", dir=folder))
            self._write(part)
            place = _free(folder / f"{self.began:%Y-%m-%d %H-%M-%S}")
            part.rename(place)
        except OSError as error:
            if part is not None:
                shutil.rmtree(part, ignore_errors=True)
            no_room = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise InputError(
                f"The session was not saved: {folder}: {error.strerror or error}.",
                "Make room and save it again." if no_room else "Choose another place: ui.save_dir.",
            ) from error
        return place

    def _write(self, part: Path) -> None:
        exchanges = [replace(exchange) for exchange in self.finished]  # turns go on meanwhile
        for exchange in exchanges:
            if exchange.said is not None and (name := _wav(exchange)):
                (part / name).write_bytes(exchange.said.as_wav())
        turns = [_json(exchange) for exchange in exchanges]
        whole = {"began": self.began.astimezone().isoformat(timespec="seconds"), "turns": turns}
        text = json.dumps(whole, ensure_ascii=False, indent=2)
        (part / "session.json").write_text(f"{text}\n", encoding="utf-8")
        markdown = "\n".join(self._markdown(exchanges))
        (part / "session.md").write_text(f"{markdown}\n", encoding="utf-8")

    def _markdown(self, exchanges: Sequence[Exchange]) -> Iterator[str]:
        yield f"# voxtui, {self.began:%Y-%m-%d %H:%M}"
        for exchange in exchanges:
            turn = exchange.turn
            assert turn is not None
            yield f"\n## Turn {turn.number}\n"
            yield f"**You** ({_how(exchange)}): {_words(exchange) or '(no words known)'}\n"
            yield f"**Vox**: {_reply(exchange)}\n"
            if times := _times(turn):
                yield f"*{times}*"


def _wav(exchange: Exchange) -> str | None:
    """The file with what was said; that of a replay was written by the turn it repeats."""
    if exchange.turn is None or exchange.said is None or exchange.source == REPLAY:
        return None
    return f"turn-{exchange.turn.number:04}.wav"


def _json(exchange: Exchange) -> dict[str, Any]:
    """The turn's own shape, and what only a saved session knows."""
    turn = exchange.turn
    assert turn is not None
    return {
        **turn.as_json(),
        "number": turn.number,
        "source": exchange.source,
        "heard": _words(exchange),
        "heard_reply": exchange.heard_reply,
        "wav": _wav(exchange),
    }


def _words(exchange: Exchange) -> str | None:
    return exchange.words or (exchange.turn.heard if exchange.turn else None)


def _how(exchange: Exchange) -> str:
    if exchange.said is None:
        return exchange.source
    length = f"{exchange.source}, {exchange.said.seconds:.1f} s"
    wav = _wav(exchange)
    return f"{length}, [sound]({wav})" if wav else length


def _reply(exchange: Exchange) -> str:
    turn = exchange.turn
    assert turn is not None
    heard = exchange.heard_reply
    if turn.error or not turn.reply:
        return f"({turn.error or turn.outcome.value.replace('_', ' ')})"
    if heard is None or heard == turn.reply:
        return turn.reply.strip()
    return f"{heard.strip()} ~~{turn.reply[len(heard) :].strip()}~~".strip()


def _times(turn: Turn) -> str:
    named = {"TTFT": turn.ttft_ms, "first sound": turn.first_sound_ms, "total": turn.total_ms}
    return ", ".join(f"{name} {ms:.0f} ms" for name, ms in named.items() if ms is not None)


def _free(wanted: Path) -> Path:
    """`wanted`, or the next like it that is not there yet."""
    place, n = wanted, 1
    while place.exists():
        n += 1
        place = wanted.with_name(f"{wanted.name} ({n})")
    return place
