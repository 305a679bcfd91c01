"""The events of the protocol: those of a client, and the items and responses shown to it.

Nothing here sends or waits. The fields are those that strict clients require.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from voxtui.dialogue.timestamps import Milestone, Outcome, Turn
from voxtui.serve.function_tools import Name
from voxtui.serve.openai_types import NOT_JSON
from voxtui.serve.realtime.session_settings import (
    LONGEST_TEXT,
    Json,
    Settings,
    converted,
    invalid,
    invalid_field,
    object_of,
)
from voxtui.storage.derived_latencies import stages

MOST_METADATA = 16


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(10)}"


class _Event(msgspec.Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    event_id: str | None = None


class SessionUpdate(_Event, frozen=True, tag="session.update"):
    session: Any = None


class Append(_Event, frozen=True, tag="input_audio_buffer.append"):
    audio: str = ""


class Commit(_Event, frozen=True, tag="input_audio_buffer.commit"):
    pass


class Clear(_Event, frozen=True, tag="input_audio_buffer.clear"):
    pass


class CreateResponse(_Event, frozen=True, tag="response.create"):
    response: Any = None


class CancelResponse(_Event, frozen=True, tag="response.cancel"):
    response_id: str | None = None


class CreateItem(_Event, frozen=True, tag="conversation.item.create"):
    item: Any = None
    previous_item_id: str | None = None


class TruncateItem(_Event, frozen=True, tag="conversation.item.truncate"):
    item_id: str = ""
    content_index: int = 0
    audio_end_ms: int = 0


class RetrieveItem(_Event, frozen=True, tag="conversation.item.retrieve"):
    item_id: str = ""


class DeleteItem(_Event, frozen=True, tag="conversation.item.delete"):
    item_id: str = ""


class ClearOutput(_Event, frozen=True, tag="output_audio_buffer.clear"):
    """Clear the output; WebRTC only. On a WebSocket the client holds what is not played."""


ClientEvent: TypeAlias = (
    SessionUpdate
    | Append
    | Commit
    | Clear
    | CreateResponse
    | CancelResponse
    | CreateItem
    | TruncateItem
    | RetrieveItem
    | DeleteItem
    | ClearOutput
)

_decoder = msgspec.json.Decoder(ClientEvent)


class _Id(msgspec.Struct):
    event_id: Any = None


def parse(message: str | bytes) -> ClientEvent:
    """Parse a message. Raises HttpError with the client's own id of the event."""
    try:
        return _decoder.decode(message)
    except msgspec.ValidationError as error:
        refusal = invalid_field(error, "")
        refusal.error["param"] = refusal.error["param"] or "type"
    except NOT_JSON:
        refusal = invalid("The message is not JSON.", code="invalid_json")
    with suppress(*NOT_JSON):
        event_id = msgspec.json.decode(message, type=_Id).event_id
        refusal.error["event_id"] = event_id if isinstance(event_id, str) else None
    raise refusal


Role: TypeAlias = Literal["user", "assistant", "system"]

Kind: TypeAlias = Literal["text", "audio", "function_call", "function_call_output"]

PARTS: dict[Role, tuple[str, ...]] = {
    "user": ("input_text",),
    "system": ("input_text",),
    "assistant": ("output_text", "output_audio"),
}


@dataclass(slots=True, eq=False)
class Item:
    role: Role
    kind: Kind
    id: str = field(default_factory=lambda: new_id("item"))
    text: str | None = None
    """the words, None if they are not known yet; of a function, the arguments or the output"""
    call_id: str = ""
    name: str = ""
    turn: int | None = None
    """the number of its turn in the engine's history"""
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    seconds: float = 0.0
    captured: bool = False

    def as_json(self) -> Json:
        about = {"id": self.id, "object": "realtime.item", "status": self.status}
        match self.kind:
            case "function_call":
                own: Json = {"name": self.name, "call_id": self.call_id, "arguments": self.text}
            case "function_call_output":
                own = {"call_id": self.call_id, "output": self.text}
            case kind:
                way = "output" if self.role == "assistant" else "input"
                part = {"type": f"{way}_{kind}", **self.words}
                content = [part] if self.status != "in_progress" else []
                return {**about, "type": "message", "role": self.role, "content": content}
        return {**about, "type": self.kind, **own}

    @property
    def words(self) -> Json:
        return {"transcript" if self.kind == "audio" else "text": self.text}


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    text: str | None = None
    transcript: str | None = None
    audio: str | None = None
    image_url: str | None = None
    detail: str | None = None


ShortText = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]


class _OfClient(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, tag_field="type"):
    id: ShortText | None = None
    object: Literal["realtime.item"] = "realtime.item"
    status: Literal["completed", "incomplete", "in_progress"] = "completed"


class _Call(_OfClient, tag="function_call"):
    name: Name
    arguments: Text
    call_id: ShortText


class _Result(_OfClient, tag="function_call_output"):
    call_id: ShortText
    output: Text


class _Message(_OfClient, tag="message"):
    role: Role
    content: list[_Part] = []


_CLIENT_ITEM: Any = _Call | _Result | _Message


def item_of(given: object) -> Item:
    """Return the item that a client adds: a text, a call or a result. Raises HttpError."""
    whole = given
    if isinstance(given, dict):
        fields: Json = dict(given)  # type: ignore[reportUnknownArgumentType]
        whole = {"type": "message", **fields}
    item: _Call | _Result | _Message = converted(whole, _CLIENT_ITEM, "item")
    name = item.id or new_id("item")
    match item:
        case _Call(name=called, arguments=arguments, call_id=call):
            return Item("assistant", "function_call", name, arguments, call, called)
        case _Result():
            return Item("user", "function_call_output", name, item.output, item.call_id)
        case _Message():
            return Item(item.role, "text", name, _text_of(item))


def _text_of(item: _Message) -> str:
    texts: list[str] = []
    for part in item.content:
        if part.type in ("input_image", "input_audio"):
            raise invalid(f"{part.type} is not supported in an item.", "item.content")
        if part.type not in PARTS[item.role]:
            raise invalid(f"The role {item.role} has no {part.type!r}.", "item.content")
        texts.append(part.text or part.transcript or "")
    text = "\n".join(texts)
    if not text.strip():
        raise invalid("The item holds no text.", "item.content")
    if len(text) > LONGEST_TEXT:
        raise invalid(f"An item holds {LONGEST_TEXT} characters at most.", "item.content")
    return text


@dataclass(slots=True, eq=False)
class Response:
    """An answer in progress, and the events that report it."""

    settings: Settings
    conversation_id: str
    metadata: Json | None
    request: str = ""
    """the instructions for this answer only, which are its request if the user has said nothing"""
    id: str = field(default_factory=lambda: new_id("resp"))
    turn: int = 0
    item: Item | None = None
    cancelled: bool = False
    silenced: bool = False
    heard: str | None = None
    """the heard part, once the answer was cut off"""
    calls: list[Item] = field(default_factory=list[Item])

    @property
    def output(self) -> list[Item]:
        return [*([self.item] if self.item else []), *self.calls]

    def as_json(self, status: str = "in_progress", turn: Turn | None = None) -> Json:
        output = self.settings.audio.output
        details: Json | None = None
        if turn is not None:
            details = {"type": status, **_details(status, turn, self.cancelled)}
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": [item.as_json() for item in self.output] if turn is not None else [],
            "conversation_id": self.conversation_id,
            "output_modalities": self.settings.output_modalities,
            "max_output_tokens": self.settings.max_output_tokens,
            "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24000},
                                 "voice": output.voice}},
            "metadata": self.metadata,
            "usage": _usage(turn) if turn is not None else None,
        }  # fmt: skip

    def status(self, turn: Turn, limit: int) -> str:
        match turn.outcome:
            case Outcome.FAILED:
                return "failed"
            case Outcome.CANCELLED:
                return "cancelled"
            case _:
                return "incomplete" if turn.tokens >= limit else "completed"

    # Each returns the events that it makes visible, without their ids.

    def begin(self, previous: str | None) -> list[Json]:
        """Open the item of the answer, with its first piece."""
        kind = "audio" if self.settings.speaks else "text"
        item = self.item = Item("assistant", kind, text="", status="in_progress", turn=self.turn)
        part = {"type": kind, **item.words}
        return [
            *self._item_events("added", 0, item.as_json(), previous),
            {"type": "response.content_part.added", **self._place(), "part": part},
        ]

    def words(self, text: str) -> Json:
        assert self.item is not None
        self.item.text = (self.item.text or "") + text
        return {"type": f"response.{self._written}.delta", **self._place(), "delta": text}

    @property
    def _written(self) -> str:
        return "output_audio_transcript" if self.settings.speaks else "output_text"

    def call(self, item: Item, previous: str | None) -> list[Json]:
        """Open and close the item of a call."""
        index = len(self.output)
        self.calls.append(item)
        place = {"response_id": self.id, "output_index": index}
        part = {**place, "item_id": item.id, "call_id": item.call_id}
        shown = item.as_json()
        begun = {**shown, "status": "in_progress", "arguments": ""}
        done = {"name": item.name, "arguments": item.text}
        of_arguments = "response.function_call_arguments"
        return [
            *self._item_events("added", index, begun, previous),
            {"type": f"{of_arguments}.delta", **part, "delta": item.text},
            {"type": f"{of_arguments}.done", **part, **done},
            *self._item_events("done", index, shown, previous),
        ]

    def sound(self, pcm: bytes) -> Json:
        delta = b64encode(pcm).decode()
        return {"type": "response.output_audio.delta", **self._place(), "delta": delta}

    def end(self, status: str, previous: str | None) -> list[Json]:
        """Close the item of the answer."""
        item = self.item
        if item is None:
            return []
        item.status = "completed" if status == "completed" else "incomplete"
        place, part = self._place(), {"type": item.kind, **item.words}
        sound: list[Json] = [{"type": "response.output_audio.done", **place}]
        return [
            *(sound if item.kind == "audio" else []),
            {"type": f"response.{self._written}.done", **place, **item.words},
            {"type": "response.content_part.done", **place, "part": part},
            *self._item_events("done", 0, item.as_json(), previous),
        ]

    def _item_events(self, what: str, index: int, item: Json, previous: str | None) -> list[Json]:
        place = {"response_id": self.id, "output_index": index}
        return [
            {"type": f"response.output_item.{what}", **place, "item": item},
            {"type": f"conversation.item.{what}", "item": item, "previous_item_id": previous},
        ]

    def _place(self) -> Json:
        assert self.item is not None
        return {
            "response_id": self.id, "item_id": self.item.id, "output_index": 0, "content_index": 0
        }  # fmt: skip


def timing(turn: Turn) -> Json:
    """Return the stages of a turn, in milliseconds after the commit."""
    first_audio = turn.ms(Milestone.FIRST_AUDIO)
    shown = [
        {"name": s.name, "start_ms": round(s.start * 1000, 1), "end_ms": round(s.end * 1000, 1)}
        for s in stages(turn.timestamps, turn.speculative_s)
    ]
    return {"stages": shown, "first_audio_ms": first_audio and round(first_audio, 1)}


class _ClientResponse(msgspec.Struct):
    """The fields that only `response.create` has."""

    conversation: str | None = None
    input: list[Any] | None = None
    metadata: Annotated[dict[str, str], Meta(max_length=MOST_METADATA)] | None = None


OUTSIDE = "Answers outside of the conversation are not supported."


def response_of(given: object, settings: Settings, conversation_id: str) -> Response:
    """Return the response that a client requests. Raises HttpError."""
    if given is None:
        return Response(settings, conversation_id, None)
    settings_of_it = object_of(given, "response")
    names = settings_of_it.keys() & set(_ClientResponse.__struct_fields__)
    own = {name: settings_of_it.pop(name) for name in names}
    asked = converted(own, _ClientResponse, "response")
    if asked.conversation not in (None, "auto"):
        raise invalid(OUTSIDE, "response.conversation", "not_supported")
    if asked.input is not None:
        raise invalid(OUTSIDE, "response.input", "not_supported")
    own_settings = settings.for_response(settings_of_it)
    # Some clients repeat the session's instructions before those of the answer.
    request = own_settings.instructions.removeprefix(settings.instructions).strip()
    return Response(own_settings, conversation_id, asked.metadata, request)


def _details(status: str, turn: Turn, by_client: bool) -> Json:
    match status:
        case "cancelled":
            return {"reason": "client_cancelled" if by_client else "turn_detected"}
        case "incomplete":
            return {"reason": "max_output_tokens"}
        case "failed":
            message = turn.error or "The answer failed."
            return {"error": {"type": "server_error", "code": "failed", "message": message}}
        case _:
            return {}


def _usage(turn: Turn) -> Json:
    """Return the token counts of a response. Those of the prompt include the user's sound."""
    return {
        "total_tokens": turn.prompt_tokens + turn.tokens,
        "input_tokens": turn.prompt_tokens,
        "output_tokens": turn.tokens,
        "input_token_details": {
            "text_tokens": turn.prompt_tokens, "audio_tokens": 0, "image_tokens": 0,
            "cached_tokens": 0,
            "cached_tokens_details": {"text_tokens": 0, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": turn.tokens, "audio_tokens": 0},
    }  # fmt: skip
