"""A brain on a server that speaks OpenAI's protocol, and that the user has named.

Either its chat model hears the sound itself, or another model writes it down first. Nothing is sent
before the key comes up: what was said may yet be discarded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Generator, Iterator
from threading import Event as Flag
from typing import Any

import msgspec

from voxtui.brains.prompting import SHORT
from voxtui.brains.remote.connection import (
    LESS,
    EndedEarly,
    Json,
    Refused,
    Server,
    Timing,
    complaint,
)
from voxtui.dialogue.data import Token, UserTranscript, Utterance
from voxtui.dialogue.interfaces import Past, Progress
from voxtui.dialogue.marks import Mark, Marks
from voxtui.dialogue.recording import Recording
from voxtui.errors import RemoteError, strip_control_characters
from voxtui.settings.schema import Config, RemoteBrainConfig, Sampling

WARM_AGAIN_SECONDS = 4.0
"""Servers close a connection that is idle for 5 s, and a sentence may take longer."""

NO_SOUND = (400, 404, 415, 422, 500, 501)
"""What servers answer where the model cannot hear; their words say whether it is that."""

WRITE_DOWN = "Write down word for word what is said here. Answer with these words only."

WORDS_PER_SECOND = 10
"""A transcript has fewer tokens than this for each second, however fast one speaks."""

MOST_SOUNDS = 5
"""In one request: vLLM takes no more for Voxtral, and other servers say how few they take."""

_TOO_MANY = re.compile(r"at most ([1-9]\d*) audio", re.IGNORECASE)

_UNKNOWN = re.compile(
    r"unsupported|not supported|does not support|unrecogni[sz]ed|unknown|not permitted|unexpected",
    re.IGNORECASE,
)
"""How servers say that they do not know a parameter, rather than that its value is wrong."""


class RemoteBrain:
    """`say` gets what the user should know and is no failure."""

    name = "remote"

    def __init__(
        self, config: Config, say: Callable[[str], object] = lambda sentence: None
    ) -> None:
        remote = config.brain.remote
        self._config = remote
        self._say = say
        self._chat = chat_server(remote)
        self._writer = writing_server(remote, self._chat)
        self._sampling = config.generation.sampling()
        short = SHORT if self._sampling.one_sentence else ""
        self._instruction = f"{config.brain.instruction}{short}".strip()
        self._options = options(self._sampling)
        self._model = remote.model
        self._most_sounds = MOST_SOUNDS
        self._writes = True
        """the server has an address for transcriptions, as far as is known"""

    @property
    def description(self) -> str:
        get = "get" if " and " in self.sends_to else "gets"
        return f"remote: {self.sends_to} {get} your voice and words ({self._model_name})"

    @property
    def _model_name(self) -> str:
        """Without the directory that llama.cpp's server has it from."""
        return self._model.rpartition("/")[2] or "a model"

    @property
    def sends_to(self) -> str:
        return self._config.hosts

    def warm_up(self, progress: Progress) -> None:
        for server in dict.fromkeys((self._chat, self._writer or self._chat)):
            if server.in_the_open:
                self._say(
                    f"What goes to {server.host} is not encrypted: "
                    "everybody on the way can listen. https:// prevents that."
                )
        for _ in self._find_model():
            progress("reaching the server", None)

    def _find_model(self) -> Generator[None]:
        """Yields until the servers have answered. Raises RemoteError."""
        self._model = yield from check(self._chat, self._config.model, self._say)
        if self._writer is not None and self._writer is not self._chat:
            yield from check(self._writer, self._config.transcription_model, self._say)

    def listen(self, past: Past, recording: Recording, cancelled: Flag) -> None:
        self._warm()

    def wake(self) -> None:
        if self._chat.idle_s > WARM_AGAIN_SECONDS:
            self._warm()

    def _warm(self) -> None:
        self._chat.warm()
        if self._writer is not None and self._writer is not self._chat:
            self._writer.warm()

    def reply(
        self, past: Past, said: Utterance | str, marks: Marks, cancelled: Flag
    ) -> Iterator[UserTranscript | Token]:
        timing = Timing()
        if not self._model:  # the server was not there at the start
            for _ in self._find_model():
                if cancelled.is_set():
                    return
        if self._writer is not None and not isinstance(said, str):
            words = ""
            for piece in self._written(self._writer, said, cancelled, timing):
                words += piece
            if cancelled.is_set() or not words.strip():
                return
            marks.mark(Mark.TRANSCRIBED)
            said = words.strip()
        if isinstance(said, str):
            yield UserTranscript(said)
        texts = self._texts(
            dict(self._options), lambda: self._messages(past, said), cancelled, timing
        )
        for number, text in enumerate(texts, 1):
            if number > self._sampling.max_new_tokens:
                return
            if number == 1:
                marks.mark(Mark.SENT, timing.sent_at)
                marks.network_s = timing.network_s
            yield Token(text)

    def transcribe(self, said: Utterance, cancelled: Flag) -> Iterator[Token]:
        """Through the server's address for transcriptions; where it has none, by the chat model.

        Yields an empty token now and then while nothing has come.
        """
        if self._writes:
            try:
                for piece in self._written(self._writer or self._chat, said, cancelled):
                    yield Token(piece)
                return
            except Refused as refusal:
                if self._writer is not None or refusal.status in (401, 403, 413, 429):
                    raise
                self._writes = False
        most = 16 + int(said.seconds * WORDS_PER_SECOND)
        parts = [_sound(said), {"type": "text", "text": WRITE_DOWN}]
        messages = [{"role": "user", "content": parts}]
        limit = "max_tokens" if "max_tokens" in self._options else "max_completion_tokens"
        body = {limit: most, "temperature": 0}
        for text in self._texts(body, lambda: messages, cancelled):
            yield Token(text)

    def close(self) -> None:
        self._chat.close()
        if self._writer is not None:
            self._writer.close()

    # What is asked.

    def _messages(self, past: Past, said: Utterance | str) -> list[Json]:
        """Voxtral takes no system prompt together with sound: there the instruction comes first."""
        before = self._instruction
        messages: list[Json] = []
        if self._writer is not None:
            messages, before = [{"role": "system", "content": before}], ""
        sounds = [
            number
            for number, turn in enumerate(past)
            if self._writer is None and turn.words is None and not isinstance(turn.said, str)
        ]
        room = self._most_sounds - (not isinstance(said, str))
        sounds = sounds[max(0, len(sounds) - room) :]
        for number, turn in enumerate(past):
            messages.append(_user(before, turn.said if number in sounds else turn.user_text))
            messages.append({"role": "assistant", "content": turn.reply_text})
            before = ""
        return [*messages, _user(before, said)]

    def _texts(
        self,
        body: Json,
        messages: Callable[[], list[Json]],
        cancelled: Flag,
        timing: Timing | None = None,
    ) -> Generator[str, None, None]:
        """The reply, piece by piece, until `cancelled`. Raises RemoteError."""
        while True:
            said = messages()
            try:
                yield from self._streamed(body | {"messages": said}, cancelled, timing)
                return
            except Refused as refusal:  # so nothing has come yet
                if not self._gives_way(refusal, body):
                    raise self._explained(refusal, said) from refusal

    def _gives_way(self, refusal: Refused, body: Json) -> bool:
        """Whether what was refused is left out of the next request."""
        if (few := _TOO_MANY.search(refusal.said)) and int(few[1]) < self._most_sounds:
            self._most_sounds = int(few[1])
            return True
        name = _refused_parameter(refusal, body)
        if name is None:
            return False
        for asked in (body, self._options):
            value = asked.pop(name, None)
            if name == "max_tokens" and value is not None:
                asked["max_completion_tokens"] = value
        return True

    def _streamed(
        self, body: Json, cancelled: Flag, timing: Timing | None
    ) -> Generator[str, None, None]:
        asked = body | {"model": self._model, "stream": True}
        finished = words = False
        for event in self._chat.ask("POST", "chat/completions", timing, json=asked):
            if cancelled.is_set():
                return
            if event is None:
                continue
            if why := complaint(event):
                raise RemoteError(
                    f"{self._chat.host} broke the answer off: “{self._chat.shown(why)}”."
                )
            try:
                text, ended = _piece(event)
            except msgspec.ValidationError as error:
                raise RemoteError(f"{self._chat.host} sent something that is no answer.") from error
            finished = finished or ended
            if text:
                words = True
                yield text
        if not finished:
            raise EndedEarly(f"{self._chat.host} ended the answer early.", "Ask again.")
        if not words:
            raise RemoteError(
                f"{self._model_name} answered with no words.",
                "One that reasons first needs a larger generation.max_new_tokens.",
            )

    def _written(
        self, server: Server, said: Utterance, cancelled: Flag, timing: Timing | None = None
    ) -> Generator[str, None, None]:
        """What was said, in words. Raises RemoteError."""
        fields = {"model": self._config.transcription_model or self._model,
                  "response_format": "json", "temperature": "0"}  # fmt: skip
        file = {"file": ("speech.wav", said.as_wav(), "audio/wav")}
        events = server.ask("POST", "audio/transcriptions", timing, data=fields, files=file)
        try:
            for event in events:
                if cancelled.is_set():
                    return
                if event is not None and not isinstance(event.get("text"), str):
                    why = complaint(event)  # whisper.cpp's server long said it with a status of 200
                    quoted = f": “{server.shown(why)}”" if why else "."
                    raise RemoteError(f"{server.host} sent something that is no transcript{quoted}")
                # whisper.cpp's server breaks the line where its model does, often within a sentence
                yield " ".join(strip_control_characters(event["text"]).split()) if event else ""
        except Refused as refusal:
            if refusal.hint == LESS:  # nothing of what was said before is sent here
                refusal.hint = "Say less at a time."
            raise

    def _explained(self, refusal: Refused, messages: list[Json]) -> RemoteError:
        with_sound = any(isinstance(m["content"], list) for m in messages)
        if with_sound and refusal.status in NO_SOUND and "audio" in refusal.said.lower():
            return RemoteError(
                f"{self._model_name} at {self._chat.host} does not take sound: “{refusal.said}”",
                "brain.remote.transcription_model names one that writes it down for it.",
            )
        return refusal


def chat_server(remote: RemoteBrainConfig) -> Server:
    """Raises RemoteError where none is named."""
    if not remote.url:
        raise RemoteError(
            "brain.remote.url names no server.", "Such as: brain.remote.url = http://HOST:PORT/v1"
        )
    return Server(remote.url, remote.timeout_s)


def writing_server(remote: RemoteBrainConfig, chat: Server) -> Server | None:
    """The one that writes down what is said, if the chat model does not hear it itself."""
    if not remote.transcription_model:
        return None
    if remote.transcription_url in ("", remote.url):
        return chat
    return Server(remote.transcription_url, remote.timeout_s, "brain.remote.transcription_url")


def check(server: Server, model: str, say: Callable[[str], object]) -> Generator[None, None, str]:
    """Reach `server`; the model to use: `model`, or the only one. Raises RemoteError.

    Yields until then. `say` is told where the server does not list the model, which need not
    mean that it has none.
    """
    models = yield from server.models()
    if models is None and model and server.may_lack_v1:
        say(server.offer)
    if not model:
        if models is not None and len(models) == 1:
            return models[0]
        raise RemoteError(server.offer, "brain.remote.model says which to use.")
    if models is not None and model not in models:
        say(f"{model} is not listed: {server.offer}")
    return model


def options(sampling: Sampling) -> Json:
    """The parameters of a request; those that not every server knows only where they matter."""
    said: Json = {
        "max_tokens": sampling.max_new_tokens, "temperature": sampling.temperature,
        "top_p": sampling.top_p, "seed": sampling.seed,
    }  # fmt: skip
    if sampling.top_k:
        said["top_k"] = sampling.top_k
    if sampling.repetition_penalty != 1.0:
        said["repetition_penalty"] = sampling.repetition_penalty
    if sampling.min_new_tokens > 1:
        said["min_tokens"] = sampling.min_new_tokens
    return said


def _refused_parameter(refusal: Refused, body: Json) -> str | None:
    """The parameter that the server does not know, if that is what it says."""
    if refusal.status not in (400, 422) or not _UNKNOWN.search(refusal.said):
        return None
    return next((name for name in body if re.search(rf"\b{name}\b", refusal.said)), None)


class _Said(msgspec.Struct):
    content: Any = None


class _Choice(msgspec.Struct):
    delta: _Said | None = None
    """in a stream"""
    message: _Said | None = None
    """in a whole answer"""
    finish_reason: Any = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None


def _piece(event: Json) -> tuple[str, bool]:
    """The text in one event of a stream, or in a whole answer, and whether it is the end."""
    choices = msgspec.convert(event, _Event).choices
    if not choices:
        return "", False
    said = choices[0].delta or choices[0].message
    text = said.content if said else None
    shown = strip_control_characters(text) if isinstance(text, str) else ""
    return shown, bool(choices[0].finish_reason)


def _user(before: str, said: Utterance | str) -> Json:
    """A turn of the user, with the instruction `before` it in the first."""
    if isinstance(said, str):
        return {"role": "user", "content": f"{before}\n\n{said}" if before else said}
    text = [{"type": "text", "text": before}] if before else []
    return {"role": "user", "content": [*text, _sound(said)]}


def _sound(said: Utterance) -> Json:
    """`said` as a part of a message: OpenAI's `input_audio`, a WAV in base64."""
    data = base64.b64encode(said.as_wav()).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
