"""The parts of an answer: its tokens, from a rule, a tool or the brain; and its speech."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

from voxtui.dialogue import events
from voxtui.dialogue.data import (
    CHARACTERS_PER_TOKEN,
    OWN_SOURCES,
    REPLAY,
    SKILL,
    TYPED,
    FinishedCall,
    Token,
    ToolCall,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.dialogue import Dialogue
from voxtui.dialogue.events import State
from voxtui.dialogue.listening.heard_words import after_name, is_echo
from voxtui.dialogue.listening.listener import Finished, TooQuiet
from voxtui.dialogue.prefetch import Prefetched
from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    OnWords,
    Past,
    PastTurn,
    ReplyOptions,
    SkillAnswer,
    SkillRequest,
    TurnRequest,
)
from voxtui.dialogue.skill_errors import skill_errors_logged
from voxtui.dialogue.speech.reply_speech import Speech, SpokenReply, VoiceFailed
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps, Turn
from voxtui.dialogue.tool_interface import CallOutcome, CallReport
from voxtui.dialogue.turn.prefill import HistoryPrefill
from voxtui.dialogue.turn.run_tool import run_call
from voxtui.dialogue.turn.text_chunks import Chunker
from voxtui.dialogue.turn_handle import TurnHandle
from voxtui.errors import DeviceError, ModelError

FOR_HEADPHONES = "vad.listen_while_speaking is for headphones."


@dataclass(slots=True)
class LiveTurn:
    """A turn in progress. Its fields are filled in the order of a usual turn."""

    handle: TurnHandle
    source: str
    paced: bool
    brain: str
    """the name of the brain that answers; SKILL if a skill does"""
    spoken: str = ""
    """our own words during the recording; empty for none"""
    user_input: Utterance | str = ""
    words: str | None = None
    tokens: list[Token] = field(default_factory=list[Token])
    complete: bool = False
    """whether the brain's reply ended by itself"""
    error: ModelError | None = None
    answer: SkillAnswer | None = None
    """the complete answer, if a rule gave it"""
    calls: list[CallReport] = field(default_factory=list[CallReport])
    results: tuple[FinishedCall, ...] = ()
    """the finished calls, by the client, that belong to the same words"""
    private: bool = False
    """whether the answer holds the result of a tool that must not leave this machine"""
    options: ReplyOptions = DEFAULT_OPTIONS
    answers: bool = True
    """whether the utterance is answered and not only committed to the history"""
    past: Past | None = None
    """the history before the user's part, if that part is in the history already"""
    speech: Speech | None = None
    called: bool = False
    """whether a detector heard the name at its beginning"""
    overheard: bool = False
    """whether the words do not begin with the name, so that nobody addressed the program"""
    only_name: bool = False
    finding: Finished | TooQuiet | None = None
    story: Generator[None, None, None] | None = None

    @property
    def number(self) -> int:
        return self.handle.number

    @property
    def cancelled(self) -> bool:
        return self.handle.cancelled.is_set()

    @property
    def reply(self) -> str:
        return "".join(token.text for token in self.tokens)

    def as_past(self, reply: Iterable[Token]) -> PastTurn:
        """Return this turn for the history, with all of `reply` as heard."""
        return PastTurn(
            self.user_input,
            self.words,
            tuple(reply),
            number=self.number,
            clock=self.options.clock,
            private=self.private,
        )

    def finished(self, outcome: Outcome, error: str | None = None) -> Turn:
        self.handle.over = True
        timestamps = self.handle.timestamps
        return Turn(
            number=self.number,
            brain=self.brain,
            outcome=outcome,
            timestamps=timestamps.since_release(),
            clip=None if self.source in OWN_SOURCES else self.source,
            heard=self.words,
            reply=self.reply,
            tokens=timestamps.tokens or len(self.tokens),
            prompt_tokens=timestamps.prompt_tokens,
            drafted=timestamps.drafted,
            typed=self.source == TYPED,
            speculative_s=timestamps.speculative_s,
            gpu_bytes=timestamps.gpu_bytes,
            network_s=timestamps.network_s,
            path=timestamps.path,
            paced=self.paced,
            error=error,
            calls=tuple(self.calls),
        )


@contextmanager
def answering(turn: LiveTurn, dialogue: Dialogue) -> Generator[None]:
    """Publish that this turn is being answered, to other threads and to the listener."""
    dialogue.inbox.answering = turn.handle
    try:
        yield
    finally:
        dialogue.inbox.answering = None
        dialogue.listener.note_speech(turn.handle.timestamps, turn.reply)


def captions(turn: LiveTurn, dialogue: Dialogue) -> OnWords | None:
    """Return a reporter of the words so far, or None if they are not shown. Thread of the brain."""

    def report(text: str, settled: int) -> None:
        if not turn.cancelled:
            dialogue.emit(events.Caption(turn.number, text, settled))

    # With a name, others may be talking.
    return report if dialogue.front_end.captions and not turn.options.name else None


def answer_tokens(turn: LiveTurn, dialogue: Dialogue) -> Generator[Token, None, None]:
    """Yield the tokens of the answer, and emit each at once. Runs on the brain's thread."""
    timestamps, cancelled = turn.handle.timestamps, turn.handle.cancelled
    emit, config = dialogue.emit, dialogue.config.current
    most = config.generation.sampling().max_new_tokens
    limit = turn.options.limit(most) * CHARACTERS_PER_TOKEN

    def show(text: str) -> None:
        emit(events.ReplyText(turn.number, text))

    chunker = Chunker(config.streaming, show, cancelled)
    last_at: float | None = None
    try:
        for item in _reply(turn, dialogue):
            if cancelled.is_set():
                return
            if isinstance(item, UserTranscript):
                if is_echo(item.text, turn.spoken):
                    emit(
                        events.Notice(
                            f"Dropped an echo of the answer: “{item.text}”. {FOR_HEADPHONES}"
                        )
                    )
                    cancelled.set()
                    return
                turn.words = item.text
                if item.text != turn.user_input:  # typed words were reported already
                    emit(events.UserWords(turn.number, item.text, item.doubtful))
                continue
            last_at = time.monotonic()
            timestamps.record(Milestone.FIRST_TOKEN, last_at)
            token = item if len(item.text) <= limit else Token(item.text[:limit], item.id)
            limit -= len(token.text)
            turn.tokens.append(token)
            chunker.add(token.text)
            yield token
            if token is not item or not limit:
                emit(
                    events.Notice("The answer is too long and was cut (generation.max_new_tokens).")
                )
                break
        if cancelled.is_set():  # the brain may have ended because of the cancel
            return
        turn.complete = True
        if last_at is not None:
            timestamps.record(Milestone.LAST_TOKEN, last_at)
    finally:
        chunker.flush()


def _reply(turn: LiveTurn, dialogue: Dialogue) -> Generator[UserTranscript | Token, None, None]:
    """Yield the answer of a skill if one takes the user's words, else that of the brain."""
    timestamps, cancelled = turn.handle.timestamps, turn.handle.cancelled
    history, brain = dialogue.history, dialogue.components.brain
    past = history.past if turn.past is None else turn.past
    request = TurnRequest(past, turn.user_input, timestamps, cancelled, turn.options, turn.results)
    call: ToolCall | None = None
    by_rule = False
    with closing(brain.reply(request)) as items:
        for item in items:
            if turn.options.name and turn.words is None:
                item = _called(item, turn, dialogue)
                if item is None:
                    return
            if isinstance(item, ToolCall):
                call = item
                break
            yield item
            if turn.answer is not None:
                break
            if isinstance(item, UserTranscript) and not turn.cancelled:
                again, before = turn.source == REPLAY, (*history.dropped, *past)
                answer = _answer_by_skill(
                    SkillRequest(item.text, again, before, brain.sends_to, dialogue.config.current),
                    dialogue,
                )
                if answer is None:
                    continue
                timestamps.record(Milestone.SKILL)
                if isinstance(answer, ToolCall):
                    call, by_rule = answer, True
                else:
                    turn.answer = answer
                break
    if call is not None:
        yield from _answer_call(turn, call, request, dialogue, by_rule)
    elif turn.answer is not None:
        turn.brain = SKILL
        yield from turn.answer.tokens()


def _answer_by_skill(request: SkillRequest, dialogue: Dialogue) -> SkillAnswer | ToolCall | None:
    """Return the answer of a skill, or None if none takes the words, or if one fails."""
    if dialogue.skills is not None:
        with skill_errors_logged():
            return dialogue.skills.answer(request)
    return None


def _called(
    item: UserTranscript | Token | ToolCall, turn: LiveTurn, dialogue: Dialogue
) -> UserTranscript | Token | ToolCall | None:
    """Return the words after the name, or None, which drops the turn, if they lack the name.

    The words stay whole if a detector heard the name and the recogniser did not.

    Sets the answer to the name alone, and to words that stop what rings, which need no name.
    """
    if isinstance(item, UserTranscript):
        words = after_name(item.text, turn.options.name, anywhere=turn.called)
        if words:
            return UserTranscript(words)
        if words is not None:
            turn.only_name, turn.answer = True, SkillAnswer("Yes?")
            return item
        if turn.called:
            return item
        request = SkillRequest(item.text, config=dialogue.config.current, called=False)
        answer = _answer_by_skill(request, dialogue)
        if isinstance(answer, SkillAnswer):
            turn.answer = answer
            return item
    elif turn.called:
        return item
    else:
        why = (
            "This brain answers before it knows your words, so it cannot wait for a name (vad.name)"
        )
        dialogue.emit(events.Notice(f"{why}, unless the extra wake-word hears it: “Hey Jarvis”."))
    turn.overheard = True
    turn.handle.cancelled.set()
    return None


def _answer_call(
    turn: LiveTurn, call: ToolCall, request: TurnRequest, dialogue: Dialogue, by_rule: bool
) -> Generator[Token, None, None]:
    """Run `call`, and yield its sentence, or the brain's words about its result.

    The second inference cannot call a tool, because a result is data, whatever it says. Runs on the
    brain's thread.
    """
    tool = next((tool for tool in turn.options.tools if tool.name == call.name), None)
    if tool is None:
        turn.answer, turn.brain = SkillAnswer("I can't do that."), SKILL
        yield from turn.answer.tokens()
        return
    if tool.heard and not by_rule:
        tool = replace(tool, acts=True)
    again = turn.source == REPLAY
    report, result = yield from run_call(call, tool, turn.handle, dialogue, again)
    turn.calls.append(report)
    turn.private = bool(result.text or result.sentence) and not tool.shared
    if tool.run is None or report.outcome is CallOutcome.CANCELLED:
        return
    brain = dialogue.components.brain
    done = report.outcome is CallOutcome.DONE
    if not done or result.sentence or (turn.private and brain.sends_to):
        sentence = (result.sentence or result.text) if done else report.detail
        turn.answer, turn.brain = SkillAnswer(sentence or "Done."), SKILL
        yield from turn.answer.tokens()
        return
    read = Timestamps()
    user_input = turn.user_input if turn.words is None else turn.words
    wording = replace(
        request, user_input=user_input, timestamps=read, calls=(FinishedCall(call, result.text),)
    )
    with closing(brain.reply(wording)) as items:
        for item in items:
            if isinstance(item, Token):
                turn.handle.timestamps.record(Milestone.RESULT_READ, read.at(Milestone.PREFILLED))
                yield item


@dataclass(slots=True)
class _SpokenTurn(SpokenReply):
    """The speech of a turn. It is also a StopFlag, set at a cancel or a mute."""

    turn: LiveTurn
    dialogue: Dialogue
    prefill: HistoryPrefill | None
    muted: bool = False

    def is_set(self) -> bool:
        cancelled = self.turn.cancelled
        self.muted = self.muted or (self.dialogue.components.muted and not cancelled)
        return self.muted or cancelled

    def begins(self) -> None:
        self.dialogue.enter(State.SPEAKING)
        if self.turn.answer and self.prefill:
            # The brain has not seen this answer. It reads it while the person hears it, because
            # the next words may follow at once.
            self.prefill.read(
                (*self.dialogue.history.past, self.turn.as_past(self.turn.answer.tokens()))
            )

    def style(self, clause: str) -> tuple[float | None, str]:
        speed, answer = self.turn.options.speed, self.turn.answer
        components = self.dialogue.components
        if answer is not None and answer.pace != 1:
            speed = (speed or self.dialogue.config.current.voice.speed) * answer.pace
        # The sentence of a timer is no answer, and it is written in English.
        language = answer.language if answer else "en" if self.turn.brain == SKILL else ""
        return speed, language or components.brain.language(clause, self.turn.handle.timestamps)


def speak(
    turn: LiveTurn,
    tokens: Prefetched[Token],
    dialogue: Dialogue,
    prefill: HistoryPrefill | None = None,
) -> Speech | None:
    """Speak `tokens`; block until the last sound was played, or `turn` is cancelled.

    Returns None without a voice or a speaker, after a failure of one, and after a mute. The text
    then goes on, so the speech does not show how much of the answer the user received. `prefill`
    lets the brain read the answer of a rule.
    """
    components, emit = dialogue.components, dialogue.emit
    if turn.options.voice == "none" or not components.can_speak():
        return None
    voice, speaker = components.voice, components.devices.speaker
    assert voice is not None
    assert speaker is not None
    reply = _SpokenTurn(turn, dialogue, prefill)
    speech = Speech(voice, speaker, turn.handle.timestamps, reply, reply)
    try:
        try:
            speech.play(tokens)
            if not reply.muted:
                return speech
        except VoiceFailed as error:
            emit(events.Notice(f"{error} The answer goes on as text."))
            speech.finish()
    except DeviceError as error:
        components.devices.speaker_lost = True
        emit(events.Notice(f"{error} The answer goes on as text."))
    if dialogue.state is State.SPEAKING and turn.number > 0:  # no more of the answer is heard
        dialogue.enter(State.THINKING)
    return None
