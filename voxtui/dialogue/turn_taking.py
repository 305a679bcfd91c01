"""Turn-taking: what the engine's thread does with frames and commands, one turn at a time.

During an answer the thread is inside that turn. The turn's cancel flag ends the turn early; the
front end sets that flag at the key press.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty

from msgspec.structs import replace

from voxtui.dialogue.clock import clock_line
from voxtui.dialogue.commands import (
    Answer,
    Cancel,
    Command,
    DeviceLost,
    Edit,
    Give,
    NewConversation,
    Quit,
    RecallConversation,
    Redo,
    Release,
    ReplaceParts,
    RescanDevices,
    Ring,
    SendText,
    Talk,
    Truncate,
    TurnHandle,
    Typing,
    UseManner,
)
from voxtui.dialogue.data import MICROPHONE, REPLAY, TYPED, Frame, Utterance
from voxtui.dialogue.devices import LOOK_SECONDS, SoundDevices
from voxtui.dialogue.events import (
    Caption,
    Captured,
    ChangeFailed,
    Died,
    Event,
    LoadFailed,
    Loading,
    Notice,
    Rang,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.given import GivenText, estimated_tokens, fit
from voxtui.dialogue.history import History
from voxtui.dialogue.inbox import Inbox, now
from voxtui.dialogue.interfaces import (
    AS_CONFIGURED,
    Brain,
    Manner,
    OnWords,
    PastTurn,
    Skills,
    SpeechDetector,
    Voice,
)
from voxtui.dialogue.level import Clipping, describe_overflows, diagnose_level
from voxtui.dialogue.listening import (
    ENDING_SECONDS,
    Finished,
    Found,
    Listener,
    Recorded,
    Started,
    TooQuiet,
    VoiceBargeIn,
)
from voxtui.dialogue.loaders import Loaders
from voxtui.dialogue.marks import Mark, Marks, Outcome
from voxtui.dialogue.parts import Parts
from voxtui.dialogue.reading import ReadingProgress
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.turn import LiveTurn, speak_alone, take_turn, transcribe_idle
from voxtui.errors import ModelError, ModelLost, VoxtuiError
from voxtui.settings.schema import Config

SPOKEN_TURNS = 8
"""Finished turns of which may be said later how much was heard."""

WAIT_SECONDS = 0.1
"""Interval of a wait for the source of a recording. Intervals are counted, because the clock goes
on during a suspend (Ctrl+Z)."""

UNASKED_SECONDS = 0.3
"""The transcription of an utterance that is only kept waits so long, because an answer to it is
usually asked for at once, and works the words out better."""

UNASKED = "Speak first, as you were told to."
"""What the brain is asked where an answer is wanted and the user has said nothing."""

BEGUN_RECENTLY = timedelta(minutes=1)
"""A text that was begun longer ago gets the time of its last key. Until then the work on it stays
valid."""


class TurnTaking:
    """Takes frames and commands out of the inbox, and drives the parts through turns.

    Everything runs on the engine's thread. Other threads may read `state`, `answering`, `parts`
    and `listener`, and set `closing`. For the parameters see Engine.
    """

    def __init__(
        self,
        inbox: Inbox,
        devices: SoundDevices,
        detector: SpeechDetector,
        brain: Brain | Loaders[Brain],
        voice: Voice | Loaders[Voice] | None,
        config: Config,
        emit: Callable[[Event], object],
        barge_in: VoiceBargeIn | None,
        skills: Skills | None,
        local: bool,
        captions: bool,
    ) -> None:
        self.state = State.LOADING
        self.answering: TurnHandle | None = None
        self.closing = False
        self.parts = Parts(devices, brain, voice, config, emit, self._progress)
        self.listener = Listener(detector, config)
        self._inbox = inbox
        self._emit = emit
        self._barge_in = barge_in
        self._skills = skills
        self._local = local
        self._captions = captions
        self._clipping = Clipping()
        self._warned_of_end: int | None = None
        """the turn whose end was announced"""
        self._history = History(config.history)
        self._rings: deque[str] = deque()
        """sentences that wait until neither side speaks"""
        self._rung = 0
        self._said = ("", 0.0)
        """our latest speech, and when it ended (monotonic seconds)"""
        self._turn: LiveTurn | None = None
        """the turn whose utterance is being recorded"""
        self._inputs: dict[int, Utterance | str] = {}
        """the user's part of the latest turns, by number, for `redo`"""
        self._manner, self._answers = AS_CONFIGURED, True
        self._kept: LiveTurn | None = None
        """the newest turn whose utterance was only kept"""
        self._spoken: deque[LiveTurn] = deque(maxlen=SPOKEN_TURNS)
        """the latest turns that were spoken, for `truncate`"""
        self._idle_at = 0.0
        """monotonic seconds before which that transcription waits"""
        self._idle: Generator[None, None, None] | None = None
        """the transcription that runs while the inbox is empty"""
        self._reading = ReadingProgress()

    def run(self) -> None:
        """Load the parts; then take one item after the other until Quit. The engine's thread."""
        try:
            if self._skills is not None:
                self._skills.start(self._take_skill_event)
            self._load()
            while not self.closing and not isinstance(item := self._next(), Quit):
                if item is None:
                    self._act(self.listener.finish())
                else:
                    self._take(item)
                if self.parts.devices.speaker_lost:
                    self._report_devices(self.parts.devices.replace_speaker())
                if self._rings and self._is_quiet:
                    self._ring(self._rings.popleft())
        except Closing:
            pass
        except BaseException as error:  # noqa: BLE001 - the front end raises it
            self._emit(Died(error))
        finally:
            self._end_idle()
            if self._skills is not None:
                self._skills.close()
            self.parts.close()

    def _set_state(self, state: State) -> None:
        self.state = state
        self._emit(StateChanged(state))

    def _next(self) -> Frame | Command | None:
        """Return the next item; None once the source of the recording has stopped.

        While there is none, transcribe the last utterance, a token at a time.
        """
        if (frame := self._inbox.replayed()) is not None:
            return frame
        while self._idle is not None and self._inbox.empty():
            if (early := self._idle_at - time.monotonic()) > 0:
                with suppress(Empty):
                    return self._inbox.get(timeout=early)
            else:
                self._step_idle(self._idle)
        waited, patience = 0.0, self.listener.patience_s
        while patience is None or waited < patience:
            self._look_for_devices()
            idle_s = LOOK_SECONDS if self.parts.devices.missing else None
            try:
                return self._inbox.get(timeout=idle_s if patience is None else WAIT_SECONDS)
            except Empty:
                waited += WAIT_SECONDS
        return None

    def _take(self, item: Frame | Command) -> None:
        match item:
            case Frame():
                self._hear(item)
            case Talk(handle, at, source, paced):
                self._inbox.taken = handle
                self._abandon_utterance()
                self._begin(handle, at, source, paced)
            case Release(at, number, answers):
                self._release(at, number, answers)
            case Answer(handle, manner):
                self._inbox.taken = handle
                self._abandon_utterance()
                self._answer_history(handle, manner or self._manner)
            case UseManner():
                self._use_manner(item)
            case Edit(change):
                change(self._history)
            case Truncate(number, seconds):
                self._truncate(number, seconds)
            case SendText(handle, text, begun):
                self._inbox.taken = handle
                self._abandon_utterance()
                self._answer_text(handle, text.strip(), begun)
            case Give(given):
                self._give(given)
            case Typing(text, cancelled, begun):
                # A later one, or a turn, is already in the inbox unless both are the newest.
                if text and item is self._inbox.typing and not self._inbox.turn_waits:
                    self._read_ahead(text, cancelled, begun)
            case Redo(handle, again, text):
                self._inbox.taken = handle
                self._abandon_utterance()
                self._redo(handle, again, text)
            case Cancel(number):
                if self._turn is not None and self._turn.number == number:
                    self._abandon_utterance()
                    self.listener.skip()
            case NewConversation():
                self._abandon_utterance()
                self._history.forget()
                self._read_past()
            case RecallConversation():
                self._history.recall()
                self._read_past()
            case ReplaceParts():
                self._abandon_utterance()
                self._replace_parts(item)
            case RescanDevices():
                self._abandon_utterance()
                self._rescan_devices()
            case DeviceLost(opening, message):
                self._replace_microphone(opening, message)
            case Ring(sentence):
                self._rings.append(sentence)
            case Quit():
                pass

    # Parts.

    def _load(self) -> None:
        self._set_state(State.LOADING)
        # Before the models, so that a silent microphone is noticed while they load.
        for event in self.parts.devices.open():
            self._emit(event)
        try:
            self.listener.warm_up()
            if self._barge_in is not None:
                self._barge_in.warm_up()
            self.parts.load()
        except VoxtuiError as error:
            self.parts.devices.close()
            self._emit(LoadFailed(error))
            return
        self._emit(self.parts.loaded())
        self._set_state(State.READY)

    def _progress(self, step: str, fraction: float | None) -> None:
        if self.closing:
            raise Closing
        self._emit(Loading(step, fraction))

    def _replace_parts(self, change: ReplaceParts) -> None:
        """Use the parts of `change`; if one of them fails, keep all present parts."""
        self._end_idle()  # it uses the brain, which may be closed
        if self.state is State.LOADING:  # the start failed
            self.parts.adopt(change)
            self.listener.use(change.config)
            self._load()
            return
        self._set_state(State.LOADING)
        newest, changed = self._inbox.newest, False
        try:
            tone = self.parts.replace(change, lambda: self._inbox.newest is not newest)
            self._ignore_echo(tone)
            self.listener.use(change.config)
            changed = True
        except VoxtuiError as error:
            self._emit(ChangeFailed(error))
        self._emit(self.parts.loaded(changed))
        self._set_state(State.READY)
        if change.brain is not None and (leaving := self._leaving()):
            self._emit(Notice(f"This conversation has a given text.{leaving}"))
        self._read_past()

    def _replace_lost_brain(self, reason: ModelLost) -> None:
        self._set_state(State.LOADING)
        self.parts.replace_lost_brain(reason)
        self._emit(self.parts.loaded())
        self._set_state(State.READY)
        self._read_past()

    def _replace_microphone(self, opening: object, message: str) -> None:
        """Replace the lost microphone; answer the speech that it had captured."""
        if self.state is State.LOADING or not self.parts.devices.is_in_use(opening):
            return
        if not self.parts.devices.is_unproven:  # the loss of the one before was reported
            self._emit(Notice(message, "error"))
        self._report_devices(self.parts.devices.replace_microphone())
        if self.listener.source == MICROPHONE:
            self._act(self.listener.finish())

    def _rescan_devices(self) -> None:
        if self.state is State.LOADING:
            self._refuse()
            return
        self._set_state(State.LOADING)
        self._report_devices(self.parts.devices.rescan_devices())
        self._set_state(State.READY)

    def _look_for_devices(self) -> None:
        """Bring back what is missing, between two turns."""
        if self.state is State.READY and self._turn is None:
            events = self.parts.devices.look()
            if events:
                self._report_devices(events)

    def _report_devices(self, events: list[Event]) -> None:
        """Report the parts in use, then the events that explain the change."""
        self._emit(self.parts.loaded())
        for event in events:
            self._emit(event)

    def _refuse(self) -> None:
        self._emit(Notice("No model is loaded. `voxtui doctor` says what is missing."))

    # Listening.

    def _hear(self, frame: Frame) -> None:
        if self.state is not State.LOADING:
            if frame.source == MICROPHONE and (events := self.parts.devices.delivered()):
                self._report_devices(events)
            found = self.listener.push(frame)
            if isinstance(found, Recorded) and frame.source == MICROPHONE:
                self._warn(frame)
            self._act(found)

    def _warn(self, frame: Frame) -> None:
        """Report an overdriven microphone, and the end of a recording that is close."""
        microphone, turn, left = (
            self.parts.devices.microphone,
            self._turn,
            self.listener.seconds_left,
        )
        if microphone and (sentence := self._clipping.push(microphone.name, frame.samples)):
            self._emit(Notice(sentence))
        limit = self.parts.config.audio.max_utterance_s
        near = left is not None and left <= min(ENDING_SECONDS, limit / 2)
        if near and turn is not None and turn.number != self._warned_of_end:
            self._warned_of_end = turn.number
            end = f"a recording ends after {limit:g} s (audio.max_utterance_s)"
            self._emit(Notice(f"{left:.0f} s are left: {end}."))

    def _act(self, found: Found) -> None:
        match found:
            case Recorded():
                self.parts.brain.wake()
            case Started(at):
                self._begin_hands_free(at)
            case Finished() | TooQuiet():
                self._answer_recording(found)
            case None:
                pass

    def _begin_hands_free(self, at: float) -> None:
        """Begin a turn, unless a newer command is still in the inbox."""
        handle = TurnHandle(0)
        if not self._inbox.begin(handle):
            return
        self._begin(handle, at, MICROPHONE, paced=True, hands_free=True)
        if self._turn is not None:
            self._turn.keeps = not self._answers

    def _begin(
        self, handle: TurnHandle, at: float, source: str, paced: bool, hands_free: bool = False
    ) -> None:
        turn = self._live(handle, source, paced)
        if self.state is State.LOADING:
            self._refuse()
            self._finish(turn, Outcome.CANCELLED)
            return
        if source == MICROPHONE and self.parts.devices.microphone is None:
            self._emit(Notice("There is no microphone. Type, or play a sample clip."))
            self._finish(turn, Outcome.CANCELLED)
            return
        self._turn = turn
        turn.manner = self._manner_at(self.local_time())
        self._emit(TurnStarted(handle.number, source, handle.marks))
        self._set_state(State.LISTENING)
        preroll = self.listener.begin(source, at, hands_free)
        recording = self.listener.recording
        assert recording is not None
        self.parts.brain.listen(
            self._history.past, recording, handle.cancelled, turn.manner, self._on_words(handle)
        )
        self._inbox.replay(preroll)

    def _on_words(self, handle: TurnHandle) -> OnWords | None:
        """Return what reports the words so far of a turn, on a thread of the brain."""

        def report(text: str, settled: int) -> None:
            if not handle.cancelled.is_set():
                self._emit(Caption(handle.number, text, settled))

        return report if self._captions else None

    def _release(self, at: float, number: int | None, answers: bool) -> None:
        turn = self._turn
        if turn is None or number not in (None, turn.number):
            return
        turn.keeps = not answers
        self._act(self.listener.release(at))

    def _abandon_utterance(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self.listener.abandon()
        turn.handle.cancel()
        self._finish(turn, Outcome.CANCELLED)

    # Answering.

    def _answer_recording(self, found: Finished | TooQuiet) -> None:
        turn, self._turn = self._turn, None
        assert turn is not None
        if turn.cancelled:  # its Cancel, or the next turn, is still in the inbox
            self._finish(turn, Outcome.CANCELLED)
            return
        turn.handle.marks.mark(Mark.RELEASED, found.released_at)
        turn.handle.marks.mark(Mark.CAPTURED)
        if found.too_long:
            limit = f"{self.parts.config.audio.max_utterance_s:g} s (audio.max_utterance_s)"
            self._emit(Notice(f"Stopped listening after {limit}. Later speech was not recorded."))
        if found.overflows:
            self._emit(Notice(describe_overflows(found.overflows)))
        if isinstance(found, Finished):
            self._take_input(turn, found.utterance)
            if turn.source == MICROPHONE:
                turn.spoken = self._spoken_over(found.utterance)
            turn.handle.marks.mark(Mark.SPEECH_ENDED, found.utterance.ended_at)
            self._emit(Captured(turn.number, found.utterance))
            if turn.keeps:
                self._keep(turn, found.utterance)
            else:
                self._answer(turn)
            return
        turn.handle.cancelled.set()  # it ends the brain's speculative work
        if not found.tap:
            self._explain_silence(found)
        self._finish(turn, Outcome.CANCELLED if found.tap else Outcome.NO_SPEECH)

    def _explain_silence(self, found: TooQuiet) -> None:
        microphone = self.parts.devices.microphone
        if microphone is None or found.peak is None:
            return
        if why := diagnose_level(microphone.name, found.peak):
            self._emit(Notice(why))

    def _keep(self, turn: LiveTurn, utterance: Utterance) -> None:
        """Put the utterance into the history. It is transcribed unless an answer is asked for."""
        self._end_idle()
        self._history.insert(PastTurn(utterance, None, (), number=turn.number))
        self._kept, turn.handle.kept = turn, True
        self._idle_at = time.monotonic() + UNASKED_SECONDS
        self._idle = transcribe_idle(turn, self.parts, self._history, self._emit)
        self._set_state(State.READY)

    def _answer_history(self, handle: TurnHandle, manner: Manner) -> None:
        turn = self._live(handle, TYPED)
        if handle.over:  # nothing was said in the utterance
            self._finish(turn, Outcome.NO_SPEECH)
            return
        if self._kept is not None and self._kept.handle is handle:
            turn, self._kept = self._kept, None  # the answer works its words out
            turn.keeps = False
        else:
            self._emit(TurnStarted(turn.number, turn.source, handle.marks))
        self._end_idle()
        asked, turn.manner, turn.past = self._history.unanswered, manner, self._history.past
        if asked is None:
            turn.user_input = UNASKED
        else:
            turn.past, turn.user_input, turn.words = turn.past[:-1], asked.user_input, asked.words
        self._answer(turn)

    def _use_manner(self, change: UseManner) -> None:
        known, self._manner, self._answers = self._manner, change.manner, change.answers
        if change.vad is not None:
            self.parts.config = replace(self.parts.config, vad=change.vad)
            self.listener.use(self.parts.config)
            if self._barge_in is not None:
                self._barge_in.use(change.vad)
        if self.state is State.READY and self._turn is None and known != change.manner:
            never = threading.Event()
            self.parts.brain.listen(self._history.past, Recording(), never, self._manner)

    def _truncate(self, number: int, seconds: float) -> None:
        for turn in self._spoken:
            if turn.number == number and turn.speech is not None:
                heard = turn.speech.heard(turn.reply, seconds)
                self._history.cut(number, heard)
                self._emit(SpokenUpTo(number, heard))

    def _answer_text(self, handle: TurnHandle, text: str, begun: datetime | None) -> None:
        turn = self._live(handle, TYPED)
        turn.manner = self._manner_at(self.local_time(begun))
        self._take_input(turn, text)
        self._emit(TurnStarted(turn.number, TYPED, handle.marks))
        if text:
            self._emit(UserWords(turn.number, text))
            self._answer(turn)
        else:
            self._finish(turn, Outcome.NO_SPEECH)

    def _give(self, given: GivenText) -> None:
        """Add what fits of a text to the history, and say what does not."""
        used = sum(estimated_tokens(turn.user_text) for turn in self._history.past if turn.given)
        most = self.parts.config.input.tokens(self.parts.brain_name)
        kept, said = fit(given, most - used)
        if kept is not None:
            self._history.give(kept.as_turn())
            said += self._leaving()
        complete = kept is not None and kept.text == given.text and not self.parts.sends_to
        self._emit(Notice(said, "information" if complete else "warning"))
        self._read_past()

    def _leaving(self) -> str:
        """Return where given texts go that leave this machine; empty: they stay here."""
        hosts = self.parts.sends_to
        if not hosts or not any(turn.given for turn in self._history.past):
            return ""
        return f" It goes to {hosts} with your next words, unless you begin a new conversation."

    def _read_past(self) -> None:
        """Let the brain read the history while nobody speaks."""
        if self.state is State.READY and self._turn is None:
            never = threading.Event()
            self.parts.brain.read(self._history.past, self._report_reading, never, self._manner)

    def _report_reading(self, done: int, total: int) -> None:
        if (reading := self._reading.take(done, total)) is not None:
            self._emit(reading)

    def _read_ahead(self, text: str, cancelled: threading.Event, begun: datetime | None) -> None:
        if self.state is State.READY:
            manner = self._manner_at(begun)
            self.parts.brain.read_ahead(self._history.past, text, cancelled, manner)

    def local_time(self, begun: datetime | None = None) -> datetime | None:
        """Return the time that the brain is told, or None if it is told none. Any thread.

        That is `begun`, when the user began, if it is not long ago.
        """
        if self._skills is None or not self.parts.config.brain.clock:
            return None
        now = self._skills.now()
        return begun if begun is not None and abs(now - begun) < BEGUN_RECENTLY else now

    def _manner_at(self, at: datetime | None) -> Manner:
        """Return how to answer a turn that began `at` this local time."""
        if at is None:
            return self._manner
        return self._manner.with_clock(clock_line(at, self._history.past))

    def _redo(self, handle: TurnHandle, again: int, text: str | None) -> None:
        """Ask again after the same history, so that two answers can be compared."""
        user_input = self._inputs.get(again) if text is None else text.strip()
        typed = isinstance(user_input, str)
        turn = self._live(handle, TYPED if typed else REPLAY, paced=typed)
        if not user_input or self.state is State.LOADING:
            self._emit(Notice("The input of that turn is no longer in memory."))
            self._finish(turn, Outcome.CANCELLED)
            return
        self._take_input(turn, user_input)
        replaces = again if self._history.newest == again else None
        self._emit(TurnStarted(turn.number, turn.source, handle.marks, replaces))
        before = self._history.past
        self._history.take_back(again)
        past = self._history.past
        turn.manner = self._manner_at(self.local_time())
        if isinstance(user_input, str):
            self._emit(UserWords(turn.number, user_input))
        else:
            self._emit(Captured(turn.number, user_input))
            handle.marks.mark(Mark.CAPTURED)
            self.parts.brain.listen(past, Recording(), handle.cancelled, turn.manner)
        self._answer(turn)
        if self._history.past is past and replaces:  # nothing was heard of the new answer
            self._history.past = before

    def _take_input(self, turn: LiveTurn, user_input: Utterance | str) -> None:
        """Set the user's part of `turn`, and keep it for `redo`."""
        turn.user_input = self._inputs[turn.number] = user_input
        while len(self._inputs) > max(1, self.parts.config.history.turns):
            del self._inputs[next(iter(self._inputs))]

    def _answer(self, turn: LiveTurn) -> None:
        if self.state is State.LOADING:
            self._refuse()
            self._finish(turn, Outcome.FAILED, "No model is loaded.")
            return
        self._end_idle()
        self.answering = turn.handle
        try:
            result = take_turn(
                turn, self.parts, self._history, self._emit, self._set_state, self._skills
            )
        finally:
            self.answering = None
            self._note_speech(turn.reply, turn.handle.marks)
        if turn.speech is not None:
            self._spoken.append(turn)
        self._emit(TurnFinished(result))
        if isinstance(turn.error, ModelLost) and self.parts.has_next_brain:
            self._replace_lost_brain(turn.error)
            return
        if self._wants_transcript(turn):
            self._idle = transcribe_idle(turn, self.parts, self._history, self._emit)
            self._idle_at = 0.0
        self._set_state(State.READY)
        self._read_past()

    # Timers and reminders.

    def _take_skill_event(self, event: Event) -> None:
        """Report an event of the skills, and have it spoken. Runs on their thread."""
        self._emit(event)
        if isinstance(event, Rang):
            self._inbox.put(Ring(event.sentence))

    @property
    def _is_quiet(self) -> bool:
        """True while neither side speaks and no turn waits in the inbox."""
        return self.state is State.READY and self._turn is None and not self._inbox.turn_waits

    def _ring(self, sentence: str) -> None:
        """Speak a sentence twice. It is not a turn: no history, no numbers."""
        if not self.parts.can_speak():
            return
        self._end_idle()
        self._rung += 1
        handle = TurnHandle(-self._rung)
        self._inbox.ringing = self.answering = handle
        try:
            speak_alone(f"{sentence} {sentence}", handle, self.parts, self._emit, self._set_state)
        finally:
            handle.over = True
            self._inbox.ringing = self.answering = None
            self._note_speech(sentence, handle.marks)
        self._set_state(State.READY)

    def _finish(self, turn: LiveTurn, outcome: Outcome, error: str | None = None) -> None:
        """Report the end of a turn that was not answered."""
        self._emit(TurnFinished(turn.finished(outcome, error)))
        self._set_state(State.LOADING if self.state is State.LOADING else State.READY)

    def _live(self, handle: TurnHandle, source: str, paced: bool = True) -> LiveTurn:
        name = self.parts.brain_name
        return LiveTurn(handle, source, paced, name, self._local, manner=self._manner)

    def _note_speech(self, spoken: str, marks: Marks) -> None:
        if marks.at(Mark.FIRST_SOUND) is not None:
            self._said = (spoken, now(marks.at(Mark.LAST_SOUND)))
        self._ignore_echo(marks)

    def _spoken_over(self, utterance: Utterance) -> str:
        """Return our speech that an utterance over it may be an echo of; empty: none."""
        spoken, ended_at = self._said
        if not self.parts.config.vad.listen_while_speaking or not utterance.speech:
            return ""
        began_at = utterance.ended_at - (utterance.speech[-1][1] - utterance.speech[0][0])
        return spoken if began_at < ended_at else ""

    def _ignore_echo(self, marks: Marks) -> None:
        first, last = marks.at(Mark.FIRST_SOUND), marks.at(Mark.LAST_SOUND)
        if first is not None:
            self.listener.ignore_echo(first, now(last))

    # The transcription while the inbox is empty.

    def _wants_transcript(self, turn: LiveTurn) -> bool:
        wanted = self.parts.config.brain.idle_transcript and turn.words is None
        return wanted and turn.error is None and isinstance(turn.user_input, Utterance)

    def _step_idle(self, idle: Generator[None, None, None]) -> None:
        try:
            next(idle)
        except StopIteration:
            self._idle = None
        except ModelError as error:
            self._idle = None
            self._emit(Notice(f"Your words could not be transcribed. {error}"))
            if isinstance(error, ModelLost) and self.parts.has_next_brain:
                self._replace_lost_brain(error)

    def _end_idle(self) -> None:
        """Drop the transcription; but finish it for an utterance that has no answer."""
        while self._kept is not None and self._idle is not None and not self.closing:
            self._step_idle(self._idle)
        if self._idle is not None:
            self._idle.close()
        self._idle = self._kept = None


class Closing(Exception):
    """Aborts the loading, because the program ends."""
