"""The settings of a session: `session.update`, in the shapes of GA and of the beta.

Fields as in https://platform.openai.com/docs/api-reference/realtime (openai 3.54).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from voxtui.dialogue.protocols import ReplyOptions
from voxtui.serve.openai_types import HttpError
from voxtui.settings.schema import VadConfig

RATE = 24_000
"""Hz of the sound in both directions"""

LONGEST_INSTRUCTIONS = 4000
"""Characters. The embedded model reads them with the conversation in one context."""

SESSION_SECONDS = 3600

EAGERNESS_MS = {"low": 1200, "medium": 800, "auto": 800, "high": 400}
"""Silence after which `semantic_vad` ends an utterance. Only the silence is judged here."""

Json: TypeAlias = dict[str, Any]


class Format(msgspec.Struct, frozen=True):
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24000


class TurnDetection(msgspec.Struct, frozen=True, omit_defaults=False):
    """The detection of speech. None in its place: the client commits each utterance."""

    type: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: Annotated[float, Meta(gt=0, lt=1)] | None = None
    prefix_padding_ms: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    silence_duration_ms: Annotated[int, Meta(ge=64, le=10_000)] | None = None
    eagerness: Literal["low", "medium", "high", "auto"] | None = None
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None

    def as_json(self) -> Json:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def vad(self, vad: VadConfig) -> VadConfig:
        if self.type == "semantic_vad":
            end_ms: int | None = EAGERNESS_MS[self.eagerness or "auto"]
        else:
            end_ms = self.silence_duration_ms
        return msgspec.structs.replace(
            vad, hands_free=True, listen_while_speaking=False,
            threshold=self.threshold or vad.threshold, end_ms=end_ms or vad.end_ms,
        )  # fmt: skip


class AudioInput(msgspec.Struct, frozen=True):
    format: Format = Format()
    transcription: Json | None = None
    noise_reduction: Json | None = None
    turn_detection: TurnDetection | None = TurnDetection()


class AudioOutput(msgspec.Struct, frozen=True):
    voice: str | Json
    format: Format = Format()
    speed: Annotated[float, Meta(ge=0.25, le=1.5)] = 1.0


class Audio(msgspec.Struct, frozen=True):
    input: AudioInput
    output: AudioOutput


class Settings(msgspec.Struct, frozen=True):
    """The session in force. Fields that change nothing here are echoed."""

    model: str
    audio: Audio
    instructions: Annotated[str, Meta(max_length=LONGEST_INSTRUCTIONS)] = ""
    type: Literal["realtime", "transcription"] = "realtime"
    output_modalities: Annotated[
        list[Literal["audio", "text"]], Meta(min_length=1, max_length=2)
    ] = msgspec.field(default_factory=lambda: ["audio"])  # type: ignore[assignment]
    max_output_tokens: Annotated[int, Meta(ge=1, le=4096)] | Literal["inf"] = "inf"
    tools: list[Json] = msgspec.field(default_factory=list[Json])
    tool_choice: str | Json = "auto"
    include: list[str] | None = None
    prompt: Json | None = None
    tracing: str | Json | None = None
    truncation: str | Json | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Json | None = None
    x_voxtui: bool | None = None
    """the client also wants what OpenAI does not send: captions, and the stages of each answer"""

    def as_json(self) -> Json:
        """Return the session as the client sees it."""
        detection = self.detection
        whole: Json = msgspec.to_builtins(self)
        whole["audio"]["input"]["turn_detection"] = detection and detection.as_json()
        if self.type == "transcription":
            whole = {
                "type": "transcription",
                "audio": {"input": whole["audio"]["input"]},
                "include": self.include,
            }
        optional = ("truncation", "parallel_tool_calls", "reasoning", "x_voxtui")
        return {k: v for k, v in whole.items() if v is not None or k not in optional}

    def updated(self, session: object) -> Settings:
        """Return the settings after `session.update`. Omitted fields stay. Raises HttpError."""
        return self._checked(_merged(msgspec.to_builtins(self), _as_ga(_object(session))))

    def for_response(self, response: object) -> Settings:
        """Return the settings of one response. Raises HttpError."""
        asked = _as_ga(_object(response))
        for name in ("conversation", "input", "metadata"):
            asked.pop(name, None)
        return self._checked(_merged(msgspec.to_builtins(self), asked))

    def _checked(self, fields: Json) -> Settings:
        try:
            settings = msgspec.convert(fields, Settings)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$")
            param = f"session{where.rstrip('`')}" if where else None
            raise invalid(f"{what}.", param) from error
        choice = settings.tool_choice
        if choice == "required" or isinstance(choice, dict):
            raise invalid("Tools are never called here, so none can be required.", "tool_choice")
        return settings

    @property
    def detection(self) -> TurnDetection | None:
        return self.audio.input.turn_detection

    @property
    def answers_speech(self) -> bool:
        """True if detected speech is answered unasked."""
        detects = self.detection is not None and self.detection.create_response
        return detects and self.type == "realtime"

    @property
    def transcribes(self) -> bool:
        """True if the client wants to know what was said."""
        return self.audio.input.transcription is not None or self.type == "transcription"

    def vad(self, vad: VadConfig) -> VadConfig:
        """Return how to detect speech."""
        if self.detection is not None:
            return self.detection.vad(vad)
        return msgspec.structs.replace(vad, hands_free=False, listen_while_speaking=False)

    @property
    def speaks(self) -> bool:
        return "audio" in self.output_modalities

    def options(self, said_by_system: list[str]) -> ReplyOptions:
        """Return how to answer. `said_by_system`: texts of system items."""
        texts = [text for text in (self.instructions, *said_by_system) if text]
        most = self.max_output_tokens
        speed = self.audio.output.speed
        return ReplyOptions(
            instruction="\n\n".join(texts) if texts else None,
            max_new_tokens=None if most == "inf" else most,
            voice="" if self.speaks else "none",
            speed=None if speed == 1.0 else speed,
        )


def default_settings(model: str, voice: str) -> Settings:
    """Return the session of a client that sets nothing."""
    return Settings(model=model, audio=Audio(AudioInput(), AudioOutput(voice)))


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> HttpError:
    return HttpError(400, message, param=param, code=code)


def _object(value: object) -> Json:
    if not isinstance(value, dict):
        raise invalid("An object is expected.", "session")
    return dict(value)  # type: ignore[reportUnknownArgumentType]


def _merged(old: Json, new: Json) -> Json:
    """Return `old` with the fields of `new`; what says how to detect turns is replaced whole."""
    merged = dict(old)
    for name, value in new.items():
        before = merged.get(name)
        deeper = name in ("audio", "input", "output") and isinstance(before, dict)
        if deeper and isinstance(value, dict):
            merged[name] = _merged(before, value)  # type: ignore[reportUnknownArgumentType]
        elif value is not None or name in ("turn_detection", "transcription", "noise_reduction"):
            merged[name] = value
        elif name in ("include", "prompt", "tracing"):
            merged[name] = None
    return merged


BETA_INPUT = {
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}

BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}


def _as_ga(session: Json) -> Json:
    """Return a session without the flat names of the beta."""
    audio: Json = dict(session.pop("audio", None) or {})
    heard: Json = dict(audio.get("input") or {})
    spoken: Json = dict(audio.get("output") or {})
    for beta, name in BETA_INPUT.items():
        if beta in session:
            heard[name] = session.pop(beta)
    for beta, side in (("input_audio_format", heard), ("output_audio_format", spoken)):
        if (format_name := session.pop(beta, None)) is not None:
            side["format"] = {"type": BETA_FORMATS.get(str(format_name), format_name)}
    for name in ("voice", "speed"):
        if name in session:
            spoken[name] = session.pop(name)
    for beta, name in (
        ("modalities", "output_modalities"), ("max_response_output_tokens", "max_output_tokens")
    ):  # fmt: skip
        if beta in session:
            session[name] = session.pop(beta)
    for side in (heard, spoken):
        if isinstance(side.get("format"), dict):
            kind = side["format"].get("type", "audio/pcm")
            if kind != "audio/pcm":
                raise invalid(f"The format {kind!r} is not supported: audio/pcm.", "audio.format")
        elif "format" in side:
            side.pop("format")
    modalities = session.get("output_modalities")
    if isinstance(modalities, list) and "audio" in modalities:
        session["output_modalities"] = ["audio"]  # GA: sound brings its transcript
    return {**session, "audio": {"input": heard, "output": spoken}}
