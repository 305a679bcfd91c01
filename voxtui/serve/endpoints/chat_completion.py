"""The body of `POST /v1/chat/completions`: each field is used, ignored or refused.

Fields as in https://platform.openai.com/docs/api-reference/chat (openai 3.54).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from voxtui.dialogue.protocols import ReplyOptions
from voxtui.serve.endpoints.json_schema import check_schema
from voxtui.serve.endpoints.transcriptions import check_model
from voxtui.serve.function_tools import Function, tools_of
from voxtui.serve.openai_types import HttpError, decoded

LONGEST_TEXT = 4000
"""Maximum characters of all messages and calls. The embedded model reads them in one context."""

MOST_SOUNDS = 32
"""Maximum sounds of all messages. Each may last audio.max_utterance_s, and is recognised."""

JSON_ONLY = "Answer with JSON only."
"""The instruction for a client that requests JSON and sends no instruction."""

ANY_OBJECT = '{"type":"object"}'


class Sound(msgspec.Struct):
    data: str


class ContentPart(msgspec.Struct):
    type: str
    text: str = ""
    input_audio: Sound | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str = "{}"


class CalledTool(msgspec.Struct, frozen=True):
    """A call in a message of the assistant."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None

    @property
    def parts(self) -> list[ContentPart]:
        return (
            [ContentPart("text", self.content)]
            if isinstance(self.content, str)
            else self.content or []
        )


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class FunctionTool(msgspec.Struct, frozen=True):
    function: Function
    type: Literal["function"] = "function"


class NamedFunction(msgspec.Struct, frozen=True):
    name: str


class NamedTool(msgspec.Struct, frozen=True):
    """A request that the model call one tool."""

    function: NamedFunction
    type: Literal["function"] = "function"


class JsonSchema(msgspec.Struct):
    name: str
    schema: dict[str, Any] = {}
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: JsonSchema | None = None


REFUSED: dict[str, tuple[object, ...]] = {
    "audio": (), "function_call": ("none",), "functions": ([],), "logprobs": (False,),
    "moderation": (), "n": (1,), "top_logprobs": (0,), "web_search_options": (),
}  # fmt: skip
"""OpenAI's fields that are refused, and the values that request nothing; null always does."""


class ChatCompletion(msgspec.Struct):
    """The body of a request. Fields that OpenAI does not have are ignored."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=500)]
    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    modalities: list[str] | None = None
    response_format: ResponseFormat | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    stop: (
        Annotated[str, Meta(min_length=1)]
        | Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=4)]
        | None
    ) = None

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def functions(self) -> list[Function]:
        return [tool.function for tool in self.tools or ()]

    def style(self, instructions: str | None) -> ReplyOptions:
        """Return the options of the answer. Raises HttpError."""
        schema, choice = self.json_schema, self.tool_choice or "auto"
        name = choice.function.name if isinstance(choice, NamedTool) else choice
        tools, tool_choice = tools_of(self.functions, name)
        return ReplyOptions(
            instruction=instructions or (JSON_ONLY if schema else None),
            max_new_tokens=self.max_completion_tokens or self.max_tokens,
            voice="none",
            json_schema=schema,
            tools=tools,
            tool_choice=tool_choice,
        )

    @property
    def json_schema(self) -> str:
        """Return the JSON schema of the answer; empty for any text."""
        form = self.response_format
        if form is None or form.type == "text":
            return ""
        schema = form.json_schema
        return msgspec.json.encode(schema.schema).decode() if schema else ANY_OBJECT

    def check(self, models: Sequence[str]) -> None:
        """Raise HttpError for unsupported values."""
        check_model(self.model, *models)
        if self.modalities is not None and "audio" in self.modalities:
            raise HttpError(400, "Answers are text; /v1/audio/speech speaks.", param="modalities")
        if self.messages[-1].role not in ("user", "tool"):
            raise HttpError(
                400, "The last message must be the user's, or the result of a tool.",
                param="messages",
            )  # fmt: skip
        self.style(None)
        parts = [part for message in self.messages for part in message.parts]
        if unknown := {part.type for part in parts} - {"text", "input_audio"}:
            raise HttpError(400, f"{min(unknown)!r} is not supported.", param="messages")
        made = [call.function for message in self.messages for call in message.tool_calls or ()]
        texts = [part.text for part in parts] + [call.name + call.arguments for call in made]
        if sum(map(len, texts)) > LONGEST_TEXT:
            raise HttpError(
                400, f"The messages have more than {LONGEST_TEXT} characters.", param="messages",
                code="context_length_exceeded",
            )  # fmt: skip
        if sum(part.input_audio is not None for part in parts) > MOST_SOUNDS:
            message = f"The messages have more than {MOST_SOUNDS} sounds."
            raise HttpError(400, message, param="messages")
        if (form := self.response_format) is not None and form.type == "json_schema":
            if form.json_schema is None:
                raise HttpError(
                    400, "response_format.json_schema is missing.", param="response_format"
                )
            check_schema(form.json_schema.schema, "response_format.json_schema.schema")


def parsed(body: bytes, models: Sequence[str]) -> ChatCompletion:
    """Parse a body into a request for one of `models`. Raises HttpError."""
    request = decoded(body, ChatCompletion)
    for field, value in decoded(body, dict[str, Any]).items():
        if field in REFUSED and value is not None and value not in REFUSED[field]:
            raise HttpError(
                400, f"{field} is not supported here.", param=field, code="unsupported_value"
            )
    request.check(models)
    return request
