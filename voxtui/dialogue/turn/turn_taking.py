"""Turn-taking: one turn at a time, from the talk key or the text to the end of its answer."""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import datetime

from msgspec.structs import replace

from voxtui.dialogue.commands import (
    Answer,
    NewTurn,
    Redo,
    Release,
    SendText,
    Talk,
    UseReplyOptions,
)
from voxtui.dialogue.data import MICROPHONE, REPLAY, TYPED, Frame, Utterance
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import (
    Captured,
    Notice,
    SpokenUpTo,
    State,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.inbox import TypedText
from voxtui.dialogue.listening.listener import (
    Finding,
    Finished,
    Recorded,
    Started,
    TooQuiet,
)
from voxtui.dialogue.protocols import (
    Past,
    PastTurn,
    ReplyOptions,
    TurnRequest,
)
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Outcome
from voxtui.dialogue.turn.idle_transcript import IdleTranscript
from voxtui.dialogue.turn.prefill import HistoryPrefill
from voxtui.dialogue.turn.recording_warnings import RecordingWarnings
from voxtui.dialogue.turn.turn import LiveTurn, captions, take_turn
from voxtui.dialogue.turn.turn_clock import TurnClock
from voxtui.dialogue.turn_handle import TurnHandle
from voxtui.errors import ModelLost

SPOKEN_TURNS = 8
"""Spoken turns whose playback length a client may still report (`truncate`)."""

UNASKED = "Speak first, as you were told to."
"""The question to the brain where an answer is wanted and the user has said nothing."""


class TurnTaking:
    """Begins turns, ends their recordings and has them answered. The history keeps them.

    Everything runs on the engine's thread. Other threads may read `clock`. `captions`: see Engine.
    """

    def __init__(self, dialogue: Dialogue, captions: bool) -> None:
        self.clock = TurnClock(dialogue.skills, dialogue.config)
        self.idle = IdleTranscript(dialogue, self._replace_lost_brain)
        self.reader = HistoryPrefill(dialogue)
        self._dialogue = dialogue
        self._captions = captions
        self._advice = RecordingWarnings(dialogue)
        self._turn: LiveTurn | None = None
        """the turn whose utterance is being recorded"""
        self._inputs: dict[int, Utterance | str] = {}
        """the user's part of the latest turns, by number, for `redo`"""
        self._spoken: deque[LiveTurn] = deque(maxlen=SPOKEN_TURNS)
        """the latest turns that were spoken, for `truncate`"""
        tools = dialogue.skills.tools if dialogue.skills and dialogue.local else ()
        self._options, self._answers = ReplyOptions(tools=tools), True

    @property
    def is_quiet(self) -> bool:
        return self._dialogue.state is State.READY and self._turn is None

    @property
    def first_options(self) -> ReplyOptions:
        """Return the options of a conversation that begins now; without the time if one goes on."""
        past = self._dialogue.history.past
        return self._options if past else self.clock.with_time(self._options, past)

    def take(self, command: NewTurn, handle: TurnHandle, typed: TypedText) -> None:
        """Begin the turn of `command`, or answer it to its end. The text before it is `typed`."""
        match command:
            case Talk(at, source, paced):
                assert at is not None  # the inbox has set it
                self.begin(handle, at, source, paced)
            case SendText(text):
                self.answer_text(handle, text.strip(), typed.begun if typed.text else None)
            case Answer(options):
                self.answer_history(handle, options)
            case Redo(again, text):
                self.redo(handle, again, text)

    # Listening.

    def hear(self, frame: Frame) -> None:
        if self._dialogue.state is State.LOADING:
            return
        if frame.source == MICROPHONE and (events := self._dialogue.components.devices.delivered()):
            self._dialogue.components.report(events)
        finding = self._dialogue.listener.push(frame)
        if isinstance(finding, Recorded) and self._turn is not None:
            self._advice.during(frame, self._turn.number)
        self.act_on(finding)

    def act_on(self, finding: Finding) -> None:
        """Begin or answer the turn that the listener found."""
        match finding:
            case Recorded():
                self._dialogue.components.brain.wake()
            case Started(at):
                self._begin_hands_free(at)
            case Finished() | TooQuiet():
                self._answer_recording(finding)
            case None:
                pass

    def _begin_hands_free(self, at: float) -> None:
        """Begin a turn, unless a newer command is still in the inbox."""
        handle = self._dialogue.inbox.begin()
        if handle is None:
            return
        self.begin(handle, at, MICROPHONE, paced=True, hands_free=True)
        if self._turn is not None:
            self._turn.answers = self._answers

    def begin(
        self, handle: TurnHandle, at: float, source: str, paced: bool, hands_free: bool = False
    ) -> None:
        """Record an utterance of `source` from `at` (monotonic seconds) on."""
        turn = self._live(handle, source, paced)
        if self._dialogue.state is State.LOADING:
            self.refuse()
            self._finish(turn, Outcome.CANCELLED)
            return
        if source == MICROPHONE and self._dialogue.components.devices.microphone is None:
            self._dialogue.emit(Notice("There is no microphone. Type, or play a sample clip."))
            self._finish(turn, Outcome.CANCELLED)
            return
        self._turn = turn
        turn.options = self.clock.with_time(self._options, self._dialogue.history.past)
        self._dialogue.emit(TurnStarted(handle.number, source, handle.timestamps, at=at))
        self._dialogue.enter(State.LISTENING)
        preroll = self._dialogue.listener.begin(source, at, hands_free)
        recording = self._dialogue.listener.recording
        assert recording is not None
        on_words = captions(handle, self._dialogue.emit) if self._captions else None
        self._dialogue.components.brain.listen(
            TurnRequest(
                self._dialogue.history.past, cancelled=handle.cancelled, options=turn.options
            ),
            recording,
            on_words=on_words,
        )
        self._dialogue.inbox.replay(preroll)

    def release(self, release: Release) -> None:
        """End the recording of the turn that `release` names, or of any turn."""
        turn = self._turn
        if turn is None or release.turn not in (None, turn.number):
            return
        assert release.at is not None  # the inbox has set it
        turn.answers = release.answers
        self.act_on(self._dialogue.listener.release(release.at, complete=not turn.answers))

    def cancel_utterance(self, number: int) -> None:
        """Drop the recording of the turn `number`; hands-free, ignore the speech in progress."""
        if self._turn is not None and self._turn.number == number:
            self.abandon_utterance()
            self._dialogue.listener.skip()

    def abandon_utterance(self) -> None:
        """Drop the recording in progress, if there is one."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._dialogue.listener.abandon()
        turn.handle.cancel()
        self._finish(turn, Outcome.CANCELLED)

    # Answering.

    def _answer_recording(self, finding: Finished | TooQuiet) -> None:
        turn, self._turn = self._turn, None
        assert turn is not None
        if turn.cancelled:  # its Cancel, or the next turn, is still in the inbox
            self._finish(turn, Outcome.CANCELLED)
            return
        # Sound that came faster than it was spoken is dated into the future.
        now = time.monotonic()
        turn.handle.timestamps.record(Milestone.RELEASED, min(finding.released_at, now))
        turn.handle.timestamps.record(Milestone.CAPTURED)
        self._advice.after(finding)
        if isinstance(finding, Finished):
            self._take_input(turn, finding.utterance)
            turn.spoken = finding.spoken
            turn.handle.timestamps.record(
                Milestone.SPEECH_ENDED, min(finding.utterance.ended_at, now)
            )
            turn.handle.committed = (
                not turn.answers
            )  # before others hear of it, and ask for an answer
            self._dialogue.emit(Captured(turn.number, finding.utterance))
            if turn.answers:
                self._answer(turn)
            else:
                self._commit(turn, finding.utterance)
            return
        turn.handle.cancelled.set()  # it ends the brain's speculative work
        self._finish(turn, Outcome.CANCELLED if finding.tap else Outcome.NO_SPEECH)

    def answer_text(self, handle: TurnHandle, text: str, begun: datetime | None) -> None:
        """Answer a typed text, which was begun at that local time."""
        turn = self._live(handle, TYPED)
        turn.options = self.clock.with_time(self._options, self._dialogue.history.past, begun)
        self._take_input(turn, text)
        self._dialogue.emit(TurnStarted(turn.number, TYPED, handle.timestamps))
        if text:
            self._dialogue.emit(UserWords(turn.number, text))
            self._answer(turn)
        else:
            self._finish(turn, Outcome.NO_SPEECH)

    def _commit(self, turn: LiveTurn, utterance: Utterance) -> None:
        """Put the utterance into the history. It is transcribed unless an answer is asked for."""
        self.idle.end()
        self._dialogue.history.insert(PastTurn(utterance, None, (), number=turn.number))
        self.idle.begin_unanswered(turn, utterance)
        self._dialogue.enter(State.READY)

    def answer_history(self, handle: TurnHandle, options: ReplyOptions | None) -> None:
        """Answer the last words of the user, else speak unasked. `options` are of this answer."""
        turn = self._live(handle, TYPED)
        if handle.over:  # nothing was said in the utterance
            self._finish(turn, Outcome.NO_SPEECH)
            return
        if committed := self.idle.take_back(handle):
            turn, committed.answers = committed, True
        else:
            self._dialogue.emit(TurnStarted(turn.number, turn.source, handle.timestamps))
        self.idle.end()
        unanswered, turn.options = self._dialogue.history.unanswered, options or self._options
        turn.past = self._dialogue.history.past
        if unanswered is None:
            turn.user_input = UNASKED
        else:
            turn.past, turn.words = turn.past[:-1], unanswered.words
            turn.user_input = unanswered.user_input
        self._answer(turn)

    def drop_answer(self, handle: TurnHandle) -> None:
        """Report the end of a turn whose answer came too late. The next turn goes on."""
        turn = self._live(handle, TYPED)
        if not handle.committed:
            self._dialogue.emit(TurnStarted(turn.number, turn.source, handle.timestamps))
        self._dialogue.emit(TurnFinished(turn.finished(Outcome.CANCELLED)))

    def redo(self, handle: TurnHandle, again: int, text: str | None) -> None:
        """Ask again after the same history, so that two answers can be compared."""
        user_input = self._inputs.get(again) if text is None else text.strip()
        typed = isinstance(user_input, str)
        turn = self._live(handle, TYPED if typed else REPLAY, paced=typed)
        if not user_input or self._dialogue.state is State.LOADING:
            self._dialogue.emit(Notice("The input of that turn is no longer in memory."))
            self._finish(turn, Outcome.CANCELLED)
            return
        self._take_input(turn, user_input)
        replaces = again if self._dialogue.history.newest == again else None
        self._dialogue.emit(TurnStarted(turn.number, turn.source, handle.timestamps, replaces))
        before = self._dialogue.history.past
        self._dialogue.history.take_back(again)
        past = self._dialogue.history.past
        turn.options = self.clock.with_time(self._options, past)
        if isinstance(user_input, str):
            self._dialogue.emit(UserWords(turn.number, user_input))
        else:
            self._dialogue.emit(Captured(turn.number, user_input))
            handle.timestamps.record(Milestone.CAPTURED)
            self._dialogue.components.brain.listen(
                TurnRequest(past, cancelled=handle.cancelled, options=turn.options), Recording()
            )
        self._answer(turn)
        if self._dialogue.history.past is past and replaces:  # nothing was heard of the new answer
            self._dialogue.history.past = before

    def _take_input(self, turn: LiveTurn, user_input: Utterance | str) -> None:
        """Set the user's part of `turn`, and keep it for `redo`."""
        turn.user_input = self._inputs[turn.number] = user_input
        while len(self._inputs) > max(1, self._dialogue.components.config.history.turns):
            del self._inputs[next(iter(self._inputs))]

    def _answer(self, turn: LiveTurn) -> None:
        if self._dialogue.state is State.LOADING:
            self.refuse()
            self._finish(turn, Outcome.FAILED, "No model is loaded.")
            return
        self.idle.end()
        self._dialogue.inbox.answering = turn.handle
        try:
            result = take_turn(turn, self._dialogue, self._read)
        finally:
            self._dialogue.inbox.answering = None
            self._dialogue.listener.note_speech(turn.handle.timestamps, turn.reply)
        if turn.speech is not None:
            self._spoken.append(turn)
        self._dialogue.emit(TurnFinished(result))
        if isinstance(turn.error, ModelLost) and self._dialogue.components.has_next_brain:
            self._replace_lost_brain(turn.error)
            return
        self.idle.begin(turn)
        self._dialogue.enter(State.READY)
        self.read_past()

    def _finish(self, turn: LiveTurn, outcome: Outcome, error: str | None = None) -> None:
        self._dialogue.emit(TurnFinished(turn.finished(outcome, error)))
        self._dialogue.enter(
            State.LOADING if self._dialogue.state is State.LOADING else State.READY
        )

    def _live(self, handle: TurnHandle, source: str, paced: bool = True) -> LiveTurn:
        name = self._dialogue.components.brain_name
        return LiveTurn(handle, source, paced, name, options=self._options)

    def truncate(self, number: int, seconds: float) -> None:
        """Keep in the history what was heard in the first `seconds` of a spoken answer."""
        for turn in self._spoken:
            if turn.number == number and turn.speech is not None:
                heard = turn.speech.heard(turn.reply, seconds)
                self._dialogue.history.cut(number, heard)
                self._dialogue.emit(SpokenUpTo(number, heard))

    # Between turns.

    def use_options(self, change: UseReplyOptions) -> None:
        """Answer by these options from now on, and let the brain read its instruction."""
        known, self._options, self._answers = self._options, change.options, change.answers
        if change.vad is not None:
            self._dialogue.config.current = replace(self._dialogue.config.current, vad=change.vad)
        if self.is_quiet and known != change.options:
            never = threading.Event()
            self._dialogue.components.brain.listen(
                TurnRequest(self._dialogue.history.past, cancelled=never, options=self._options),
                Recording(),
            )

    def read_past(self) -> None:
        """Let the brain read the history, unless somebody speaks."""
        if self.is_quiet:
            self._read(self._dialogue.history.past)

    def _read(self, past: Past) -> None:
        """Let the brain read `past`, and the time of a next turn that would begin now."""
        self.reader.read(past, self.clock.with_time(self._options, past))

    def read_ahead(self, typing: TypedText) -> None:
        """Let the brain prepare for a text that is being typed."""
        if self._dialogue.state is State.READY and typing.text:
            past = self._dialogue.history.past
            options = self.clock.with_time(self._options, past, typing.begun)
            self._dialogue.components.brain.read_ahead(
                TurnRequest(past, typing.text, cancelled=typing.cancelled, options=options)
            )

    def _replace_lost_brain(self, reason: ModelLost) -> None:
        self._dialogue.enter(State.LOADING)
        self._dialogue.components.replace_lost_brain(reason)
        self._dialogue.emit(self._dialogue.components.loaded())
        self._dialogue.enter(State.READY)
        self.read_past()

    def refuse(self) -> None:
        self._dialogue.emit(Notice("No model is loaded. `voxtui doctor` says what is missing."))
