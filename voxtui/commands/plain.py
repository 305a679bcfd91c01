"""A conversation in lines: for screen readers, and where no full screen is wanted."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias

import click

from voxtui.commands.stderr import native_log, native_stderr_in
from voxtui.dialogue.commands import ReplaceParts
from voxtui.dialogue.data import MICROPHONE, TYPED
from voxtui.dialogue.engine import LEAVING_SECONDS, Engine
from voxtui.dialogue.events import (
    Captured,
    ChangeFailed,
    Died,
    Event,
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneLost,
    MicrophoneOpened,
    Notice,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.marks import Mark, Marks, Outcome, Turn
from voxtui.errors import InputError, ModelMissing, VoxtuiError
from voxtui.records.device_offset import device_offset
from voxtui.records.metrics import FIRST_SOUND, TOTAL, TTFT, DeviceOffset, Headline, verdict
from voxtui.records.metrics_log import metrics_log
from voxtui.records.session import Record, saved_sessions
from voxtui.settings.schema import Config, TargetsConfig
from voxtui.wiring import clip_speaker, devices_engine, reload_parts, sample_clips

HELP = """\
Enter: start to talk; Enter again: have it answered. During an answer: talk over it.
Text and Enter: send the text.
/stop: drop what you say, or stop the answer.
/1 to /9: let it hear a sample clip.
/again: have your last words answered once more. /save: save the session.
/look: look for devices again, after one was plugged in.
/new: new conversation. /mute: voice off or on. /help: this. /quit or Ctrl-D: quit."""

SPOKEN_NAMES = {TTFT: "First token", FIRST_SOUND: "first sound", TOTAL: "total"}


@dataclass(frozen=True, slots=True)
class Line:
    """What was typed, and when Enter was pressed."""

    text: str
    at: float


@dataclass(frozen=True, slots=True)
class Unplayed:
    """A sample clip that could not be spoken."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing more will be typed."""


Item: TypeAlias = Event | Line | Unplayed | Closed


class Plain:
    """Prints the engine's events as lines, and turns lines into its commands."""

    def __init__(
        self,
        make_engine: Callable[[Callable[[Event], object]], Engine],
        targets: TargetsConfig,
        clips: Sequence[tuple[str, Path]],
        speak_clip: Callable[[Engine, Path, threading.Event], object],
        reload_parts: Callable[[Callable[[str], object], bool], ReplaceParts],
        device_offset: DeviceOffset,
        typed_live: bool,
        save_dir: str,
    ) -> None:
        """`typed_live` False: the lines of a file or pipe, which wait for one another.

        `reload_parts` makes brain and voice after a start that failed; its arguments: what tells a
        sentence, and whether a chat model that is not here is to be fetched.
        """
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.engine = make_engine(self._inbox.put)
        self._targets = targets
        self._clips = clips
        self._speak_clip = speak_clip
        self._parts_anew = reload_parts
        self._clip_stopped = threading.Event()
        self._device_offset = device_offset
        self._offset: float | None = None
        self._typed_live = typed_live
        self._save_dir = save_dir
        self._record = Record(datetime.now())
        self._state = State.LOADING
        self._loading = ""
        self._unloaded = False
        """the start failed"""
        self._fetches = False
        """somebody has said that the chat model is to be fetched"""
        self._introduced = False
        self._microphone: str | None = None
        self._talking: int | None = None
        self._turn = 0
        self._source = MICROPHONE
        self._marks: Marks | None = None
        self._in_reply = False
        """the last line printed is open, and holds a reply"""
        self._muted = False
        self._waiting: deque[str] = deque()
        self._all_done = True
        self._asked = 0
        """turns that were begun here and have not finished"""
        self._closed = False

    def run(self, lines: Iterable[str]) -> bool:
        """Until `lines` end or /quit; whether all that they ask for was done.

        Raises what the engine died of, and what a start failed with, unless somebody is there to
        try it again.
        """
        self.engine.start()
        threading.Thread(target=self._read, args=(lines,), name="voxtui-lines", daemon=True).start()
        try:
            while not self._over():
                self._take(self._inbox.get())
        finally:
            self._clip_stopped.set()
            self.engine.close(LEAVING_SECONDS)
        return self._all_done

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._inbox.put(Line(line.strip(), time.monotonic()))
        self._inbox.put(Closed())

    def _over(self) -> bool:
        answered = self._state is State.READY and not self._asked and not self._waiting
        return self._closed and (self._typed_live or answered)

    def _take(self, item: Item) -> None:
        if not isinstance(item, Line | Unplayed | Closed):
            self._record.take(item)
        match item:
            case Line(text, at) if self._typed_live and not self._keeps(text):
                self._obey(text, at)
            case Line(text):
                self._waiting.append(text)
                self._go_on()
            case Closed():
                self._closed = True
            case Unplayed(sentence):
                self._asked -= 1
                self._refuse(sentence)
            case StateChanged(state):
                self._change_state(state)
            case Loading(step, fraction):
                self._say_loading(step, fraction)
            case Loaded():
                self._introduce(item)
            case LoadFailed(error) if self._typed_live and not self._closed:
                self._offer_another_try(error)
            case LoadFailed(error):
                raise error
            case MicrophoneLost():
                self._asked = max(0, self._asked - (self._talking is not None))
                self._microphone = self._talking = None
            case TurnStarted(turn, source, marks):
                self._turn, self._source, self._marks = turn, source, marks
            case Captured() | MicrophoneOpened() | ChangeFailed():
                pass  # its words follow; it is introduced with the rest; nothing is changed here
            case UserWords(_, text):
                if self._source != TYPED:
                    self._say(f"You: {text}")
            case ReplyText(_, text):
                self._show_reply(text)
            case SpokenUpTo(_, text):
                self._say(f"Interrupted. You heard: {text}" if text else "Interrupted.")
            case Notice(message):
                self._say(message)
            case TurnFinished(turn):
                self._finish(turn)
            case Died(error):
                raise error

    # What is printed.

    def _say(self, line: str) -> None:
        if self._in_reply:
            click.echo()
            self._in_reply = False
        click.echo(line)

    def _refuse(self, sentence: str) -> None:
        self._all_done = False
        self._say(sentence)

    def _say_loading(self, step: str, fraction: float | None) -> None:
        """Each step, and each tenth of one that is measured, once."""
        done = "" if fraction is None else f" {int(fraction * 10) * 10}%"
        if self._loading != (line := f"Loading: {step}{done}."):
            self._loading = line
            self._say(line)

    def _offer_another_try(self, error: VoxtuiError) -> None:
        self._unloaded = True
        if isinstance(error, ModelMissing):
            offered = f"/fetch: fetch it now ({error.size / 1e9:.1f} GB)."
            self._say(f"{error.message} {offered} /again: try again.")
        else:
            self._say(f"{error} /again: try again.")

    def _introduce(self, loaded: Loaded) -> None:
        self._microphone = loaded.microphone
        self._offset = self._device_offset(loaded.speaker)
        ears = f"Microphone: {loaded.microphone}" if loaded.microphone else "No microphone"
        mouth = f"Speaker: {loaded.speaker}" if loaded.speaker else "No speaker"
        self._say(f"Ready: {loaded.brain}. Voice: {loaded.voice}. {ears}. {mouth}.")
        if self._typed_live and not self._introduced:
            self._say(HELP)
        self._introduced = True

    def _change_state(self, state: State) -> None:
        self._state = state
        match state:
            case State.LISTENING:
                ends = " Enter: have it answered." if self._source == MICROPHONE else ""
                self._say(f"Listening.{ends}")
            case State.THINKING:
                if self._talking == self._turn:
                    self._talking = None
                self._say("Thinking.")
            case State.READY:
                self._go_on()
            case _:
                pass

    def _show_reply(self, text: str) -> None:
        if not self._in_reply:
            click.echo("Vox: ", nl=False)
            self._in_reply = True
        click.echo(text, nl=False)  # and flush
        if self._marks is not None:
            self._marks.mark(Mark.FIRST_SHOWN)

    def _finish(self, turn: Turn) -> None:
        if self._talking == turn.number:
            self._talking = None
        self._asked = max(0, self._asked - 1)
        match turn.outcome:
            case Outcome.NO_SPEECH:
                self._say("Nothing was heard.")
            case Outcome.FAILED:
                self._refuse(turn.error or "The turn failed.")
            case Outcome.CANCELLED if not turn.reply:
                self._say("Dropped.")
            case _:
                self._say(self._numbers(turn))

    def _numbers(self, turn: Turn) -> str:
        """The headlines in words."""
        known = [
            self._number(headline, name, turn)
            for headline, name in SPOKEN_NAMES.items()
            if headline.of(turn) is not None
        ]
        return f"{', '.join(known)}." if known else "No numbers."

    def _number(self, headline: Headline, name: str, turn: Turn) -> str:
        value, target = headline.of(turn), headline.target(self._targets.resolved(turn.brain))
        kept = verdict(value, target)
        devices = ""
        if headline is FIRST_SOUND and self._offset is not None:
            devices = f" and {self._offset:.0f} in the devices"
        return f"{name} {value:.0f} ms{devices}, {kept} {target:.0f}" if kept else name

    # What lines do.

    def _keeps(self, text: str) -> bool:
        """Whether `text` has to wait until there is somebody to answer."""
        return self._state is State.LOADING and bool(text) and not text.startswith("/")

    def _go_on(self) -> None:
        while self._waiting and self._state is State.READY and not self._asked:
            self._obey(self._waiting.popleft(), time.monotonic())

    def _obey(self, text: str, at: float) -> None:
        match text:
            case "" if self._typed_live:
                self._toggle_talk(at)
            case "":
                pass
            case "/quit":
                self._closed = self._typed_live = True
            case "/help":
                self._say(HELP)
            case "/stop":
                self._stop()
            case "/again" if self._unloaded:
                self._start_again()
            case "/fetch" if self._unloaded:
                self._fetches = True
                self._start_again()
            case "/again":
                self._answer_again(at)
            case "/save":
                self._save()
            case "/look":
                self._look_again()
            case "/new":
                self._stop()
                self.engine.new_conversation()
                self._say("New conversation.")
            case "/mute":
                self._muted = not self._muted
                self.engine.mute(self._muted)
                self._say("The voice is off." if self._muted else "The voice is on.")
            case _ if text.startswith("/") and text[1:].isdecimal():
                self._play_clip(int(text[1:]))
            case _ if text.startswith("/"):
                self._refuse(f"{text}: there is no such command. /help lists them.")
            case _:
                self._clip_stopped.set()
                self._talking = None
                self._asked += 1
                self.engine.send_text(text, at)

    def _start_again(self) -> None:
        def say(sentence: str) -> None:
            self._inbox.put(Notice(sentence, "information"))

        try:
            change = self._parts_anew(say, self._fetches)
        except VoxtuiError as error:
            self._offer_another_try(error)
            return
        self._unloaded = False
        self.engine.replace_parts(change)

    def _answer_again(self, at: float) -> None:
        if not any(turn.utterance for turn in self._record.finished):
            self._refuse("Nothing has been said yet that could be answered again.")
            return
        self._clip_stopped.set()
        self._talking = None
        self._asked += 1
        self.engine.replay(at)

    def _look_again(self) -> None:
        if self._state is not State.READY:
            self._refuse("Devices are looked for between turns.")
            return
        self.engine.rescan_devices()

    def _save(self) -> None:
        if not self._record.finished:
            self._refuse("There is nothing to save yet.")
            return
        try:
            place = self._record.save(saved_sessions(self._save_dir))
        except InputError as error:
            self._refuse(str(error))
        else:
            self._say(f"Saved, with your words: {place}")

    def _toggle_talk(self, at: float) -> None:
        if self._talking is not None:
            self.engine.release(at, self._talking)
            self._talking = None
        elif self._unloaded:
            self._say("No model is loaded. Text is kept until one is. /again: try again.")
        elif self._state is State.LOADING:
            self._say("Still loading. Text is kept until that is done.")
        elif self._state is State.LISTENING and self._source == MICROPHONE:
            self.engine.release(at, self._turn)  # hands-free began it
        elif self._microphone is None:
            self._say("There is no microphone: type, or let it hear a sample with /1.")
        else:
            self._clip_stopped.set()
            self._asked += 1
            self._talking = self.engine.talk(at, MICROPHONE)

    def _stop(self) -> None:
        self._talking = None
        self._clip_stopped.set()
        self.engine.cancel()

    def _play_clip(self, number: int) -> None:
        if self._state is State.LOADING:
            self._say("No model is loaded." if self._unloaded else "Still loading.")
            return
        if not 0 < number <= len(self._clips):
            self._refuse(f"There are {len(self._clips)} sample clips.")
            return
        self._clip_stopped.set()
        self._clip_stopped = threading.Event()
        self._talking = None
        self._asked += 1
        name, path = self._clips[number - 1]
        self._say(f"Sample: {name}")
        threading.Thread(
            target=self._speak, args=(path, self._clip_stopped), name="voxtui-clip", daemon=True
        ).start()

    def _speak(self, path: Path, stopped: threading.Event) -> None:
        """On a thread of its own."""
        try:
            self._speak_clip(self.engine, path, stopped)
        except InputError as error:
            self._inbox.put(Unplayed(str(error)))


def typed_lines(source: int = 0) -> Iterator[str]:
    """The lines of a file descriptor, until it ends or cannot be read: its terminal may be gone.

    Not those of `sys.stdin`, whose lock a thread that waits for a line would still hold when the
    interpreter ends.
    """
    with suppress(OSError), open(source, "rb", buffering=0, closefd=False) as raw:
        while line := raw.readline():
            yield line.decode(errors="replace")


def talk_in_lines(config: Config) -> bool:
    """Talk on stdin and stdout. Return False if lines of a file or pipe were not all answered."""
    typed_live = sys.stdin.isatty()
    with native_stderr_in(native_log()), metrics_log(config.metrics.enabled) as log:
        plain = Plain(
            lambda emit: devices_engine(config, log.tee(emit)),
            config.targets,
            sample_clips(),
            clip_speaker(config),
            partial(reload_parts, config),
            device_offset=device_offset,
            typed_live=typed_live,
            save_dir=config.ui.save_dir,
        )
        all_done = plain.run(typed_lines())
    return all_done or typed_live
