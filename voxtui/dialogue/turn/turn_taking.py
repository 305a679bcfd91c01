"""Turn-taking: one turn at a time, from the talk key or the text to the end of its answer."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Generator
from datetime import datetime

from msgspec.structs import replace

from voxtui.dialogue import engine_commands as commands
from voxtui.dialogue import events
from voxtui.dialogue.data import MICROPHONE, REPLAY, SKILL, TYPED, Frame, Utterance
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import State
from voxtui.dialogue.inbox import TypedText
from voxtui.dialogue.listening.heard_words import ATTENTIVE_SECONDS
from voxtui.dialogue.listening.listener import Finding, Finished, Recorded, Started, TooQuiet
from voxtui.dialogue.prefetch import prefetch
from voxtui.dialogue.protocols import PastTurn, ReplyOptions, TurnRequest
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.skill_errors import skill_errors_logged
from voxtui.dialogue.speech.reply_speech import Speech
from voxtui.dialogue.timestamps import Milestone, Outcome, Turn
from voxtui.dialogue.turn.idle_transcript import IdleTranscript
from voxtui.dialogue.turn.prefill import HistoryPrefill
from voxtui.dialogue.turn.recording_warnings import RecordingWarnings
from voxtui.dialogue.turn.turn import LiveTurn, answer_tokens, answering, captions, speak
from voxtui.dialogue.turn_handle import TurnHandle
from voxtui.errors import ModelError, ModelLost

SPOKEN_TURNS = 8
"""Spoken turns whose playback length a client may still report (`truncate`)."""

UNASKED = "Speak first, as you were told to."
"""The input of the brain if an answer is requested and there are no words."""


class TurnTaking:
    """Begins turns, ends their recordings and has them answered. Runs on the engine's thread."""

    def __init__(self, dialogue: Dialogue) -> None:
        self.prefill = HistoryPrefill(dialogue)
        self.idle = IdleTranscript(dialogue, self.prefill)
        self._dialogue = dialogue
        self._warnings = RecordingWarnings(dialogue)
        self._recorded: LiveTurn | None = None
        self._committed: LiveTurn | None = None
        """the newest turn whose utterance was committed; its answer may be requested"""
        self._inputs: dict[int, Utterance | str] = {}
        """the user's part of the latest turns by number, for `redo`"""
        self._spoken: deque[LiveTurn] = deque(maxlen=SPOKEN_TURNS)
        """the latest spoken turns, for `truncate`"""
        self._attentive_until = 0.0
        """monotonic seconds until which detected speech needs no name"""
        self._answers = True
        """whether detected speech is answered and not only committed"""

    def take(self, command: commands.NewTurn, handle: TurnHandle, typed: TypedText) -> None:
        """Begin the turn of `command`, or answer it to its end. `typed` is the text so far."""
        match command:
            case commands.Talk(at, source, paced):
                assert at is not None  # the inbox has set it
                self._go_on(self._live(handle, source, paced), at)
            case commands.SendText(text):
                self._answer_text(handle, text.strip(), typed.begun if typed.text else None)
            case commands.Answer(options, request):
                self._answer_history(handle, options, request)
            case commands.Redo(again, text):
                self._redo(handle, again, text)
            case _:
                raise AssertionError(command)

    # The story of a turn.

    def _go_on(self, turn: LiveTurn, pressed_at: float | None = None) -> None:
        """Begin the story of `turn`, or resume it, until it waits for the user or ends."""
        turn.story = turn.story or self._tell(turn, pressed_at)
        next(turn.story, None)

    def _tell(self, turn: LiveTurn, pressed_at: float | None) -> Generator[None, None, None]:
        """Run a turn from the key to the last sound. Each `yield` waits for the user.

        `pressed_at` is None if the input is known, as in a typed or repeated turn. If the voice or
        the speaker fails, the turn goes on as text; if the brain fails, the turn ends.
        """
        dialogue = self._dialogue
        if pressed_at is not None:
            if not self._begin_recording(turn, pressed_at):
                return
            yield  # frames reach the listener, and through the recording the brain: see `hear`
            if not self._end_recording(turn):  # at the release, or after the detected speech
                return
        if not turn.answers:
            self._commit(turn)
            yield  # its words are recognised, until a client requests the answer
            self._committed, turn.answers = None, True
            self.idle.end(answered=turn)
            self._take_question(turn)
        if dialogue.state is State.LOADING:
            self.refuse()
            self._finish(turn, Outcome.FAILED, "No model is loaded.")
            return
        self.idle.end()
        with answering(turn, dialogue):
            dialogue.enter(State.THINKING)
            try:
                # The words come first; then the tokens, by a rule, a tool or the brain. Each is
                # shown on the brain's thread; here they become clauses, speech and sound.
                with prefetch(answer_tokens(turn, dialogue), "brain") as tokens:
                    speech = speak(turn, tokens, dialogue, self.prefill)
                    for _ in tokens:
                        pass  # the text goes on without sound
            except ModelError as error:
                turn.error = error
                result = turn.finished(Outcome.FAILED, str(error))
            else:
                result = self._add_to_history(turn, speech)
        dialogue.emit(events.TurnFinished(result))
        self._prepare_next(turn)

    def _begin_recording(self, turn: LiveTurn, at: float) -> bool:
        """Record an utterance from `at` (monotonic seconds) on. Return False if that is impossible.

        The pre-roll, the sound from just before the key, is pushed again as its beginning.
        """
        dialogue, components = self._dialogue, self._dialogue.components
        if dialogue.state is State.LOADING:
            self.refuse()
            self._finish(turn, Outcome.CANCELLED)
            return False
        if turn.source == MICROPHONE and components.devices.microphone is None:
            dialogue.emit(events.Notice("There is no microphone. Type, or play a sample clip."))
            self._finish(turn, Outcome.CANCELLED)
            return False
        self._recorded = turn
        turn.options = dialogue.timed_options(dialogue.history.past)
        if turn.called or (turn.handle.detected and at > self._attentive_until):
            name = dialogue.config.current.vad.name
            turn.options = dataclasses.replace(turn.options, name=name)
        dialogue.emit(events.TurnStarted(turn.number, turn.source, turn.handle.timestamps, at=at))
        dialogue.enter(State.LISTENING)
        preroll = dialogue.listener.begin(turn.source, at, turn.handle.detected, turn.called)
        recording = dialogue.listener.recording
        assert recording is not None
        request = TurnRequest(
            dialogue.history.past, cancelled=turn.handle.cancelled, options=turn.options
        )
        components.brain.listen(request, recording, on_words=captions(turn, dialogue))
        dialogue.inbox.replay(preroll)
        return True

    def _end_recording(self, turn: LiveTurn) -> bool:
        """Take the utterance of a finished recording. Return False if there is none."""
        finding = turn.finding
        assert finding is not None
        if turn.cancelled:  # its Cancel, or the next turn, is still in the inbox
            self._finish(turn, Outcome.CANCELLED)
            return False
        # Sound that came faster than it was spoken is dated into the future.
        now, timestamps = time.monotonic(), turn.handle.timestamps
        timestamps.record(Milestone.RELEASED, min(finding.released_at, now))
        timestamps.record(Milestone.CAPTURED)
        self._warnings.after(finding)
        if isinstance(finding, TooQuiet):
            turn.handle.cancelled.set()  # it ends the brain's speculative work
            self._finish(turn, Outcome.CANCELLED if finding.tap else Outcome.NO_SPEECH)
            return False
        self._take_input(turn, finding.utterance)
        turn.spoken = finding.spoken
        timestamps.record(Milestone.SPEECH_ENDED, min(finding.utterance.ended_at, now))
        turn.handle.committed = not turn.answers  # before others hear of it, and request an answer
        self._dialogue.emit(events.Captured(turn.number, finding.utterance))
        return True

    def _commit(self, turn: LiveTurn) -> None:
        """Put the utterance into the history. It is transcribed unless an answer is requested."""
        assert isinstance(turn.user_input, Utterance)
        self.idle.end()
        self._dialogue.history.insert(PastTurn(turn.user_input, None, (), number=turn.number))
        if self._committed is not None:
            self._committed.story = None  # nobody can request its answer any more
        self._committed = turn
        self.idle.begin_unanswered(turn, turn.user_input)
        self._dialogue.enter(State.READY)

    def _add_to_history(self, turn: LiveTurn, speech: Speech | None) -> Turn:
        """Add the heard part of the answer to the history, and return the finished turn."""
        dialogue, history = self._dialogue, self._dialogue.history
        turn.speech = speech
        heard = speech.heard(turn.reply) if speech and turn.cancelled else turn.reply
        if turn.past is None:
            history.add(turn.as_past(turn.tokens), heard, by_rule=bool(turn.answer))
        else:
            if turn.words is not None:
                history.set_words(turn.number, turn.words)
            if turn.calls and history.unanswered is None:  # the result belongs to the request
                history.insert(turn.as_past(()))
            history.add(PastTurn("", None, tuple(turn.tokens), number=turn.number), heard)
        if heard != turn.reply:
            dialogue.emit(events.SpokenUpTo(turn.number, heard))
        if dialogue.skills and turn.brain != SKILL and not turn.calls:
            doubt = None
            with skill_errors_logged():
                doubt = dialogue.skills.doubt(heard)
            if doubt:
                dialogue.emit(events.Remark(doubt))
        whole = turn.complete and heard == turn.reply
        return turn.finished(Outcome.ANSWERED if whole else Outcome.CANCELLED)

    def _prepare_next(self, turn: LiveTurn) -> None:
        """Prepare the next turn: transcribe missing words, and let the brain read the history."""
        if turn.speech is not None:
            self._spoken.append(turn)
        if isinstance(turn.error, ModelLost) and self._dialogue.components.has_next_brain:
            self.prefill.replace_lost_brain(turn.error)
            return
        self._attentive_until = time.monotonic() + ATTENTIVE_SECONDS if turn.only_name else 0.0
        if not turn.overheard:
            self.idle.begin(turn)
        self._dialogue.enter(State.READY)
        self.prefill.read_history()

    def _finish(self, turn: LiveTurn, outcome: Outcome, error: str | None = None) -> None:
        """End a turn without an answer."""
        self._dialogue.emit(events.TurnFinished(turn.finished(outcome, error)))
        self._dialogue.enter(
            State.LOADING if self._dialogue.state is State.LOADING else State.READY
        )

    # Listening.

    def hear(self, frame: Frame) -> None:
        if self._dialogue.state is State.LOADING:
            return
        if frame.source == MICROPHONE and (back := self._dialogue.components.devices.delivered()):
            self._dialogue.components.report(back)
        finding = self._dialogue.listener.push(frame)
        if isinstance(finding, Recorded) and self._recorded is not None:
            self._warnings.during(frame, self._recorded.number)
        self.act_on(finding)

    def act_on(self, finding: Finding) -> None:
        match finding:
            case Recorded():
                self._dialogue.components.brain.wake()
            case Started(at, called):
                if not (called or self._may_be_addressed(at)):
                    return
                handle = self._dialogue.inbox.begin()
                if handle is not None:  # else a newer command is still in the inbox
                    turn = self._live(handle, MICROPHONE)
                    turn.answers, turn.called = self._answers, called
                    self._go_on(turn, at)
            case Finished() | TooQuiet():
                turn, self._recorded = self._recorded, None
                assert turn is not None
                turn.finding = finding
                self._go_on(turn)
            case None:
                pass

    def _may_be_addressed(self, at: float) -> bool:
        """Return True if speech in which no detector heard the name may be for this program."""
        rang = self._dialogue.skills is not None and self._dialogue.skills.rang  # "stop"
        return self._dialogue.listener.name_detector is None or at <= self._attentive_until or rang

    def release(self, release: commands.Release) -> None:
        """End the recording of the turn that `release` names, or of any turn."""
        turn = self._recorded
        if turn is None or release.turn not in (None, turn.number):
            return
        assert release.at is not None  # the inbox has set it
        turn.answers = release.answers
        self.act_on(self._dialogue.listener.release(release.at, complete=not turn.answers))

    def cancel_utterance(self, number: int) -> None:
        """Drop the recording of turn `number`; hands-free, ignore the speech in progress."""
        if self._recorded is not None and self._recorded.number == number:
            self.abandon_utterance()
            self._dialogue.listener.skip()

    def abandon_utterance(self) -> None:
        turn, self._recorded = self._recorded, None
        if turn is None:
            return
        self._dialogue.listener.abandon()
        turn.story = None  # its frame refers to the turn, and so to the sound
        turn.handle.cancel()
        self._finish(turn, Outcome.CANCELLED)

    # Answering what is known already.

    def _answer_text(self, handle: TurnHandle, text: str, begun: datetime | None) -> None:
        """Answer a typed text that the user began at the local time `begun`."""
        turn = self._live(handle, TYPED)
        turn.options = self._dialogue.timed_options(self._dialogue.history.past, begun)
        self._take_input(turn, text)
        self._dialogue.emit(events.TurnStarted(turn.number, TYPED, handle.timestamps))
        if text:
            self._dialogue.emit(events.UserWords(turn.number, text))
            self._go_on(turn)
        else:
            self._finish(turn, Outcome.NO_SPEECH)

    def _answer_history(
        self, handle: TurnHandle, options: ReplyOptions | None, request: str
    ) -> None:
        """Answer the user's last words, else `request`. `options` are for this answer only."""
        options = options or self._dialogue.options
        turn = self._committed
        if turn is not None and turn.handle is handle:
            turn.options = options
            self._go_on(turn)
            return
        turn = self._live(handle, TYPED)
        if handle.over:  # the utterance held no speech
            self._finish(turn, Outcome.NO_SPEECH)
            return
        self._dialogue.emit(events.TurnStarted(turn.number, turn.source, handle.timestamps))
        turn.options = options
        self.idle.end()
        self._take_question(turn, request)
        self._go_on(turn)

    def _take_question(self, turn: LiveTurn, request: str = "") -> None:
        """Take the user's part from the history; if there is none, `request` or UNASKED."""
        unanswered, turn.past = self._dialogue.history.unanswered, self._dialogue.history.past
        if unanswered is None and request:
            instruction = self._dialogue.options.instruction
            turn.user_input = request
            turn.options = dataclasses.replace(turn.options, instruction=instruction)
        elif unanswered is None:
            turn.user_input = UNASKED
        else:
            turn.past, turn.words = turn.past[:-1], unanswered.words
            turn.user_input, turn.results = unanswered.user_input, unanswered.calls

    def _redo(self, handle: TurnHandle, again: int, text: str | None) -> None:
        """Answer the same input once more after the same history, to compare the answers."""
        dialogue, history = self._dialogue, self._dialogue.history
        user_input = self._inputs.get(again) if text is None else text.strip()
        typed = isinstance(user_input, str)
        turn = self._live(handle, TYPED if typed else REPLAY, paced=typed)
        if not user_input or dialogue.state is State.LOADING:
            dialogue.emit(events.Notice("The input of that turn is no longer in memory."))
            self._finish(turn, Outcome.CANCELLED)
            return
        self._take_input(turn, user_input)
        replaces = again if history.newest == again else None
        dialogue.emit(events.TurnStarted(turn.number, turn.source, handle.timestamps, replaces))
        before = history.past
        history.take_back(again)
        past = history.past
        turn.options = dialogue.timed_options(past)
        if isinstance(user_input, str):
            dialogue.emit(events.UserWords(turn.number, user_input))
        else:
            dialogue.emit(events.Captured(turn.number, user_input))
            handle.timestamps.record(Milestone.CAPTURED)
            request = TurnRequest(past, cancelled=handle.cancelled, options=turn.options)
            dialogue.components.brain.listen(request, Recording())
        self._go_on(turn)
        if history.past is past and replaces:  # nothing was heard of the new answer
            history.past = before

    def _take_input(self, turn: LiveTurn, user_input: Utterance | str) -> None:
        """Set the user's part of `turn`, and store it for `redo`."""
        turn.user_input = self._inputs[turn.number] = user_input
        while len(self._inputs) > max(1, self._dialogue.config.current.history.turns):
            del self._inputs[next(iter(self._inputs))]

    def _live(self, handle: TurnHandle, source: str, paced: bool = True) -> LiveTurn:
        dialogue = self._dialogue
        name = dialogue.config.brain_name
        return LiveTurn(handle, source, paced, name, options=dialogue.options)

    # Between turns.

    def truncate(self, number: int, seconds: float) -> None:
        """Reduce a spoken answer in the history to what was heard in its first `seconds`."""
        for turn in self._spoken:
            if turn.number == number and turn.speech is not None:
                heard = turn.speech.heard(turn.reply, seconds)
                self._dialogue.history.cut(number, heard)
                self._dialogue.emit(events.SpokenUpTo(number, heard))

    def use_options(self, change: commands.UseReplyOptions) -> None:
        """Use these options for all following answers, and let the brain read the instruction."""
        dialogue = self._dialogue
        known, dialogue.options, self._answers = dialogue.options, change.options, change.answers
        if change.vad is not None:
            dialogue.config.current = replace(dialogue.config.current, vad=change.vad)
        if dialogue.is_quiet and known != change.options:
            request = TurnRequest(dialogue.history.past, options=change.options)
            dialogue.components.brain.listen(request, Recording())

    def read_ahead(self, typing: TypedText) -> None:
        if not typing.text:
            self.prefill.read_history()  # it was interrupted, and reports that reading has ended
        elif self._dialogue.state is State.READY:
            past = self._dialogue.history.past
            options = self._dialogue.timed_options(past, typing.begun)
            self._dialogue.components.brain.read_ahead(
                TurnRequest(past, typing.text, cancelled=typing.cancelled, options=options)
            )

    def refuse(self) -> None:
        self._dialogue.emit(
            events.Notice("No model is loaded. `voxtui doctor` says what is missing.")
        )
