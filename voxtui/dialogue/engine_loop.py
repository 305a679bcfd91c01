"""The engine's loop: frames and commands in their order, and the parts between two turns.

During an answer the thread is inside that turn. The turn's cancel flag ends the turn early; the
front end sets that flag at the key press.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty

from voxtui.dialogue.announcements import Announcer
from voxtui.dialogue.commands import (
    Answer,
    Attach,
    Cancel,
    Command,
    DeviceLost,
    Edit,
    NewConversation,
    NewTurn,
    Quit,
    RecallConversation,
    Redo,
    Release,
    ReplaceComponents,
    RescanDevices,
    Ring,
    SendText,
    Talk,
    Truncate,
    Typing,
    UseReplyOptions,
)
from voxtui.dialogue.components import Closing, Components
from voxtui.dialogue.data import MICROPHONE, Frame
from voxtui.dialogue.events import ChangeFailed, Died, Event, LoadFailed, Notice, State
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.history import History
from voxtui.dialogue.inbox import Inbox
from voxtui.dialogue.listening import Listener, VoiceBargeIn
from voxtui.dialogue.protocols import Brain, Skills, SpeechDetector, Voice
from voxtui.dialogue.safe_skills import SafeSkills
from voxtui.dialogue.sound_devices import LOOK_SECONDS, SoundDevices
from voxtui.dialogue.turn_taking import TurnTaking
from voxtui.errors import VoxtuiError
from voxtui.settings.schema import Config

WAIT_SECONDS = 0.1
"""Interval of a wait for the source of a recording. Intervals are counted, because the clock goes
on during a suspend (Ctrl+Z)."""


class EngineLoop:
    """Takes frames and commands out of the inbox; loads, replaces and closes the parts.

    Everything runs on the engine's thread. Other threads may read `components`, `listener` and
    `turns`. For the parameters see Engine.
    """

    def __init__(
        self,
        inbox: Inbox,
        devices: SoundDevices,
        detector: SpeechDetector,
        brain: Brain | Fallbacks[Brain],
        voice: Voice | Fallbacks[Voice] | None,
        config: Config,
        emit: Callable[[Event], object],
        barge_in: VoiceBargeIn | None,
        skills: Skills | None,
        local: bool,
        captions: bool,
    ) -> None:
        skills = SafeSkills(skills) if skills is not None else None
        self.components = Components(devices, brain, voice, config, emit)
        self.listener = Listener(detector, config)
        self.history = History(config.history, lambda: self.components.brain_name)
        self.turns = TurnTaking(
            inbox,
            self.components,
            self.listener,
            self.history,
            emit,
            barge_in,
            skills,
            local,
            captions,
        )
        self._inbox = inbox
        self._emit = emit
        self._barge_in = barge_in
        self._skills = skills
        self._ringer = Announcer(inbox, self.components, self.listener, emit, self.turns.set_state)

    def run(self) -> None:
        """Load the parts; then take one item after the other until Quit. The engine's thread."""
        try:
            if self._skills is not None:
                self._skills.start(self._ringer.report)
            self._load()
            while not self.components.closing and not isinstance(item := self._next(), Quit):
                if item is None:
                    self.turns.act_on(self.listener.finish())
                else:
                    self._take(item)
                self.components.devices.attend(self.listener.attentive or self._inbox.turn_waits)
                if self.components.devices.speaker_lost:
                    self.components.report(self.components.devices.replace_speaker())
                if self.turns.is_quiet and not self._inbox.turn_waits:
                    self._ring()
        except Closing:
            pass
        except BaseException as error:  # noqa: BLE001 - the front end raises it
            self._emit(Died(error))
        finally:
            self.turns.idle.end()
            if self._skills is not None:
                self._skills.close()
            self.components.close()

    def _next(self) -> Frame | Command | None:
        """Return the next item; None once the source of the recording has stopped.

        While there is none, transcribe the last utterance, a token at a time.
        """
        if (frame := self._inbox.replayed()) is not None:
            return frame
        while (wait_s := self.turns.idle.wait_s) is not None and self._inbox.empty():
            if wait_s > 0:
                with suppress(Empty):
                    return self._inbox.get(timeout=wait_s)
            else:
                self.turns.idle.step()
        waited, patience = 0.0, self.listener.patience_s
        while patience is None or waited < patience:
            if self.turns.is_quiet and (events := self.components.devices.look()):
                self.components.report(events)
            idle_s = LOOK_SECONDS if self.components.devices.watched else None
            try:
                return self._inbox.get(timeout=idle_s if patience is None else WAIT_SECONDS)
            except Empty:
                waited += WAIT_SECONDS
        return None

    def _take(self, item: Frame | Command) -> None:
        if isinstance(item, Frame):
            self.turns.hear(item)
            return
        if isinstance(item, NewTurn):
            self._inbox.taken = item.turn
        if isinstance(item, NewTurn | NewConversation | ReplaceComponents | RescanDevices):
            self.turns.abandon_utterance()
        match item:
            case Talk(handle, at, source, paced):
                self.turns.begin(handle, at, source, paced)
            case Release(at, number, answers):
                self.turns.release(at, number, answers)
            case Answer(handle, options):
                self.turns.answer_history(handle, options)
            case SendText(handle, text, begun):
                self.turns.answer_text(handle, text.strip(), begun)
            case Redo(handle, again, text):
                self.turns.redo(handle, again, text)
            case Cancel(number):
                self.turns.cancel_utterance(number)
            case Typing():
                # A later one, or a turn, is already in the inbox unless both are the newest.
                if item is self._inbox.typing and not self._inbox.turn_waits:
                    self.turns.read_ahead(item)
            case Attach(attachment):
                self.turns.reader.attach(attachment)
                self.turns.read_past()
            case NewConversation():
                self.history.forget()
                self.turns.read_past()
            case RecallConversation():
                self.history.recall()
                self.turns.read_past()
            case Edit(change):
                change(self.history)
            case Truncate(number, seconds):
                self.turns.truncate(number, seconds)
            case UseReplyOptions():
                self.turns.use_manner(item)
            case ReplaceComponents():
                self._replace_parts(item)
            case RescanDevices():
                self._rescan_devices()
            case DeviceLost(opening, message):
                self._replace_microphone(opening, message)
            case Ring(sentence):
                self._ringer.add(sentence)
            case Quit():
                pass

    def _load(self) -> None:
        self.turns.set_state(State.LOADING)
        # Before the models, so that a silent microphone is noticed while they load.
        for event in self.components.devices.open():
            self._emit(event)
        try:
            self.listener.warm_up()
            if self._barge_in is not None:
                self._barge_in.warm_up()
            self.components.load(self.turns.first_manner)
        except VoxtuiError as error:
            self.components.devices.close()
            self._emit(LoadFailed(error))
            return
        self._emit(self.components.loaded())
        self.turns.set_state(State.READY)
        self.turns.read_past()

    def _replace_parts(self, change: ReplaceComponents) -> None:
        """Use the parts of `change`; if one of them fails, keep all present parts."""
        self.turns.idle.end()  # it uses the brain, which may be closed
        if self.turns.state is State.LOADING:  # the start failed
            self.components.adopt(change)
            self.listener.use(change.config)
            self._load()
            return
        self.turns.set_state(State.LOADING)
        newest, changed = self._inbox.newest, False
        try:
            tone = self.components.replace(change, lambda: self._inbox.newest is not newest)
            self.listener.note_speech(tone)
            self.listener.use(change.config)
            changed = True
        except VoxtuiError as error:
            self._emit(ChangeFailed(error))
        self._emit(self.components.loaded(changed))
        self.turns.set_state(State.READY)
        if change.brain is not None:
            self.turns.reader.warn_of_leaving()
        self.turns.read_past()

    def _replace_microphone(self, opening: object, message: str) -> None:
        """Replace the lost microphone; answer the speech that it had captured."""
        if self.turns.state is State.LOADING or not self.components.devices.is_in_use(opening):
            return
        devices = self.components.devices
        lost = devices.microphone
        if not devices.is_unproven:  # the loss of the one before was reported
            self._emit(Notice(message))  # at once, because a sound server may hang
        events = devices.replace_microphone()
        if devices.microphone is None and lost is not None:
            gone = f"The microphone {lost.name!r} is lost, and there is no other."
            events.append(Notice(gone, "error"))
        self.components.report(events)
        if self.listener.source == MICROPHONE:
            self.turns.act_on(self.listener.finish())

    def _rescan_devices(self) -> None:
        if self.turns.state is State.LOADING:
            self.turns.refuse()
            return
        self.turns.set_state(State.LOADING)
        self.components.report(self.components.devices.rescan_devices())
        self.turns.set_state(State.READY)

    def _ring(self) -> None:
        """Speak what a timer or a reminder says, if one is due."""
        if sentence := self._ringer.next():
            self.turns.idle.end()
            self._ringer.ring(sentence)
