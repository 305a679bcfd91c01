"""A brain on an OpenAI-compatible server.

The chat model receives the audio, or a second model transcribes it first. No audio or text is sent
before the key is released, because the user may still discard the utterance.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from threading import Event as Flag
from typing import Any

import msgspec

from voxtui.brains.prompting import after_clock, instruction, paragraphs, transcript_limit
from voxtui.brains.remote.endpoint import SEND_LESS, NetworkTimes, RemoteEndpoint, StatusError
from voxtui.brains.remote.function_calls import StreamedCall, call_messages, tool_fields
from voxtui.brains.remote.http_connection import Json, error_text
from voxtui.brains.reply_language import ReplyLanguage
from voxtui.dialogue.data import (
    CHARACTERS_PER_TOKEN,
    Token,
    ToolCall,
    UserTranscript,
    Utterance,
)
from voxtui.dialogue.protocols import (
    DEFAULT_OPTIONS,
    OnWords,
    Past,
    Progress,
    ReplyOptions,
    TurnRequest,
)
from voxtui.dialogue.recording import Recording
from voxtui.dialogue.timestamps import Milestone, Timestamps
from voxtui.errors import RemoteError, strip_control_characters
from voxtui.settings.schema import Config, RemoteBrainConfig, Sampling

WARM_AGAIN_SECONDS = 4.0
"""Idle time after which the connection is renewed. Many servers close it after 5 s."""

NO_AUDIO = (400, 404, 415, 422, 500, 501)
"""Status codes of servers that refuse audio. The message must mention audio, too."""

TRANSCRIBE = "Write down word for word what is said here. Answer with these words only."

MAX_CLIPS = 5
"""Maximum audio clips in one request: vLLM accepts no more for Voxtral."""

MAX_WAITS = 10
"""Maximum time without text while events arrive, in units of timeout_s."""

LONGEST_STEP = 1.0
"""Maximum seconds that count between two events, because voxtui may be suspended in between."""

INVALID = (msgspec.ValidationError, UnicodeEncodeError)
"""Errors of reading JSON as a type. The second comes from half a surrogate pair in a name."""

EXTENSIONS = ("top_k", "repetition_penalty", "min_tokens")
"""Sampling parameters beyond OpenAI's. Some servers refuse them."""


class RemoteBrain:
    """A brain on a server. `notify` receives sentences for the user that are not errors."""

    name = "remote"

    def __init__(
        self, config: Config, notify: Callable[[str], object] = lambda sentence: None
    ) -> None:
        remote = config.brain.remote
        self._config = remote
        self._language = config.brain.language
        self._reply_language = ReplyLanguage(config.brain.language)
        self._notify = notify
        self._chat = chat_endpoint(remote)
        self._stt = stt_endpoint(remote, self._chat)
        self._endpoints = tuple(dict.fromkeys((self._chat, self._stt or self._chat)))
        self._sampling = config.generation.sampling()
        self._instruction = instruction(config)
        self._parameters = request_parameters(self._sampling)
        self._model = remote.model
        self._transcribes = True
        """whether the server has not refused audio/transcriptions"""

    @property
    def description(self) -> str:
        get = "get" if " and " in self.sends_to else "gets"
        return f"remote: {self.sends_to} {get} your voice and words ({self._model_name})"

    @property
    def _model_name(self) -> str:
        """The model without its directory, which llama.cpp's server includes."""
        return self._model.rpartition("/")[2] or "a model"

    @property
    def sends_to(self) -> str:
        return self._config.hosts

    def warm_up(self, progress: Progress, options: ReplyOptions = DEFAULT_OPTIONS) -> None:
        for endpoint in self._endpoints:
            if endpoint.unencrypted:
                self._notify(
                    f"The connection to {endpoint.host} is not encrypted: others on the network "
                    "can listen. https:// prevents that."
                )
        self._reply_language.warm_up()
        for _ in self._find_model():
            progress("reaching the server", None)

    def _find_model(self) -> Generator[None]:
        """Ask the servers for their models. Yields None while waiting. Raises RemoteError."""
        self._model = yield from find_model(self._chat, self._config.model, self._notify)
        if self._stt is not None and self._stt is not self._chat:
            yield from find_model(self._stt, self._config.transcription_model, self._notify)

    def listen(
        self, request: TurnRequest, recording: Recording, on_words: OnWords | None = None
    ) -> None:
        self._warm()

    def wake(self) -> None:
        if self._chat.idle_s > WARM_AGAIN_SECONDS:
            self._warm()

    def read(self, request: TurnRequest, progress: Callable[[int, int], object]) -> None:
        """Do nothing, because no text may leave this machine before the next turn."""

    def read_ahead(self, request: TurnRequest) -> None:
        """Do nothing, because no word may leave this machine before Enter."""

    def _warm(self) -> None:
        for endpoint in self._endpoints:
            endpoint.warm()

    def reply(self, request: TurnRequest) -> Generator[UserTranscript | Token | ToolCall]:
        user_input, timestamps = request.user_input, request.timestamps
        cancelled, timing = request.cancelled, NetworkTimes()
        if isinstance(user_input, str):
            yield UserTranscript(user_input)
        if not self._model:  # the server could not be reached at the start
            for _ in self._find_model():
                if cancelled.is_set():
                    return
        if self._stt is not None and not isinstance(user_input, str):
            text = ""
            for piece in self._transcript(self._stt, user_input, cancelled, timing):
                text += piece
            if cancelled.is_set() or not text.strip():
                return
            timestamps.record(Milestone.TRANSCRIBED)
            user_input = text.strip()
            yield UserTranscript(user_input)
        most = request.options.limit(self._sampling.max_new_tokens)
        parameters = {
            **self._parameters, "max_tokens": most, "stream_options": {"include_usage": True}
        }  # fmt: skip
        parameters |= tool_fields(request.options, request.calls, self.sends_to)
        if schema := request.options.json_schema:
            form = {"name": "answer", "strict": True, "schema": msgspec.json.decode(schema)}
            parameters["response_format"] = {"type": "json_schema", "json_schema": form}
        messages = self._messages(request.past, user_input, request.options)
        messages += call_messages(request.calls)
        called = StreamedCall()
        pieces = self._texts(parameters, messages, cancelled, timing, timestamps, called)
        for number, text in enumerate(pieces):
            if not number:
                timestamps.record(Milestone.SENT, timing.sent_at)
                timestamps.network_s = timing.network_s
            yield Token(text)
        if called.call is not None and not cancelled.is_set():
            timestamps.record(Milestone.SENT, timing.sent_at)
            yield request.options.allowed(called.call, self.sends_to)

    def language(self, reply: str, timestamps: Timestamps) -> str:
        return self._reply_language.of(reply, timestamps)

    def transcribe(self, utterance: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Transcribe at audio/transcriptions, or by the chat model if the server lacks that.

        Yields an empty token repeatedly while nothing arrives.
        """
        if self._transcribes:
            try:
                for piece in self._transcript(self._stt or self._chat, utterance, cancelled):
                    yield Token(piece)
                return
            except StatusError as error:
                if self._stt is not None or error.status in (401, 403, 413, 429):
                    raise
                self._transcribes = False
        limit = transcript_limit(utterance.seconds)
        parts = [_audio(utterance), {"type": "text", "text": TRANSCRIBE}]
        messages: list[Json] = [{"role": "user", "content": parts}]
        for text in self._texts({"max_tokens": limit, "temperature": 0}, messages, cancelled):
            yield Token(text)

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()

    def _messages(
        self, past: Past, user_input: Utterance | str, options: ReplyOptions = DEFAULT_OPTIONS
    ) -> list[Json]:
        """Return the messages of the conversation.

        The instruction precedes the first turn if the model receives audio, because Voxtral accepts
        no system prompt together with audio.
        """
        before = self._instruction if options.instruction is None else options.instruction
        messages: list[Json] = []
        if self._stt is not None:
            messages, before = [{"role": "system", "content": before}], ""
        clips = [
            number
            for number, turn in enumerate(past)
            if self._stt is None and turn.words is None and not isinstance(turn.user_input, str)
        ]
        room = MAX_CLIPS - (not isinstance(user_input, str))
        clips = clips[max(0, len(clips) - room) :]
        for number, turn in enumerate(past):
            if turn.private:
                continue
            if said := turn.user_input if number in clips else turn.user_text:
                messages.append(_user(before, turn.clock, said))
                before = ""
            messages += call_messages(turn.calls)
            if turn.reply:
                messages.append({"role": "assistant", "content": turn.reply_text})
        return [*messages, _user(before, options.clock, user_input)]

    def _texts(
        self,
        parameters: Json,
        messages: list[Json],
        cancelled: Flag,
        timing: NetworkTimes | None = None,
        timestamps: Timestamps | None = None,
        called: StreamedCall | None = None,
    ) -> Generator[str, None, None]:
        body = parameters | {"messages": messages, "model": self._model, "stream": True}
        host = self._chat.host
        finished, pieces = False, 0
        room = CHARACTERS_PER_TOKEN * parameters["max_tokens"]
        patience_s = MAX_WAITS * self._config.timeout_s
        waited_s, before = 0.0, time.monotonic()
        for event in self._events(body, timing):
            if cancelled.is_set():
                return
            now = time.monotonic()
            waited_s, before = waited_s + min(now - before, LONGEST_STEP), now
            if waited_s > patience_s:
                hint = "A larger brain.remote.timeout_s waits longer."
                raise RemoteError(f"{host}: no text for {patience_s:g} s.", hint)
            if event is None:
                continue
            if message := error_text(event):
                raise RemoteError(f"{host} stopped the reply: “{self._chat.shown(message)}”.")
            try:
                parsed = msgspec.convert(event, _StreamEvent)
                if called is not None:
                    called.add(parsed.choice.content.tool_calls)
            except INVALID as error:
                raise self._chat.invalid_response() from error
            text = parsed.choice.text
            if timestamps is not None and parsed.usage is not None:
                with suppress(*INVALID):  # some servers count in a way of their own
                    usage = msgspec.convert(parsed.usage, _Usage)
                    timestamps.tokens = usage.reply_tokens or timestamps.tokens
                    timestamps.prompt_tokens = usage.prompt_tokens or 0
            finished = finished or bool(parsed.choice.finish_reason)
            if text:
                pieces += 1
                if pieces > parameters["max_tokens"] or not room:  # the server ignores max_tokens
                    return
                yield text[:room]
                room = max(0, room - len(text))
                waited_s, before = 0.0, time.monotonic()
        if not finished:
            raise RemoteError(
                f"{host}: connection closed before the end of the reply.", "Ask again."
            )
        if not pieces and not (called and called.call):
            raise RemoteError(
                f"{self._model_name}: empty reply.",
                "A model that reasons first needs a larger generation.max_new_tokens.",
            )

    def _transcript(
        self,
        endpoint: RemoteEndpoint,
        utterance: Utterance,
        cancelled: Flag,
        timing: NetworkTimes | None = None,
    ) -> Generator[str, None, None]:
        fields = {"model": self._config.transcription_model or self._model,
                  "response_format": "json", "temperature": "0"}  # fmt: skip
        if self._language:
            fields["language"] = self._language
        file = {"file": ("speech.wav", utterance.as_wav(), "audio/wav")}
        events = endpoint.request("POST", "audio/transcriptions", timing, data=fields, files=file)
        try:
            for event in events:
                if cancelled.is_set():
                    return
                if event is None:
                    yield ""
                    continue
                text = event.get("text")
                if not isinstance(text, str):
                    raise endpoint.invalid_response()
                # whisper.cpp's server writes a line per segment, often within a sentence.
                yield " ".join(strip_control_characters(text).split())
        except StatusError as error:
            if error.hint == SEND_LESS:  # the request holds no earlier turns
                error.hint = "Speak in shorter turns."
            raise

    def _events(self, body: Json, timing: NetworkTimes | None) -> Generator[Json | None]:
        try:
            yield from self._chat.request("POST", "chat/completions", timing, json=body)
        except StatusError as error:
            raise self._explained(error, body) from error

    def _explained(self, error: StatusError, body: Json) -> StatusError:
        """Add advice if the model may not accept audio or a parameter."""
        with_audio = any(isinstance(message["content"], list) for message in body["messages"])
        if with_audio and error.status in NO_AUDIO and "audio" in error.text.lower():
            return StatusError(
                f"{self._model_name} at {self._chat.host} does not accept audio "
                f"(HTTP {error.status}): “{error.text}”.",
                "Set brain.remote.transcription_model to a model that transcribes.",
                error.status,
                error.text,
            )
        if error.status in (400, 422) and any(name in body for name in EXTENSIONS):
            error.hint = error.hint or (
                "The server may not know top_k, repetition_penalty or min_new_tokens; "
                "generation.preset = balanced does not send them."
            )
        return error


def chat_endpoint(remote: RemoteBrainConfig) -> RemoteEndpoint:
    if not remote.url:
        raise RemoteError(
            "brain.remote.url is not set.", "For example: brain.remote.url = http://HOST:PORT/v1"
        )
    return RemoteEndpoint(remote.url, remote.timeout_s)


def stt_endpoint(remote: RemoteBrainConfig, chat: RemoteEndpoint) -> RemoteEndpoint | None:
    """Return the transcription server, or None if the chat model receives the audio."""
    if not remote.transcription_model:
        return None
    if remote.transcription_url in ("", remote.url):
        return chat
    return RemoteEndpoint(
        remote.transcription_url, remote.timeout_s, "brain.remote.transcription_url"
    )


def find_model(
    endpoint: RemoteEndpoint,
    model: str,
    notify: Callable[[str], object],
    setting: str = "brain.remote.model",
) -> Generator[None, None, str]:
    """Return `model`, or the server's only model. Yields while waiting. Raises RemoteError.

    `setting` is the config key or the option of the model. Notifies the user if the server may have
    the model without listing it.
    """
    models = yield from endpoint.models()
    if models is None and model and endpoint.may_lack_v1:
        notify(endpoint.model_list)
    if not model:
        if models is not None and len(models) == 1:
            return models[0]
        raise RemoteError(endpoint.model_list, f"Set {setting}.")
    if models is not None and model not in models:
        notify(f"{model} is not listed: {endpoint.model_list}")
    return model


def request_parameters(sampling: Sampling) -> Json:
    """Return the sampling parameters of a request, and those of EXTENSIONS only if they matter."""
    parameters: Json = {
        "max_tokens": sampling.max_new_tokens, "temperature": sampling.temperature,
        "top_p": sampling.top_p, "seed": sampling.seed,
    }  # fmt: skip
    if sampling.top_k:
        parameters["top_k"] = sampling.top_k
    if sampling.repetition_penalty != 1.0:
        parameters["repetition_penalty"] = sampling.repetition_penalty
    if sampling.min_new_tokens > 1:
        parameters["min_tokens"] = sampling.min_new_tokens
    return parameters


class _Content(msgspec.Struct):
    content: Any = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    delta: _Content | None = None
    """the message in a stream"""
    message: _Content | None = None
    """the message in an answer that is not streamed"""
    finish_reason: Any = None

    @property
    def content(self) -> _Content:
        return self.delta or self.message or _Content()

    @property
    def text(self) -> str:
        text = self.content.content
        return strip_control_characters(text) if isinstance(text, str) else ""


class _Details(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: _Details | None = None

    @property
    def reply_tokens(self) -> int:
        """Return the tokens of the reply, without those of reasoning."""
        details = self.completion_tokens_details
        return (self.completion_tokens or 0) - ((details and details.reasoning_tokens) or 0)


class _StreamEvent(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None

    @property
    def choice(self) -> _Choice:
        return self.choices[0] if self.choices else _Choice()


def _user(before: str, clock: str, user_input: Utterance | str) -> Json:
    if isinstance(user_input, str):
        return {"role": "user", "content": paragraphs(before, after_clock(clock, user_input))}
    lead = paragraphs(before, clock)
    text = [{"type": "text", "text": lead}] if lead else []
    return {"role": "user", "content": [*text, _audio(user_input)]}


def _audio(utterance: Utterance) -> Json:
    data = base64.b64encode(utterance.as_wav()).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
