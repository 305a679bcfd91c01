"""One session: turns the events of the client and of the engine into events of the server.

It runs on the event loop's thread and never waits. The engine makes the turns; this module only
reports them as items and responses of the protocol.
"""

from __future__ import annotations

import time
from base64 import b64decode
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from voxtui.audio.pcm import PcmStream
from voxtui.dialogue import events
from voxtui.dialogue.data import FRAME_SECONDS, MICROPHONE, Frame
from voxtui.dialogue.engine_commands import Answer, Cancel, Release, Sync, UseReplyOptions
from voxtui.dialogue.timestamps import Milestone
from voxtui.serve.function_tools import call_id, function_name
from voxtui.serve.openai_types import SERVER, HttpError, usage
from voxtui.serve.realtime import protocol
from voxtui.serve.realtime.conversation_items import Conversation
from voxtui.serve.realtime.input_buffer import InputBuffer
from voxtui.serve.realtime.output_buffer import TRACK_RATE, Client, Sound
from voxtui.serve.realtime.protocol import CreateResponse, Item, Response, new_id
from voxtui.serve.realtime.session_settings import (
    PREROLL_MS,
    RATE,
    SESSION_SECONDS,
    Json,
    Settings,
    invalid,
    no_templates,
    object_of,
)
from voxtui.serve.realtime.wire_audio import Frames

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples, ToolCall
    from voxtui.dialogue.engine import Engine
    from voxtui.dialogue.timestamps import Turn
    from voxtui.settings.schema import Config

SHORTEST_COMMIT = 0.1
"""Minimum seconds of a committed sound, by OpenAI's rule."""

NO_WORDS = "No words were recognised in this sound."

SessionEvent: TypeAlias = events.Event | Sound


@dataclass(slots=True, eq=False)
class Idle:
    """Nothing is in progress, except an utterance of push to talk."""


@dataclass(slots=True, eq=False)
class Hearing:
    """Speech was detected and goes on."""

    item: Item
    create: CreateResponse | None = None


@dataclass(slots=True, eq=False)
class Answering:
    """A response is in progress. Everything else waits for its end."""

    response: Response
    held: list[Frame] = field(default_factory=list[Frame])
    """sound that must not interrupt the answer"""
    commits: list[tuple[protocol.Commit, list[Frame]]] = field(
        default_factory=list[tuple[protocol.Commit, list[Frame]]]
    )

    @property
    def waiting_seconds(self) -> float:
        return sum(map(len, (self.held, *(frames for _, frames in self.commits)))) * FRAME_SECONDS


class RealtimeSession:
    """Translates between `engine` and `client`. With an `output`, sound is sent over tracks."""

    def __init__(self, engine: Engine, config: Config, settings: Settings, client: Client) -> None:
        self._engine = engine
        self._config = config
        self._settings = settings
        self._client = client
        self._emit = client.send
        self._output = client.output
        if self._output is not None:
            self._output.client = client
        self._id, self._conversation_id = new_id("sess"), new_id("conv")
        self._expires_at = int(time.time()) + SESSION_SECONDS
        self._begun = False
        self._phase: Idle | Hearing | Answering = Idle()
        self._waiting: deque[protocol.ClientEvent | Samples] = deque()
        self._unheard = self._syncing = False
        """`_unheard`: whether the engine may not have heard all sound in which it detects speech;
        `_syncing`: whether it was asked to report that it has"""
        self._conversation = Conversation(client, engine)
        self._by_turn: dict[int, Item] = {}
        self._pcm = PcmStream()
        longest, live = config.audio.max_utterance_s, self._output is not None
        self._line = Frames(TRACK_RATE if live else RATE)
        self._input = InputBuffer(engine, self._line, longest, live)

    @property
    def answering(self) -> bool:
        return isinstance(self._phase, Answering)

    # The client.

    def take_message(self, message: str | bytes) -> None:
        """Handle a message. An error is reported to the client, and the session goes on."""
        with self._reporting(None):
            self._waiting.append(protocol.parse(message))
        self._go_on()

    def take_sound(self, samples: Samples) -> None:
        """Hear the next sound of the track, at TRACK_RATE."""
        self._waiting.append(samples)
        self._go_on()

    def _go_on(self) -> None:
        """Handle waiting events in order.

        Anything but sound waits until the engine has heard the sound before it, because only then
        it is known whether speech goes on. During an answer that does not matter.
        """
        while self._waiting:
            sound = isinstance(self._waiting[0], np.ndarray | protocol.Append)
            if self._unheard and not (sound or self.answering):
                if not self._syncing:
                    self._syncing = True
                    self._engine.post(Sync())
                return
            match self._waiting.popleft():
                case np.ndarray() as samples:
                    self._hear(samples)
                case event:
                    with self._reporting(event.event_id):
                        self._take(event)

    def _take(self, event: protocol.ClientEvent) -> None:
        match event:
            case protocol.SessionUpdate(session=session):
                self._update(session)
            case protocol.Append(audio=audio):
                self._append(audio)
            case protocol.Commit():
                self._commit(event)
            case protocol.Clear():
                self._clear()
                self._emit("input_audio_buffer.cleared")
            case CreateResponse():
                self._create_response(event)
            case protocol.CancelResponse(response_id=name):
                self._cancel_response(name)
            case protocol.CreateItem():
                if self._conversation.create(event).role == "system":
                    self._use_settings()
            case protocol.TruncateItem():
                item = self._conversation.truncatable(event)
                if item.status == "in_progress":
                    self._cancel_response(None)
                self._conversation.cut(item, event.audio_end_ms)
            case protocol.RetrieveItem(item_id=name):
                self._conversation.retrieve(name)
            case protocol.DeleteItem(item_id=name):
                if self._conversation.delete(name).role == "system":
                    self._use_settings()
            case protocol.ClearOutput():
                if self._output is None:
                    raise invalid("The client itself plays the sound here.", "type")
                if self.answering:
                    self._cancel_response(None)
                self._clear_output()

    def _update(self, session: object) -> None:
        before, model = self._settings.detection, self._settings.model
        fields = object_of(session, "session")
        template = fields.pop("prompt", None)
        self._settings = replace(self._settings.updated(fields), model=model)
        if (before is None) != (self._settings.detection is None):
            self._clear()
        self._use_settings()
        self._emit("session.updated", session=self._shown())
        if template:  # all else is obeyed
            raise no_templates("session")

    def _use_settings(self) -> None:
        """Have the engine read the instruction, and detect speech as the session says."""
        options = self._settings.options(self._conversation.system_texts)
        vad = self._settings.vad(self._config.vad)
        self._engine.post(UseReplyOptions(options, answers=False, vad=vad))

    def _shown(self) -> Json:
        return self._settings.as_json(self._id, self._expires_at, self._config.vad)

    # Sound.

    def _append(self, audio: str) -> None:
        if self._output is not None:
            raise invalid("Sound comes over the track here.", "type")
        try:
            data = b64decode(audio, validate=True)
        except ValueError as error:  # also of a character that is not ASCII
            raise invalid("The audio is not base64.", "audio") from error
        if not data:
            raise invalid("The audio is empty.", "audio")
        most = self._config.audio.max_utterance_s
        waiting = self._phase.waiting_seconds if isinstance(self._phase, Answering) else 0.0
        seconds = waiting + self._input.seconds + len(data) / 2 / RATE
        if (self._settings.detection is None or waiting) and seconds > most:
            how = "Wait for response.done" if waiting else "Commit or clear it"
            raise invalid(f"{most:g} s of sound may wait at most. {how}.", "audio")
        self._hear(self._pcm.feed(data))

    def _hear(self, samples: Samples) -> None:
        frames = self._line.feed(samples)
        phase, detection = self._phase, self._settings.detection
        if detection is None:
            self._input.add(frames)
            if not isinstance(phase, Answering):
                self._input.record()
        elif isinstance(phase, Answering) and not detection.interrupt_response:
            phase.held += frames
            # The sound of a track cannot be refused.
            del phase.held[: -round(self._config.audio.max_utterance_s / FRAME_SECONDS)]
        else:
            self._detect_in(frames)

    def _detect_in(self, frames: list[Frame]) -> None:
        self._unheard |= bool(frames)
        self._input.push(frames)

    def _clear(self) -> None:
        self._input.clear()
        self._pcm = PcmStream()
        match self._phase:
            case Answering(held=held):
                held.clear()
            case Hearing(item):
                self._engine.post(Cancel(item.turn))
            case Idle():
                pass

    def _commit(self, event: protocol.Commit) -> None:
        phase = self._phase
        if isinstance(phase, Hearing):
            self._detect_in(self._line.flush())
            self._engine.post(Release(self._line.now, phase.item.turn, answers=False))
            return
        if self._settings.detection is not None or self._input.seconds < SHORTEST_COMMIT:
            raise invalid(
                f"The buffer holds less than {SHORTEST_COMMIT * 1000:g} ms of sound.",
                code="input_audio_buffer_commit_empty",
            )
        if isinstance(phase, Answering):
            phase.commits.append((event, self._input.take()))
        else:
            self._committed(self._input.commit())

    def _committed(self, item: Item) -> None:
        if item.turn is not None:
            self._by_turn[item.turn] = item
        previous = self._conversation.last_id
        self._emit("input_audio_buffer.committed", item_id=item.id, previous_item_id=previous)
        self._conversation.add(item)

    def _clear_output(self) -> None:
        """Stop the playback. The conversation keeps what was played."""
        if isinstance(self._phase, Answering):
            self._phase.response.silenced = True
        cleared = self._output and self._output.clear()
        if cleared:
            item, seconds = cleared
            self._conversation.cut(item, round(min(seconds, item.seconds) * 1000))

    # Responses.

    def _create_response(self, event: CreateResponse) -> None:
        if isinstance(self._phase, Answering):
            raise invalid(
                "An answer is in progress. Wait for response.done, or cancel it.",
                code="conversation_already_has_active_response",
            )
        if self._settings.type == "transcription":
            raise invalid("A transcription session does not create responses.", "type")
        response = protocol.response_of(event.response, self._settings, self._conversation_id)
        if isinstance(self._phase, Hearing):
            self._phase.create = event
            return
        self._input.forget_recording()  # the buffer is kept, and recorded again after the answer
        options = response.settings.options(self._conversation.system_texts)
        response.turn = self._engine.post(Answer(options, response.request))
        self._phase = Answering(response)
        self._emit("response.created", response=response.as_json())
        self._emit("rate_limits.updated", rate_limits=[])  # there are none, and clients wait for it

    def _cancel_response(self, name: str | None) -> None:
        phase = self._phase
        if not isinstance(phase, Answering) or name not in (None, phase.response.id):
            raise invalid("No such answer is in progress.", code="response_cancel_not_active")
        phase.response.cancelled = True
        self._engine.post(Cancel(phase.response.turn))

    def _show(self, response: Response) -> Item:
        """Report the item of the answer, with its first piece."""
        if response.item is None:
            for event in response.begin(self._conversation.last_id):
                self._emit(**event)
            assert response.item is not None
            self._conversation.append(response.item)
        return response.item

    def _show_call(self, turn: int, call: ToolCall) -> None:
        if isinstance(self._phase, Answering) and self._phase.response.turn == turn:
            response, previous = self._phase.response, self._conversation.last_id
            item = Item(
                "assistant", "function_call", text=call.arguments, call_id=call_id(call),
                name=function_name(call, response.settings.tools),
            )  # fmt: skip
            for event in response.call(item, previous):
                self._emit(**event)
            self._conversation.append(item)

    def _end_response(self, answering: Answering, turn: Turn) -> None:
        response = answering.response
        most = self._config.generation.sampling().max_new_tokens
        status = response.status(turn, response.settings.options([]).limit(most))
        if status in ("completed", "incomplete") and turn.reply:
            self._show(response)
        utterance = self._by_turn.get(turn.number)
        if utterance is not None and utterance.text is None and turn.error is not None:
            self._transcribed(utterance, "", turn.error)
        for event in response.end(status, self._conversation.before(response.item)):
            self._emit(**event)
        if self._output is not None:
            self._output.complete(response.id)
        if response.item is not None and response.heard is not None:
            response.item.text = response.heard
        self._phase = Idle()
        extra = {"x_voxtui": protocol.timing(turn)} if self._settings.x_voxtui else {}
        self._emit("response.done", response=response.as_json(status, turn), **extra)
        self._client.answered(turn)
        self._detect_in(answering.held)
        for commit, frames in answering.commits:
            with self._reporting(commit.event_id):
                self._committed(self._input.commit_taken(frames))
        self._input.record()

    # The engine.

    def take_event(self, event: SessionEvent) -> None:
        """Report an event of the engine to the client."""
        match event:
            case Sound():
                self._take_answer(event)
            case events.StateChanged(events.State.READY) if not self._begun:
                self._begun = True
                self._use_settings()
                self._emit("session.created", session=self._shown())
            case events.TurnStarted(turn, source, at=at) if source == MICROPHONE:
                if not self._input.began(turn):
                    self._speech_started(Item("user", "audio", turn=turn), at)
            case events.Synced():
                self._unheard = self._syncing = False
                self._go_on()
            case events.Captured(turn, utterance):
                if (item := self._by_turn.get(turn)) is not None:
                    item.captured = True
                    item.seconds = item.seconds or utterance.seconds
                    silence_ms = self._settings.vad(self._config.vad).end_ms
                    self._speech_ended(item, utterance.ended_at + silence_ms / 1000, spoken=True)
            case events.Caption(_, text) if self._settings.x_voxtui:
                self._emit("x_voxtui.caption", text=text)
            case events.PrefillProgress(done, total) if self._settings.x_voxtui:
                self._emit("x_voxtui.prefill", done=done, total=total)
            case events.UserWords(turn, text):
                if (item := self._by_turn.get(turn)) is not None:
                    self._transcribed(item, text)
            case events.NoWords(turn, reason):
                if (item := self._by_turn.get(turn)) is not None:
                    self._transcribed(item, "", reason)
            case events.ReplyText(turn):
                self._take_answer(event)
            case events.ToolCalled(turn, call):
                self._show_call(turn, call)
            case events.SpokenUpTo(turn, text):
                if isinstance(self._phase, Answering) and self._phase.response.turn == turn:
                    self._phase.response.heard = text
                else:
                    self._conversation.was_cut(turn, text)
            case events.TurnFinished(turn):
                self._turn_finished(turn)
            case events.LoadFailed(error) | events.Died(error):
                self.report_error(f"The session failed: {error}", "session_failed")
                self._client.failed()
            case _:
                pass

    def _take_answer(self, piece: Sound | events.ReplyText) -> None:
        if not isinstance(self._phase, Answering) or self._phase.response.cancelled:
            return
        response = self._phase.response
        if isinstance(piece, events.ReplyText):
            if piece.turn == response.turn:
                self._show(response)
                self._emit(**response.words(piece.text))
            return
        item = self._show(response)
        item.seconds += piece.seconds
        if self._output is None:
            self._emit(**response.sound(piece.pcm))
        elif not response.silenced:
            self._output.add(response.id, item, piece.pcm)

    def _speech_started(self, item: Item, at: float) -> None:
        assert item.turn is not None
        self._by_turn[item.turn] = item
        self._phase = Hearing(item)
        start = max(0, self._line.position_ms(at) - self._config.vad.start_ms - PREROLL_MS)
        self._emit("input_audio_buffer.speech_started", item_id=item.id, audio_start_ms=start)
        detection = self._settings.detection
        if detection is not None and detection.interrupt_response:
            self._clear_output()

    def _speech_ended(self, item: Item, at: float, spoken: bool) -> None:
        """End detected speech at `at`; not `spoken`: too little. Ignored for push to talk."""
        hearing = self._phase
        if not isinstance(hearing, Hearing) or hearing.item is not item:
            return
        self._phase = Idle()
        end = self._line.position_ms(at)
        self._emit("input_audio_buffer.speech_stopped", item_id=item.id, audio_end_ms=end)
        create = hearing.create
        if spoken:
            self._committed(item)
            requested = any(isinstance(said, CreateResponse) for said in self._waiting)
            if self._settings.answers_speech and not requested:
                create = create or CreateResponse()
        if create is not None:
            self._waiting.appendleft(create)
        self._go_on()

    def _transcribed(self, item: Item, text: str, why_none: str = NO_WORDS) -> None:
        item.text = text
        if not self._settings.transcribes:
            return
        event = "conversation.item.input_audio_transcription"
        place = {"item_id": item.id, "content_index": 0}
        if text:
            self._emit(f"{event}.delta", **place, delta=text)
            self._emit(f"{event}.completed", **place, transcript=text, usage=usage(item.seconds))
        else:
            error = {"type": "transcription_error", "code": "no_words", "message": why_none}
            self._emit(f"{event}.failed", **place, error=error)

    def _turn_finished(self, turn: Turn) -> None:
        item, phase = self._by_turn.get(turn.number), self._phase
        if item is not None and not item.captured:  # nothing was said in it
            item.captured = True
            if self._input.began(turn.number):
                self._transcribed(item, "", "No speech was found in this sound.")
            ended_at = turn.timestamps.get(Milestone.RELEASED.value, self._line.now)
            self._speech_ended(item, ended_at, spoken=False)
        elif isinstance(phase, Answering) and phase.response.turn == turn.number:
            self._end_response(phase, turn)

    # Out.

    @contextmanager
    def _reporting(self, event_id: str | None) -> Generator[None]:
        """Report an HttpError inside the context to the client. The session goes on."""
        try:
            yield
        except HttpError as refusal:
            self._emit("error", error={"event_id": event_id, **refusal.error})

    def report_error(self, message: str, code: str) -> None:
        """Report why the session ends."""
        with self._reporting(None):
            raise HttpError(500, message, code=code, kind=SERVER)
