"""The settings of a session, as in `session.update` and `response.create`.

Each field is used, echoed (docs/serve.md says which have no effect), or refused by name. Fields as
in https://platform.openai.com/docs/api-reference/realtime (openai 3.54).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from voxtui.dialogue.protocols import ReplyOptions
from voxtui.serve.function_tools import Function, Name, tools_of
from voxtui.serve.openai_types import HttpError
from voxtui.settings.schema import VadConfig

RATE = 24_000
"""Sample rate in Hz, in both directions."""

LONGEST_TEXT = 4000
"""Maximum characters of the instructions, of an item, and of all system items. The embedded model
reads them with the conversation in one context."""

SESSION_SECONDS = 3600

EAGERNESS_MS = {"low": 1200, "medium": 800, "auto": 800, "high": 400}
"""Silence after which `semantic_vad` ends an utterance. Only the silence is judged here."""

PREROLL_MS = 350
"""Length of the pre-roll of detected speech. `prefix_padding_ms` does not change it."""

Json: TypeAlias = dict[str, Any]

T = TypeVar("T")

OF_RESPONSE = frozenset({
    "audio", "instructions", "max_output_tokens", "output_modalities", "parallel_tool_calls",
    "prompt", "reasoning", "tool_choice", "tools",
})  # fmt: skip
"""Fields that `session.update` and `response.create` share."""

NULLABLE = frozenset(
    {"turn_detection", "transcription", "noise_reduction", "include", "tracing", "prompt"}
)


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Format(_Struct, frozen=True):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24000


class Transcription(_Struct, frozen=True, omit_defaults=True):
    """Requests the user's words. The loaded recogniser writes them."""

    model: str | None = None
    language: str | None = None
    languages: list[str] | None = None
    prompt: str | None = None
    keywords: list[str] | None = None
    delay: str | None = None


class NoiseReduction(_Struct, frozen=True, omit_defaults=True):
    type: Literal["near_field", "far_field"] | None = None
    strength: float | None = None


class _Detection(_Struct, frozen=True, tag_field="type"):
    create_response: bool = True
    interrupt_response: bool = True


class ServerVad(_Detection, frozen=True, tag="server_vad"):
    """Ends an utterance after `silence_duration_ms`."""

    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=10_000)] = PREROLL_MS
    silence_duration_ms: Annotated[int, Meta(ge=64, le=10_000)] | None = None
    idle_timeout_ms: None = None

    def vad(self, vad: VadConfig) -> VadConfig:
        threshold, end_ms = self.threshold or vad.threshold, self.silence_duration_ms or vad.end_ms
        return msgspec.structs.replace(vad, threshold=threshold, end_ms=end_ms)


class SemanticVad(_Detection, frozen=True, tag="semantic_vad"):
    """Ends an utterance by its silence, too: the words are not judged."""

    eagerness: Literal["low", "medium", "high", "auto"] = "auto"

    def vad(self, vad: VadConfig) -> VadConfig:
        return msgspec.structs.replace(vad, end_ms=EAGERNESS_MS[self.eagerness])


class AudioInput(_Struct, frozen=True):
    format: Format = Format()
    transcription: Transcription | None = None
    noise_reduction: NoiseReduction | None = None
    turn_detection: ServerVad | SemanticVad | None = ServerVad()


class AudioOutput(_Struct, frozen=True):
    voice: str | Json
    format: Format = Format()
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] = 1.0


class FunctionTool(Function, frozen=True, forbid_unknown_fields=True):
    type: Literal["function"] = "function"


class NamedTool(_Struct, frozen=True):
    """A request that the model call one tool."""

    name: Name
    type: Literal["function"] = "function"


class Audio(_Struct, frozen=True):
    input: AudioInput
    output: AudioOutput


class Settings(_Struct, frozen=True):
    model: str
    audio: Audio
    instructions: Annotated[str, Meta(max_length=LONGEST_TEXT)] = ""
    type: Literal["realtime", "transcription"] = "realtime"
    output_modalities: Annotated[
        list[Literal["audio", "text"]], Meta(min_length=1, max_length=1)
    ] = msgspec.field(default_factory=lambda: ["audio"])  # type: ignore[assignment]
    max_output_tokens: Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"] = "inf"
    tools: list[FunctionTool] = msgspec.field(default_factory=list[FunctionTool])
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    prompt: None = None
    include: list[Literal["item.input_audio_transcription.logprobs"]] | None = None
    tracing: str | Json | None = None
    truncation: str | Json | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Json | None = None
    x_voxtui: bool | None = None
    """whether the client wants captions and the stages of an answer, which OpenAI does not send"""

    def as_json(self, session_id: str, expires_at: int, vad: VadConfig) -> Json:
        """Return the session as the client sees it. `vad` is the default detection."""
        whole: Json = msgspec.to_builtins(self)
        if isinstance(self.detection, ServerVad):
            in_force = self.detection.vad(vad)
            detection: Json = whole["audio"]["input"]["turn_detection"]
            detection["threshold"] = in_force.threshold
            detection["silence_duration_ms"] = in_force.end_ms
        kind = "realtime.session"
        if self.type == "transcription":
            kind = "realtime.transcription_session"
            heard = {"input": whole["audio"]["input"]}
            whole = {"type": self.type, "audio": heard, "include": self.include}
        optional = ("truncation", "parallel_tool_calls", "reasoning", "x_voxtui")
        shown = {k: v for k, v in whole.items() if v is not None or k not in optional}
        return {"id": session_id, "object": kind, "expires_at": expires_at, **shown}

    def updated(self, session: Json) -> Settings:
        """Return the settings after `session.update`; omitted fields stay. Raises HttpError."""
        return self._checked(session, "session")

    def for_response(self, response: Json) -> Settings:
        for name in response:
            if name not in OF_RESPONSE:
                raise unknown(f"response.{name}")
        if "input" in object_of(response.get("audio") or {}, "response.audio"):
            raise unknown("response.audio.input")
        return self._checked(response, "response")

    def _checked(self, changes: Json, param: str) -> Settings:
        if changes.get("prompt"):
            raise no_templates(param)
        changed = converted(_merged(msgspec.to_builtins(self), changes), Settings, param)
        try:
            changed.options([])
        except HttpError as error:  # of the tools
            raise invalid(str(error), f"{param}.{error.error['param']}") from error
        return changed

    @property
    def detection(self) -> ServerVad | SemanticVad | None:
        return self.audio.input.turn_detection

    @property
    def answers_speech(self) -> bool:
        """True if detected speech is answered without a request."""
        detects = self.detection is not None and self.detection.create_response
        return detects and self.type == "realtime"

    @property
    def transcribes(self) -> bool:
        """True if the client requests the user's words."""
        return self.audio.input.transcription is not None or self.type == "transcription"

    def vad(self, vad: VadConfig) -> VadConfig:
        """Return the settings of the detector."""
        detects = self.detection is not None
        own = msgspec.structs.replace(vad, hands_free=detects, listen_while_speaking=False, name="")
        return self.detection.vad(own) if self.detection is not None else own

    @property
    def speaks(self) -> bool:
        return "audio" in self.output_modalities

    def options(self, said_by_system: list[str]) -> ReplyOptions:
        """Return the options of an answer. `said_by_system` are the texts of system items."""
        texts = [text for text in (self.instructions, *said_by_system) if text]
        most = self.max_output_tokens
        speed = self.audio.output.speed
        choice = self.tool_choice
        name = choice.name if isinstance(choice, NamedTool) else choice
        tools, tool_choice = tools_of(self.tools, name)
        return ReplyOptions(
            instruction="\n\n".join(texts) if texts else None,
            max_new_tokens=None if most == "inf" else most,
            voice="" if self.speaks else "none",
            speed=None if speed == 1.0 else speed,
            tools=tools,
            tool_choice=tool_choice,
        )


def default_settings(model: str, voice: str) -> Settings:
    """Return the settings of a client that sets nothing."""
    return Settings(model=model, audio=Audio(AudioInput(), AudioOutput(voice)))


def no_templates(param: str) -> HttpError:
    message = "Prompt templates are not supported. Send `instructions`."
    return invalid(message, f"{param}.prompt", "not_supported")


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> HttpError:
    return HttpError(400, message, param=param, code=code)


def unknown(param: str) -> HttpError:
    return invalid(f"There is no field {param!r}.", param, "unknown_parameter")


def invalid_field(error: msgspec.ValidationError, param: str) -> HttpError:
    """Return the error for an invalid value within `param`, with the name of its field."""
    what, _, where = str(error).partition(" - at `$")
    place = param + where.rstrip("`").replace("[...]", "")
    if field := re.search(r"(unknown|required) field `(.*)`", what):
        place = f"{place}.{field[2]}".lstrip(".")
        if field[1] == "unknown":
            return unknown(place)
    return invalid(f"{what}.", place.lstrip(".") or None)


def converted(value: object, kind: type[T], param: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise invalid_field(error, param) from error


def object_of(value: object, param: str) -> Json:
    if not isinstance(value, dict):
        raise invalid("An object is expected.", param)
    return dict(value)  # type: ignore[reportUnknownArgumentType]


def _merged(old: Json, new: Json) -> Json:
    """Return `old` with the fields of `new`. Only `audio` is merged recursively."""
    merged = dict(old)
    for name, value in new.items():
        before = merged.get(name)
        if name in ("audio", "input", "output") and isinstance(value, dict):
            merged[name] = _merged(before or {}, value)  # type: ignore[reportUnknownArgumentType]
        elif value is not None or name in NULLABLE:
            merged[name] = value
    return merged
