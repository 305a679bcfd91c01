"""The engine: an actor with one thread, to which every other thread posts commands and frames.

During an answer this thread runs that turn. The turn's cancel flag ends the turn early; `post` sets
that flag on the caller's thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty

from voxtui.dialogue import engine_commands as commands
from voxtui.dialogue.components.components import Closing, Components, Models
from voxtui.dialogue.components.sound_devices import LOOK_SECONDS, NO_DEVICES, Devices, SoundDevices
from voxtui.dialogue.data import MICROPHONE, Frame
from voxtui.dialogue.dialogue import NO_FRONT_END, Dialogue, FrontEnd
from voxtui.dialogue.events import ChangeFailed, Died, Event, LoadFailed, Notice, State, Synced
from voxtui.dialogue.history.history import ConversationLeft, History
from voxtui.dialogue.inbox import Inbox, Posted
from voxtui.dialogue.listening.endpointing import VoiceBargeIn
from voxtui.dialogue.listening.listener import Listener, warm_up
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.prefetch import SWITCH_SECONDS
from voxtui.dialogue.protocols import Brain, Past, ReplyOptions, Skills
from voxtui.dialogue.skill_errors import skill_errors_logged
from voxtui.dialogue.turn.announcements import Announcer
from voxtui.dialogue.turn.turn_taking import TurnTaking
from voxtui.dialogue.turn_handle import TurnHandle
from voxtui.errors import VoxtuiError
from voxtui.settings.schema import Config

LEAVING_SECONDS = 0.3
"""Maximum wait for the components when quitting. The chat model's process ends within it."""

RINGING = -1
"""The result of a Silence that stopped a timer between two of its sentences."""

OUR_THREADS = "voxtui-"
"""Prefix of the names of all our threads."""

WAIT_SECONDS = 0.1
"""Interval of a wait for the source of a recording. Intervals are counted, because the clock goes
on during a suspend (Ctrl+Z)."""


@dataclass(frozen=True, slots=True)
class _Newer:
    """A StopFlag that is set as soon as there is a turn after `turn`."""

    inbox: Inbox
    turn: TurnHandle

    def is_set(self) -> bool:
        return self.inbox.newest is not self.turn


class Engine:
    """Drives devices and models through turns.

    `emit` is called on several threads and must return at once. Without `skills` the brain answers
    everything. If the models are not owned, a server runs several engines, so this engine does not
    report exceptions of other threads.
    """

    def __init__(
        self,
        models: Models,
        config: Config,
        emit: Callable[[Event], object],
        devices: Devices = NO_DEVICES,
        skills: Skills | None = None,
        front_end: FrontEnd = NO_FRONT_END,
    ) -> None:
        self._emit = emit
        self._inbox = Inbox()
        self._config = LiveConfig(config)
        self._components = Components(
            SoundDevices(devices, self.push, self._microphone_lost), models, self._config, emit
        )
        self._listener = Listener(models.detector, self._config, models.name_detector)
        overhearing = models.overhearing
        self._detectors = [detector for detector in (models.detector, overhearing) if detector]
        self._barge_in = VoiceBargeIn(overhearing, self._config) if overhearing else None
        self._history = History(self._config)
        self._dialogue = Dialogue(
            self._inbox,
            self._components,
            self._listener,
            self._history,
            self._config,
            emit,
            skills,
            ReplyOptions(),
            front_end,
        )
        self._turns = TurnTaking(self._dialogue)
        self._skills = skills
        self._announcer = Announcer(self._dialogue)
        self._owns_models = models.owned
        self._closing_at: float | None = None
        """Monotonic seconds of the first call of `close`."""
        self._excepthook = threading.excepthook
        self._thread = threading.Thread(target=self._run, name="voxtui-engine", daemon=True)

    # Any thread.

    @property
    def state(self) -> State:
        return self._dialogue.state

    @property
    def brain(self) -> Brain:
        """The brain in use. Raises ModelError while none is loaded."""
        return self._components.brain

    @property
    def past(self) -> Past:
        return self._history.past

    @property
    def level(self) -> float:
        return self._components.devices.level

    @property
    def seconds_left(self) -> float | None:
        return self._listener.seconds_left

    def start(self, past: Past = ()) -> None:
        """Start the thread, with the history `past`. Raises VoxtuiError if it cannot start."""
        self._history.resume(past)
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._thread.start()
        except RuntimeError as error:
            sentence = f"The system refused to start a thread ({error}): memory or process limit."
            raise VoxtuiError(sentence, "`ulimit -v` and `ulimit -u` show the limits.") from error
        if self._owns_models:
            threading.excepthook = self._thread_died

    def post(self, command: commands.Command) -> int:
        """Queue `command`, in order with all other commands and frames.

        Returns the number of the turn that it begins, answers or ends; 0 if there is none; a
        negative number for an announcement. What cannot wait for the engine's thread is done before
        this returns: the turn is cancelled, the voice is silenced, the microphone is attended.
        """
        if isinstance(command, commands.Mute):
            self._components.muted = command.muted
        begun = None
        if isinstance(command, commands.Typing):
            typed = self._inbox.typing
            begun = self._dialogue.local_time(typed.begun if typed.text else None)
        number = self._inbox.post(command, begun)
        if isinstance(command, commands.Silence | commands.Talk) and self._skills is not None:
            order = command if isinstance(command, commands.Silence) else commands.Silence()
            with skill_errors_logged():
                if self._skills.stop_ringing(order.snooze, order.missed) and not number:
                    number = RINGING
        if isinstance(command, commands.Talk):
            self._components.devices.attend(True)
        return number

    def push(self, frame: Frame) -> None:
        """Queue the next frame of any source. Speech in it may cancel the answer in progress."""
        if self.state is State.LOADING and not self._inbox.turn_waits:
            return  # no turn uses it, and thousands of frames may arrive during the loading
        answering, barge_in = self._inbox.answering, self._barge_in
        if (
            answering is not None
            and barge_in is not None
            and self._listener.may_interrupt(frame)
            and barge_in.interrupts(frame, answering.number)
        ):
            answering.cancel()
        self._inbox.push(frame)

    def close(self, seconds: float | None = None) -> None:
        """End the turn or the loading in progress, close every component, and join the thread.

        Waits for at most `seconds`, because loading a model cannot be interrupted. The time counts
        from the first call, so a front end may first call it with 0 and close its screen meanwhile.
        """
        if self._closing_at is None:
            self._closing_at = time.monotonic()
            self._components.closing = True
            self.post(commands.Quit())
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            waited = time.monotonic() - self._closing_at
            self._thread.join(None if seconds is None else max(0.0, seconds - waited))
        if self._owns_models:
            threading.excepthook = self._excepthook

    def _thread_died(self, bug: threading.ExceptHookArgs) -> None:
        """Report an exception of one of our threads; it ends the program. Runs on that thread."""
        ours = bug.thread is not None and bug.thread.name.startswith(OUR_THREADS)
        if self._components.closing or bug.exc_value is None or not ours:
            self._excepthook(bug)
        else:
            self._emit(Died(bug.exc_value))

    def _microphone_lost(self, opening: object, message: str) -> None:
        self.post(commands.DeviceLost(opening, message))

    # The engine's thread.

    def _run(self) -> None:
        """Load the components; then handle queued items until Quit. Runs on the engine's thread."""
        try:
            if self._skills is not None:
                with skill_errors_logged():
                    self._skills.start(self._announcer.report)
                    self._dialogue.options = ReplyOptions(tools=self._skills.tools)
            self._load()
            while not self._components.closing:
                item = self._next()
                if isinstance(item, Posted) and isinstance(item.command, commands.Quit):
                    break
                if item is None:
                    self._turns.act_on(self._listener.finish())
                else:
                    self._take(item)
                self._components.devices.attend(self._listener.attentive or self._inbox.turn_waits)
                self._replace_lost_speaker()
                if self._dialogue.is_idle:
                    self._announce()
        except Closing:
            pass
        except BaseException as error:  # noqa: BLE001 - the front end raises it
            self._emit(Died(error))
        finally:
            self._turns.idle.end()
            if self._skills is not None:
                with skill_errors_logged():
                    self._skills.close()
            self._components.close()

    def _next(self) -> Frame | Posted | None:
        """Return the next item; transcribe while waiting. None: the recording's source stopped."""
        while (wait_s := self._turns.idle.wait_s) is not None and self._inbox.empty():
            if wait_s > 0:
                with suppress(Empty):
                    return self._inbox.get(timeout=wait_s)
            else:
                self._turns.idle.step()
        waited, patience = 0.0, self._listener.patience_s
        while patience is None or waited < patience:
            if self._dialogue.is_idle and (events := self._components.devices.look()):
                self._components.report(events)
            idle_s = LOOK_SECONDS if self._components.devices.watched else None
            try:
                return self._inbox.get(timeout=idle_s if patience is None else WAIT_SECONDS)
            except Empty:
                waited += WAIT_SECONDS
        return None

    def _take(self, item: Frame | Posted) -> None:
        if isinstance(item, Frame):
            self._turns.hear(item)
            return
        command, turns = item.command, self._turns
        if isinstance(
            command,
            commands.NewTurn
            | commands.NewConversation
            | commands.ReplaceComponents
            | commands.RescanDevices
            | commands.Speak,
        ):
            turns.abandon_utterance()
        if item.turn is not None and isinstance(command, commands.NewTurn):
            self._inbox.taken = item.turn
            turns.take(command, item.turn, item.typed)
            return
        match command:
            case commands.Release():
                turns.release(command)
            case commands.Cancel() if item.turn is not None:
                turns.cancel_utterance(item.turn.number)
            case commands.Typing():
                # A later one, or a turn, is already in the inbox unless both are the newest.
                if item.typed is self._inbox.typing and not self._inbox.turn_waits:
                    turns.read_ahead(item.typed)
            case commands.Attach(attachment):
                turns.prefill.attach(attachment)
                turns.prefill.read_history()
            case commands.NewConversation(past):
                self._emit(ConversationLeft(self._history.past))
                self._history.forget()
                self._history.resume(past)
                turns.prefill.warn_of_sending(past)
                turns.prefill.read_history()
            case commands.RecallConversation():
                self._history.recall()
                turns.prefill.read_history()
            case commands.InsertTurn(turn, after, first):
                self._history.insert(turn, after, first)
            case commands.AddResult(finished):
                self._history.add_result(finished)
            case commands.RemovePart(number, user):
                self._history.remove(number, user)
            case commands.Truncate(number, seconds):
                turns.truncate(number, seconds)
            case commands.UseReplyOptions():
                turns.use_options(command)
            case commands.Sync():
                self._emit(Synced())
            case commands.ReplaceComponents():
                self._replace_parts(command)
            case commands.RescanDevices():
                self._rescan_devices()
            case commands.DeviceLost(opening, message):
                self._replace_microphone(opening, message)
            case commands.Ring(text) | commands.Speak(text) if item.turn is not None:
                self._announcer.add(text, item.turn, rings=isinstance(command, commands.Ring))
            case _:
                pass  # Silence and Mute are done by `post`, on the caller's thread

    def _load(self) -> None:
        self._dialogue.enter(State.LOADING)
        # Before the models, so that a silent microphone is noticed while they load.
        for event in self._components.devices.open():
            self._emit(event)
        try:
            warm_up(self._detectors, self._listener.name_detector)
            self._components.load(self._dialogue.loading_options)
        except VoxtuiError as error:
            self._fail(error)
            return
        self._emit(self._components.loaded())
        self._dialogue.enter(State.READY)
        self._turns.prefill.warn_of_sending(self._history.past)
        self._turns.prefill.read_history()

    def _fail(self, error: VoxtuiError) -> None:
        self._components.devices.close()
        self._emit(LoadFailed(error))

    def _replace_parts(self, change: commands.ReplaceComponents) -> None:
        """Use the components of `change`; if one of them fails, keep all present ones.

        If the present brain cannot be loaded again either, the start counts as failed.
        """
        self._turns.idle.end()  # it uses the brain, which may be closed
        if self._dialogue.state is State.LOADING:  # the start failed
            self._components.adopt(change)
            self._load()
            return
        self._dialogue.enter(State.LOADING)
        newest, changed = self._inbox.newest, False
        try:
            options = self._dialogue.loading_options
            tone = self._components.replace(change, options, _Newer(self._inbox, newest))
            self._listener.note_speech(tone)
            changed = True
        except VoxtuiError as error:
            self._emit(ChangeFailed(error))
            if not self._dialogue.config.loaded_brain:
                self._fail(error)
                return
        self._emit(self._components.loaded(changed))
        self._dialogue.enter(State.READY)
        if change.brain is not None:
            self._turns.prefill.warn_of_leaving()
        self._turns.prefill.read_history()

    def _replace_microphone(self, opening: object, message: str) -> None:
        """Replace the lost microphone, and answer the speech that it captured before."""
        if self._dialogue.state is State.LOADING or not self._components.devices.is_in_use(opening):
            return
        devices = self._components.devices
        lost = devices.microphone
        if not devices.is_unproven:  # the loss of the one before was reported
            self._emit(Notice(message))  # at once, because a sound server may hang
        events = devices.replace_microphone()
        if devices.microphone is None and lost is not None:
            sentence = f"The microphone {lost.name!r} is lost, and there is no other."
            events.append(Notice(sentence, "error"))
        self._components.report(events)
        if self._listener.source == MICROPHONE:
            self._turns.act_on(self._listener.finish())

    def _rescan_devices(self) -> None:
        if self._dialogue.state is State.LOADING:
            self._turns.refuse()
            return
        self._dialogue.enter(State.LOADING)
        self._components.report(self._components.devices.rescan_devices())
        self._dialogue.enter(State.READY)

    def _replace_lost_speaker(self) -> None:
        """Replace the speaker if it failed, while nobody speaks: nothing can be recorded then."""
        if not self._components.devices.speaker_lost or not self._dialogue.is_idle:
            return
        if self._components.devices.watched:
            self._dialogue.enter(State.LOADING)
        self._components.report(self._components.devices.replace_speaker())
        if self._components.devices.watched:
            self._dialogue.enter(State.READY)

    def _announce(self) -> None:
        if announcement := self._announcer.next():
            self._turns.idle.end()
            self._announcer.speak(announcement)
            self._replace_lost_speaker()
