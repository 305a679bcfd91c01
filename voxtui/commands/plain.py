"""A conversation in lines of text, for screen readers and for terminals without a full screen."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from voxtui.dialogue import events
from voxtui.dialogue.data import MICROPHONE, TYPED
from voxtui.dialogue.engine import LEAVING_SECONDS
from voxtui.dialogue.engine_commands import Attach, Silence
from voxtui.dialogue.events import State
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import Past
from voxtui.dialogue.timestamps import NO_WORDS, Milestone, Outcome, Turn
from voxtui.errors import ModelMissing, RestartNeeded, VoxtuiError, strip_control_characters
from voxtui.session.local_session import Factories, LocalSession
from voxtui.session.notification import notification, notify_desktop
from voxtui.session.tool_lines import call_line, call_text
from voxtui.session.user_session import ClipEnded, MakeEngine, NotAllowed, UserSessionEvent
from voxtui.settings.schema import Config
from voxtui.slash_commands import COMMANDS, number, parse
from voxtui.storage.conversation_writer import StoredConversation
from voxtui.storage.metrics_files import metrics_writer
from voxtui.terminal.clipboard import clipboard_text
from voxtui.terminal.native_stderr import native_log, native_stderr_in
from voxtui.wiring import LocalFactories, devices_engine, sample_clips

HELP = "\n".join(
    (
        "Enter: start to talk; Enter again: have it answered. During an answer: talk over it.",
        "While a timer rings: stop it; /snooze: have it ring again in five minutes.",
        "Text and Enter: send the text. Ctrl-D: quit.",
        *(
            f"{c.usage}: {c.about}."
            for c in COMMANDS
            if c.name not in ("copy", "history", "panel")  # only the screen has them
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Line:
    text: str
    at: float


class Plain:
    def __init__(
        self,
        make_engine: MakeEngine,
        config: Config,
        clips: Sequence[tuple[str, Path]],
        factories: Factories | None,
        typed_live: bool,
        quiet: bool = False,
    ) -> None:
        """Take lines from a keyboard if `typed_live`; else each line waits for the turn before."""
        self._inbox: queue.SimpleQueue[UserSessionEvent | Line | None] = queue.SimpleQueue()
        self.session = LocalSession(make_engine, self._inbox.put, config, clips, factories)
        self._typed_live = typed_live
        self._quiet = quiet
        self._lines: deque[str] = deque()
        self._loading = ""
        self._reading = False
        self._introduced = False
        self._missed: set[events.Countdown] = set()
        self._in_reply = False
        self._all_done = True
        self._closed = False

    def run(
        self,
        lines: Iterable[str],
        attachments: Sequence[Attachment] = (),
        continues: bool = False,
    ) -> bool:
        """Talk about `attachments` until `lines` end, or /quit. Return True if every line was done.

        `continues` resumes the newest stored conversation. Raises the error of a failed thread, and
        that of a failed start or resumption unless the user can go on at the keyboard.
        """
        self.session.start(*(self._continued() if continues else ((), None)))
        for text in attachments:
            self.session.post(Attach(text))
        threading.Thread(target=self._read, args=(lines,), name="voxtui-lines", daemon=True).start()
        try:
            while not self._over():
                self._take(self._inbox.get())
        finally:
            self.session.clips.stop()
            self.session.close(LEAVING_SECONDS)
        return self._all_done

    def _continued(self) -> tuple[Past, StoredConversation | None]:
        try:
            past, stored = self.session.conversation.read()
        except (VoxtuiError, NotAllowed) as nothing:
            if isinstance(nothing, VoxtuiError) and not self._typed_live:
                raise  # what a file of lines asks may need the conversation
            self._complain(str(nothing))
            self._explain_storage()
            return (), None
        for turn in past:
            if not turn.attached:
                self._print(f"You: {indented(turn.user_text)}")
                self._print(f"Vox: {indented(turn.reply_text.strip())}")
        return past, stored

    def _explain_storage(self) -> None:
        """Say how conversations are stored, unless the user has chosen. The screen asks instead."""
        if self.session.config.session.keep is None:
            self._print("Conversations are stored if session.keep = true in your config file.")

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            text = strip_control_characters(line.strip())
            self._inbox.put(Line(text, time.monotonic()))
        self._inbox.put(None)

    def _over(self) -> bool:
        # READY is reported after everything before it: an empty inbox means that it was shown.
        idle = self.session.state is State.READY and self._inbox.empty()
        waits = self.session.busy or self._lines
        return self._closed and (self._typed_live or (idle and not waits))

    def _take(self, item: UserSessionEvent | Line | None) -> None:
        match item:
            case Line(text, at) if self._typed_live:
                self._obey(text, at)
            case Line(text):
                self._lines.append(text)
            case None:  # the lines ended
                self._closed = True
            case _:
                self.session.take(item)
                self._show(item)
        while self._lines and self.session.state is State.READY and not self.session.busy:
            self._obey(self._lines.popleft(), time.monotonic())

    # Events.

    def _print(self, line: str) -> None:
        self._end_reply()
        click.echo(line)

    def _status(self, line: str) -> None:
        """Print a status line on stderr, because stdout holds only the conversation."""
        self._end_reply()
        if not self._quiet:
            click.echo(line, err=True)

    def _complain(self, sentence: str) -> None:
        self._end_reply()
        click.echo(sentence, err=True)

    def _refuse(self, sentence: str) -> None:
        self._all_done = False
        self._complain(sentence)

    def _end_reply(self) -> None:
        if self._in_reply:
            click.echo()
            self._in_reply = False

    def _show(self, event: UserSessionEvent) -> None:
        """Print `event` if a line can show it. Raises the error of a failed thread."""
        match event:
            case events.ReplyText(_, text):
                self._show_reply(text)
            case events.StateChanged(State.LISTENING):
                turn = self.session.turn
                spoken = turn is None or turn.source == MICROPHONE
                self._status("Listening. Enter: have it answered." if spoken else "Listening.")
            case events.StateChanged(State.THINKING):
                self._status("Thinking.")
            case events.UserWords(_, text):
                if self.session.turn is None or self.session.turn.source != TYPED:
                    self._print(f"You: {text}")
            case events.SpokenUpTo(_, text):
                self._print(f"Interrupted. You heard: {text}" if text else "Interrupted.")
            case events.TurnFinished(turn):
                self._finish_turn(turn)
            case events.Notice(message, "information"):
                self._status(message)
            case events.Notice(message):
                self._complain(message)
            case events.Remark(sentence):
                self._print(sentence)
            case events.KeyNeeded(_, call) if self._typed_live:
                self._print(f"Enter: run `{call_text(call)}`. n and Enter: no.")
            case events.KeyNeeded():
                self.session.confirm(False)  # a line of a file is no key
            case events.ToolEnded(_, report):
                self._print(f"› {call_line(report)}")
            case events.Rang(sentence):
                self._print(sentence)
                if self._typed_live:
                    click.echo(notification("voxtui", sentence, os.environ), nl=False, err=True)
                    notify_desktop("voxtui", sentence, os.environ)
            case events.CountdownsChanged(countdowns):
                self._show_missed(countdowns)
            case ClipEnded(error=error) if error:
                self._refuse(error)
            case events.PrefillProgress():
                self._show_reading(event)
            case events.Loading(step, fraction):
                self._show_loading(step, fraction)
            case events.Loaded():
                self._show_loaded(event)
            case events.LoadFailed(error):
                if not self._typed_live or self._closed or isinstance(error, RestartNeeded):
                    raise error
                self._offer_retry(error)
            case events.Died(error):
                raise error
            case _:
                pass

    def _show_loading(self, step: str, fraction: float | None) -> None:
        """Print each loading step once, and again at each tenth if its fraction is known."""
        done = "" if fraction is None else f" {int(fraction * 10) * 10}%"
        if self._loading != (line := f"Loading: {step}{done}."):
            self._loading = line
            self._status(line)

    def _show_loaded(self, loaded: events.Loaded) -> None:
        microphone = f"Microphone: {loaded.microphone}" if loaded.microphone else "No microphone"
        speaker = f"Speaker: {loaded.speaker}" if loaded.speaker else "No speaker"
        self._status(f"Ready: {loaded.brain}. Voice: {loaded.voice}. {microphone}. {speaker}.")
        if self._typed_live and not self._introduced:
            self._status(HELP)
        self._introduced = True

    def _offer_retry(self, error: VoxtuiError) -> None:
        if isinstance(error, ModelMissing):
            offered = f"/fetch: fetch it now ({error.size / 1e9:.1f} GB)."
            self._complain(f"{error.message} {offered} /again: try again.")
        else:
            self._complain(f"{error} /again: try again.")

    def _show_reading(self, reading: events.PrefillProgress) -> None:
        """Print the beginning and the end only: a line per token would hide the rest."""
        if reading.ended:
            self._status("The text is read.")
        elif not self._reading and reading.seconds_left is not None:
            self._status(f"Reading {reading.total:,} tokens: {reading.seconds_left:.0f} s.")
        self._reading = not reading.ended and reading.seconds_left is not None

    def _show_reply(self, text: str) -> None:
        if not self._in_reply:
            click.echo("Vox: ", nl=False)
            self._in_reply = True
        click.echo(indented(text), nl=False)  # flushes, too
        if self.session.turn is not None:
            self.session.turn.timestamps.record(Milestone.FIRST_SHOWN)

    def _finish_turn(self, turn: Turn) -> None:
        match turn.outcome:
            case Outcome.NO_SPEECH:
                self._status("Nothing was heard.")
            case Outcome.FAILED:
                self._refuse(turn.error or "The turn failed.")
            case Outcome.CANCELLED if not turn.reply:
                self._status("Dropped.")
            case Outcome.ANSWERED if not turn.reply.strip():
                self._complain(NO_WORDS)
            case _:
                self._end_reply()

    def _show_missed(self, countdowns: Sequence[events.Countdown]) -> None:
        missed = {one for one in countdowns if one.missed and not one.rings}
        for one in sorted(missed - self._missed, key=lambda one: one.ends or 0.0):
            self._print(f"Missed: {one.name}.")
        self._missed = missed

    # Lines.

    def _obey(self, text: str, at: float) -> None:
        try:
            self._do(text, at)
        except NotAllowed as refused:
            self._refuse(str(refused))
        except VoxtuiError as error:
            if error is self.session.failed:
                self._offer_retry(error)
            else:
                self._refuse(str(error))

    def _do(self, text: str, at: float) -> None:
        session = self.session
        if session.awaits_key and self._typed_live and text.lower() in ("", "n", "no"):
            session.confirm(not text)
            return
        if text == "/snooze":
            if not session.post(Silence(snooze=True)):
                raise NotAllowed("No timer rings.")
            return
        if session.post(Silence()) and not text:
            return
        if command := parse(text):
            self._command(*command, at)
        elif text:
            session.say(text, at)
        elif self._typed_live and session.talking is not None:
            session.end_talking(at)
        elif self._typed_live:
            session.begin_talking(at)

    def _command(self, name: str, argument: str, at: float) -> None:
        session = self.session
        match name:
            case "again":
                session.answer_again(at)
            case "clip":
                self._print(f"Sample: {session.play_clip(number(argument))}")
            case "edit":
                turn, words = session.words_of()
                if argument:
                    session.correct(turn, argument, at)
                else:
                    self._print(f"Heard: {words} Write /edit and what you said.")
            case "fetch":
                session.fetch()
            case "help":
                self._print(HELP)
            case "numbers":
                self._print(session.times)
            case "look":
                session.rescan_devices()
            case "paste":
                session.post(Attach(Attachment("the clipboard", clipboard_text())))
            case "mute":
                self._print("The voice is off." if session.toggle_mute() else "The voice is on.")
            case "new":
                session.new_conversation()
                self._print("New conversation. /undo brings the old one back.")
            case "quit":
                self._closed = self._typed_live = True
            case "save":
                self._print(f"Saved, with your words: {session.save()}")
                self._explain_storage()
            case "stop":
                session.stop()
            case "undo":
                session.conversation.undo()
                self._print("The old conversation goes on.")
            case _:
                raise NotAllowed(f"/{name} works on the screen only.")


def indented(text: str) -> str:
    """Indent all lines but the first, so that none looks like a line of the user or of a tool."""
    return text.replace("\n", "\n     ")


def typed_lines(source: int = 0) -> Iterator[str]:
    """Read the lines of a file descriptor until it ends or fails, such as a closed terminal.

    Does not use `sys.stdin`: a thread that waits for a line would still hold its lock when the
    interpreter ends.
    """
    with suppress(OSError), open(source, "rb", buffering=0, closefd=False) as raw:
        while line := raw.readline():
            yield line.decode(errors="replace")


def talk_in_lines(
    config: Config,
    quiet: bool = False,
    attachments: Sequence[Attachment] = (),
    continues: bool = False,
) -> bool:
    """Talk on stdin and stdout about `attachments`. Return False if piped lines went unanswered."""
    typed_live = sys.stdin.isatty()
    with native_stderr_in(native_log()), metrics_writer(config.metrics.enabled) as log:
        plain = Plain(
            lambda emit: devices_engine(config, log.tee(emit)),
            config,
            sample_clips(),
            LocalFactories(),
            typed_live=typed_live,
            quiet=quiet,
        )
        all_done = plain.run(typed_lines(), attachments, continues)
    return all_done or typed_live
