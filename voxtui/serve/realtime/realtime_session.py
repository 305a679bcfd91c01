"""One session: the client's events in, the engine's events in, the server's events out.

It runs on the event loop's thread and never waits. Turns are the engine's: this module only names
them as the items and responses of the protocol.
"""

from __future__ import annotations

import binascii
import time
from base64 import b64decode
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from voxtui.audio.pcm import PcmStream
from voxtui.dialogue.commands import Answer, Cancel, Release, UseReplyOptions
from voxtui.dialogue.data import MICROPHONE, Frame
from voxtui.dialogue.events import (
    Caption,
    Captured,
    Died,
    LoadFailed,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnFinished,
    TurnStarted,
    UserWords,
)
from voxtui.serve.openai_types import SERVER, HttpError, usage
from voxtui.serve.realtime import protocol
from voxtui.serve.realtime.conversation_items import Conversation
from voxtui.serve.realtime.input_buffer import InputBuffer
from voxtui.serve.realtime.output_buffer import TRACK_RATE, OutputBuffer
from voxtui.serve.realtime.protocol import Item, Response, new_id
from voxtui.serve.realtime.session_settings import RATE, SESSION_SECONDS, Json, Settings, invalid
from voxtui.serve.realtime.wire_audio import Sound
from voxtui.session.user_session import MakeEngine, NotAllowed, UserSession, UserSessionEvent

if TYPE_CHECKING:
    from voxtui.dialogue.data import Samples
    from voxtui.dialogue.timestamps import Turn
    from voxtui.serve.realtime.session_settings import TurnDetection
    from voxtui.settings.schema import Config

SHORTEST_COMMIT = 0.1
"""Seconds of sound. OpenAI refuses less."""

SessionEvent: TypeAlias = UserSessionEvent | Sound


class RealtimeSession:
    """`send` gets each event, `finished` each turn that was answered. `closed`: say why, and close.

    `deliver` brings an event of any thread to `take_event` on this one. `output`: sound goes over
    tracks, and this plays the answers; None: the client sends and gets it as events.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        config: Config,
        settings: Settings,
        send: Callable[[Json], object],
        deliver: Callable[[SessionEvent], object],
        closed: Callable[[str], object],
        finished: Callable[[Turn], object] = lambda turn: None,
        output: OutputBuffer | None = None,
    ) -> None:
        self.settings = settings
        self._config = config
        self._send = send
        self._closed = closed
        self._finished = finished
        self._id, self._conversation_id = new_id("sess"), new_id("conv")
        self._expires_at = int(time.time()) + SESSION_SECONDS
        self._controls = UserSession(make_engine, deliver)
        self._begun = False
        self._conversation = Conversation(self._emit, self._controls)
        self._by_turn: dict[int, Item] = {}
        """the user's items by the turn of their utterance"""
        rate, longest = RATE if output is None else TRACK_RATE, config.audio.max_utterance_s
        self._input = InputBuffer(self._controls, longest, rate, live=output is not None)
        self._pcm = PcmStream()
        self._output = output
        if output is not None:
            output.report = self._played
        self._speaking: Item | None = None
        """the utterance whose end is detected here"""
        self._held: list[Frame] = []
        """sound that must not interrupt the answer"""
        self._later: list[tuple[protocol.Commit, list[Frame]]] = []
        """commits that wait for the end of the answer, and their sound"""
        self._wanted: protocol.CreateResponse | None = None
        """an answer that waits for the end of the utterance"""
        self._response: Response | None = None
        self._heard: str | None = None
        """the heard part of the answer in progress, once it was cut off"""

    @property
    def answering(self) -> bool:
        return self._response is not None

    def start(self) -> None:
        self._controls.start()

    def close(self) -> None:
        """End everything. Blocks until the engine's thread has ended."""
        self._controls.close()

    # The client.

    def take_message(self, message: str | bytes) -> None:
        """Do what a message says, or answer it with an error. The session goes on."""
        try:
            event = protocol.parse(message)
        except HttpError as refusal:
            self._refuse(refusal, protocol.event_id(message))
            return
        with self._errors_told(event.event_id):
            self._take(event)

    def _take(self, event: protocol.ClientEvent) -> None:
        match event:
            case protocol.SessionUpdate(session=session):
                self._update(session)
            case protocol.BetaTranscriptionUpdate(session=session):
                self._update({**session, "type": "transcription"})
            case protocol.Append(audio=audio):
                self._append(audio)
            case protocol.Commit():
                self._commit(event)
            case protocol.Clear():
                self._clear()
                self._emit("input_audio_buffer.cleared")
            case protocol.CreateResponse():
                self._create_response(event)
            case protocol.CancelResponse(response_id=name):
                self._cancel_response(name)
            case protocol.CreateItem():
                if self._conversation.create(event).role == "system":
                    self._use_settings()
            case protocol.TruncateItem():
                self._truncate(event)
            case protocol.RetrieveItem(item_id=name):
                self._conversation.retrieve(name)
            case protocol.DeleteItem(item_id=name):
                if self._conversation.delete(name).role == "system":
                    self._use_settings()
            case protocol.ClearOutput():
                if self._output is None:
                    raise invalid("The client itself plays the sound here.", "type")
                if self._response is not None:
                    self._cancel_response(None)
                self._clear_output()

    def _update(self, session: object) -> None:
        before = self._detection
        self.settings = replace(self.settings.updated(session), model=self.settings.model)
        if (before is None) != (self._detection is None):
            self._clear()
        self._use_settings()
        self._emit("session.updated", session=self._shown())

    def _use_settings(self) -> None:
        """Have the engine read the instruction and listen as the session says."""
        vad, detection = self._config.vad, self._detection
        if detection is None:
            vad = replace(vad, hands_free=False, listen_while_speaking=False)
        else:
            vad = detection.vad(vad)
        self._controls.post(
            UseReplyOptions(self.settings.options(self._conversation.told), answers=False, vad=vad)
        )

    @property
    def _detection(self) -> TurnDetection | None:
        return self.settings.audio.input.turn_detection

    def _shown(self) -> Json:
        transcribes = self.settings.type == "transcription"
        return {
            "id": self._id,
            "object": f"realtime.{'transcription_' * transcribes}session",
            "expires_at": self._expires_at,
            **self.settings.as_json(),
        }

    # Sound.

    def _append(self, audio: str) -> None:
        if self._output is not None:
            raise invalid("Sound comes over the track here.", "type")
        try:
            data = b64decode(audio, validate=True)
        except binascii.Error as error:
            raise invalid("The audio is not base64.", "audio") from error
        if not data:
            raise invalid("The audio is empty.", "audio")
        most = self._config.audio.max_utterance_s
        if self._detection is None and self._input.seconds + len(data) / 2 / RATE > most:
            raise invalid(f"An utterance lasts {most:g} s at most. Commit or clear it.", "audio")
        self.take_sound(self._pcm.feed(data))

    def take_sound(self, samples: Samples) -> None:
        """Hear what the client says next. On a track it has TRACK_RATE, else RATE."""
        frames = self._input.feed(samples)
        if self._detection is None:
            self._input.keep(frames)
            if self._response is None:
                self._input.record()
        elif self._response is not None and not self._detection.interrupt_response:
            self._held += frames
        else:
            self._input.push(frames)

    def _clear(self) -> None:
        self._input.clear()
        self._pcm, self._held = PcmStream(), []
        if self._speaking is not None and self._speaking.turn is not None:
            self._controls.post(Cancel(self._speaking.turn))

    def _commit(self, event: protocol.Commit) -> None:
        at = time.monotonic()
        speaking = self._speaking
        if speaking is not None:
            self._controls.post(Release(at, speaking.turn, answers=False))
            return
        if self._detection is not None or self._input.seconds < SHORTEST_COMMIT:
            raise invalid(
                f"The buffer holds less than {SHORTEST_COMMIT * 1000:g} ms of sound.",
                code="input_audio_buffer_commit_empty",
            )
        if self._response is not None:
            self._later.append((event, self._input.take(at)))
            return
        self._utterance(*self._input.commit(at))

    def _utterance(self, turn: int, seconds: float) -> None:
        item = self._by_turn[turn] = Item("user", "audio", turn=turn, seconds=seconds)
        self._committed(item)

    def _committed(self, item: Item) -> None:
        previous = self._conversation.last_id
        self._emit("input_audio_buffer.committed", item_id=item.id, previous_item_id=previous)
        self._conversation.add(item)

    def _played(self, what: str, response_id: str) -> None:
        self._emit(f"output_audio_buffer.{what}", response_id=response_id)

    def _clear_output(self) -> None:
        """Stop what is played. The conversation keeps what was."""
        if self._response is not None:
            self._response.silenced = True
        cleared = self._output and self._output.clear()
        if cleared:
            item, seconds = cleared
            self._conversation.cut(item, round(min(seconds, item.seconds) * 1000))

    def _truncate(self, event: protocol.TruncateItem) -> None:
        item = self._conversation.truncatable(event)
        if item.status == "in_progress":
            self._cancel_response(None)
        self._conversation.cut(item, event.audio_end_ms)

    # Responses.

    def _create_response(self, event: protocol.CreateResponse) -> None:
        if self._response is not None:
            raise invalid(
                "An answer is in progress. Wait for response.done, or cancel it.",
                code="conversation_already_has_active_response",
            )
        if self.settings.type == "transcription":
            raise invalid("A transcription session answers nothing.", "type")
        response = protocol.response_of(event.response, self.settings, self._conversation_id)
        if self._speaking is not None:
            self._wanted = event
            return
        self._input.forget_recording()  # the buffer is kept, and recorded again after the answer
        options = response.settings.options(self._conversation.told)
        response.turn = self._controls.post(Answer(options))
        self._response, self._heard = response, None
        self._emit("response.created", response=response.as_json())

    def _cancel_response(self, name: str | None) -> None:
        response = self._response
        if response is None or name not in (None, response.id):
            raise invalid("No such answer is in progress.", code="response_cancel_not_active")
        response.cancelled = True
        self._controls.post(Cancel(response.turn))

    def _show(self, response: Response) -> None:
        """Show the item of the answer, with its first piece."""
        if response.item is None:
            for event in response.begin(self._conversation.last_id):
                self._emit(**event)
            assert response.item is not None
            self._conversation.append(response.item)

    def _end_response(self, response: Response, turn: Turn) -> None:
        most = self._config.generation.sampling().max_new_tokens
        limit = response.settings.options([]).limit(most)
        status = response.status(turn, limit)
        if status in ("completed", "incomplete") and turn.reply:
            self._show(response)
        item = response.item
        for event in response.end(status, self._conversation.before(item)):
            self._emit(**event)
        if self._output is not None:
            self._output.complete(response.id)
        if item is not None and self._heard is not None:
            item.text = self._heard
        self._response = None
        extra = {"x_voxtui": protocol.timing(turn)} if self.settings.x_voxtui else {}
        self._emit("response.done", response=response.as_json(status, turn), **extra)
        self._finished(turn)
        self._go_on()

    def _go_on(self) -> None:
        """Take up what waited for the end of the answer."""
        held, self._held = self._held, []
        self._input.push(held)
        later, self._later = self._later, []
        for commit, frames in later:
            with self._errors_told(commit.event_id):
                self._utterance(*self._input.commit_taken(frames, time.monotonic()))
        if self._response is None:
            self._input.record()

    # The engine.

    def take_event(self, event: SessionEvent) -> None:
        """Show what the engine reports."""
        if isinstance(event, Sound):
            if self._response is not None and not self._response.cancelled:
                self._take_answer(self._response, event)
            return
        self._controls.take(event)
        match event:
            case StateChanged(State.READY) if not self._begun:
                self._begun = True
                self._use_settings()
                self._emit("session.created", session=self._shown())
            case TurnStarted(turn, source) if source == MICROPHONE:
                if self._detection is not None and not self._input.began(turn):
                    self._speech_started(turn)
            case Captured(turn):
                self._captured(turn)
            case Caption(_, text) if self.settings.x_voxtui:
                self._emit("x_voxtui.caption", text=text)
            case UserWords(turn, text):
                if (item := self._by_turn.get(turn)) is not None:
                    self._transcribed(item, text)
            case ReplyText(turn, text):
                response = self._response
                if response is not None and response.turn == turn and not response.cancelled:
                    self._show(response)
                    self._emit(**response.words(text))
            case SpokenUpTo(turn, text):
                self._spoken_up_to(turn, text)
            case TurnFinished(turn):
                self._turn_finished(turn)
            case LoadFailed(error) | Died(error):
                self._error(f"The session failed: {error}", "session_failed", None)
                self._closed("failed")
            case _:
                pass

    def _take_answer(self, response: Response, sound: Sound) -> None:
        self._show(response)
        delta = response.sound(sound)
        if self._output is None:
            self._emit(**delta)
        elif response.item is not None and not response.silenced:
            self._output.add(response.id, response.item, sound)

    def _speech_started(self, turn: int) -> None:
        item = Item("user", "audio", turn=turn)
        self._by_turn[turn] = self._speaking = item
        start = max(0, self._input.arrived_ms - self._config.vad.start_ms)
        self._emit("input_audio_buffer.speech_started", item_id=item.id, audio_start_ms=start)
        if self._detection is not None and self._detection.interrupt_response:
            self._clear_output()

    def _speech_stopped(self, item: Item) -> None:
        self._speaking = None
        end = self._input.arrived_ms
        self._emit("input_audio_buffer.speech_stopped", item_id=item.id, audio_end_ms=end)

    def _captured(self, turn: int) -> None:
        item = self._by_turn.get(turn)
        if item is None:
            return
        item.captured = True
        if item is self._speaking:
            self._speech_stopped(item)
            self._committed(item)
            self._answer_speech()

    def _answer_speech(self) -> None:
        """Answer what was said, if the client wants that without asking, or has asked."""
        wanted, self._wanted = self._wanted, None
        detection = self._detection
        by_itself = detection is not None and detection.create_response
        if (wanted or by_itself) and self.settings.type == "realtime":
            event = wanted or protocol.CreateResponse()
            with self._errors_told(event.event_id):
                self._create_response(event)

    def _transcribed(self, item: Item, text: str) -> None:
        item.text = text
        transcribes = self.settings.audio.input.transcription is not None
        if transcribes or self.settings.type == "transcription":
            self._emit(
                "conversation.item.input_audio_transcription.completed",
                item_id=item.id, content_index=0, transcript=text, usage=usage(item.seconds),
            )  # fmt: skip

    def _spoken_up_to(self, turn: int, text: str) -> None:
        if self._response is not None and self._response.turn == turn:
            self._heard = text
        else:
            self._conversation.was_cut(turn, text)

    def _turn_finished(self, turn: Turn) -> None:
        item = self._by_turn.get(turn.number)
        if item is not None and not item.captured:  # nothing was said in it
            item.captured = True
            if item is self._speaking:
                self._speech_stopped(item)
                if self._wanted is not None:
                    self._answer_speech()
            else:
                self._transcribed(item, "")
        elif self._response is not None and self._response.turn == turn.number:
            self._end_response(self._response, turn)

    # Out.

    def expire(self, why: str) -> None:
        """Say why the session ends."""
        self._error(why, "session_expired", None)

    @contextmanager
    def _errors_told(self, event_id: str | None) -> Generator[None]:
        """Answer what cannot be done with an error. The session goes on."""
        try:
            yield
        except HttpError as refusal:
            self._refuse(refusal, event_id)
        except NotAllowed as refused:
            self._error(str(refused), "not_possible", event_id)

    def _refuse(self, refusal: HttpError, event_id: str | None) -> None:
        self._emit("error", error={**refusal.error, "event_id": event_id})

    def _error(self, message: str, code: str, event_id: str | None) -> None:
        error = {"type": SERVER, "code": code, "message": message, "param": None}
        self._emit("error", error={**error, "event_id": event_id})

    def _emit(self, type: str, **fields: object) -> None:  # noqa: A002 (a field of the protocol)
        self._send({"type": type, "event_id": new_id("event"), **fields})
