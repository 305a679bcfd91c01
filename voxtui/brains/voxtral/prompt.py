"""Voxtral's prompt as a list of integers; text to tokens and back. Needs no tensors."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxtui.brains.prompting import after_clock, paragraphs
from voxtui.dialogue.data import ToolCall
from voxtui.errors import strip_control_characters

if TYPE_CHECKING:
    # The benchmark of random weights imports this module without msgspec.
    from voxtui.dialogue.data import FinishedCall, Samples, Utterance
    from voxtui.dialogue.protocols import Past, PastTurn, ReplyOptions
    from voxtui.dialogue.tool_interface import Tool

BOS, EOS, INST, END_INST, PAD = 1, 2, 3, 4, 11
AVAILABLE_TOOLS, END_AVAILABLE_TOOLS = 5, 6
TOOL_RESULTS, TOOL_CONTENT, END_TOOL_RESULTS, TOOL_CALLS = 7, 19, 8, 9
AUDIO, BEGIN_AUDIO, TRANSCRIBE = 24, 25, 34
"""Control tokens of the tekken vocabulary, version 7."""

WINDOW_SAMPLES = 480_000
"""Samples of a window (30 s). The encoder takes whole windows, padded with zeros."""

WINDOW_TOKENS = 375
"""Audio tokens of a window, one for every 80 ms of sound or padding."""

_CLIP_BITS = 20

PromptIds = list[int]
"""A prompt: token ids, and for each audio token a negative number that encodes its clip and its
index. Two prompts share a prefix as far as their ids are equal."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PromptClip:
    """The sound of one turn, as the model sees it."""

    number: int
    """a number that is unique in this process"""
    samples: Samples
    """the sound without zeros at the end, which equal the padding of a window"""

    @property
    def windows(self) -> int:
        return max(1, -(-len(self.samples) // WINDOW_SAMPLES))

    def prompt_ids(self) -> Iterable[int]:
        first = -(self.number << _CLIP_BITS) - 1
        return range(first, first - self.windows * WINDOW_TOKENS, -1)


def clip_of(prompt_id: int) -> tuple[int, int]:
    """Return the clip's number, and the index within it, from a negative prompt id."""
    code = -prompt_id - 1
    return code >> _CLIP_BITS, code & ((1 << _CLIP_BITS) - 1)


def token_ids(prompt_ids: Iterable[int]) -> list[int]:
    return [prompt_id if prompt_id >= 0 else AUDIO for prompt_id in prompt_ids]


def without_trailing_zeros(samples: Samples) -> Samples:
    """Remove zeros at the end, so that they need no window of their own."""
    import numpy as np

    sounding = np.flatnonzero(samples)
    return samples[: int(sounding[-1]) + 1] if len(sounding) else samples[:1]


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """A past turn: the user's part, and the tokens of the reply. One of them may be empty."""

    user_input: PromptClip | str
    reply: Sequence[int]
    clock: str = ""
    """the line with the time before the user's part; empty: none"""
    calls: Sequence[FinishedCall] = ()
    """the calls between the user's part and the reply"""


def chat(
    encode: Callable[[str], list[int]],
    instruction: str,
    past: Sequence[PromptTurn],
    user_input: PromptClip | str | None,
    clock: str = "",
    tools: Sequence[Tool] = (),
    calls: Sequence[FinishedCall] = (),
) -> PromptIds:
    """Return the prompt for a reply to `user_input`; None: only its certain part, during speech.

    The model refuses a system prompt together with audio, so the instruction is the text before the
    first audio, and the line with the time is the text before each. It expects the `tools` before
    the user's last part, and nowhere else.
    """
    parts: list[str | Iterable[int]] = [[BOS]]
    before = instruction
    for exchange in past:
        if exchange.user_input != "":
            parts += _user(before, exchange.clock, exchange.user_input)
            before = ""
        parts += _called(exchange.calls)
        if exchange.reply:
            parts += [exchange.reply, [EOS]]
    if tools:
        parts += [[AVAILABLE_TOOLS], _listed(tools), [END_AVAILABLE_TOOLS]]
    if user_input is not None:
        parts += [*_user(before, clock, user_input), *_called(calls)]
    else:
        parts += _before_audio(before, clock)
    ids = (encode(part) if isinstance(part, str) else part for part in parts if part != "")
    return list(itertools.chain.from_iterable(ids))


def _user(before: str, clock: str, user_input: PromptClip | str) -> list[str | Iterable[int]]:
    if isinstance(user_input, str):
        return [[INST], paragraphs(before, after_clock(clock, user_input)), [END_INST]]
    return [*_before_audio(before, clock), user_input.prompt_ids(), [END_INST]]


def _before_audio(before: str, clock: str) -> list[str | Iterable[int]]:
    return [[INST], paragraphs(before, clock), [BEGIN_AUDIO]]


def _listed(tools: Iterable[Tool]) -> str:
    functions = (
        {"name": tool.name, "description": tool.line, "parameters": json.loads(tool.schema)}
        for tool in tools
    )
    return _json([{"type": "function", "function": function} for function in functions])


def _called(calls: Iterable[FinishedCall]) -> list[str | Iterable[int]]:
    parts: list[str | Iterable[int]] = []
    for number, finished in enumerate(calls):
        call = finished.call
        name = call.id if re.fullmatch(r"[a-zA-Z0-9]{9}", call.id) else f"{number:09}"
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError):  # a client may send back what its model wrote
            arguments = call.arguments
        written = _json([{"name": call.name, "arguments": arguments, "id": name}])
        parts += [[TOOL_CALLS], written, [EOS]]
        parts += [[TOOL_RESULTS], name, [TOOL_CONTENT], finished.result, [END_TOOL_RESULTS]]
    return parts


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def transcription(clip: PromptClip, language: Sequence[int] = ()) -> PromptIds:
    """Return the prompt for a transcript. `language`: tokens of `lang:es`; none to detect it."""
    return [BOS, INST, BEGIN_AUDIO, *clip.prompt_ids(), END_INST, *language, TRANSCRIBE]


class Tekken:
    """The tokenizer of a checkpoint directory. Raises OSError, ValueError."""

    def __init__(self, directory: Path) -> None:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        path = directory / "tekken.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path.name} is missing")
        self._tekkenizer: Any = Tekkenizer.from_file(path)
        self.encode = lru_cache(64)(self._encode)

    def _encode(self, text: str) -> list[int]:
        """Encode `text`, which never becomes a control token."""
        return self._tekkenizer.encode(text, bos=False, eos=False)

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; none for a control token."""
        return self._tekkenizer.id_to_byte_piece(token)

    def read_call(self, tokens: Iterable[int]) -> ToolCall:
        """Return the first call of a list of calls; one without a name if it is invalid."""
        try:
            call, *_ = json.loads(b"".join(map(self.piece, tokens)))
            name, arguments = call["name"], dict(call["arguments"])
            return ToolCall(str(name), _json(arguments), str(call.get("id", "")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return ToolCall("")


class PromptHistory:
    """Makes the prompts of a conversation, in which the user's voice stays sound.

    An utterance is always the same clip, so it is encoded once. Runs on the model's thread.
    """

    def __init__(self, tekken: Tekken, instruction: str, notify: Callable[[str], object]) -> None:
        self._tekken, self._instruction, self._notify = tekken, instruction, notify
        self._told = False
        self._numbers = itertools.count()
        self._clips: list[tuple[Utterance, PromptClip]] = []

    def prompt(
        self,
        past: Past,
        user_input: Utterance | str | None,
        options: ReplyOptions,
        longest: int,
        calls: Sequence[FinishedCall] = (),
    ) -> tuple[PromptIds, list[PromptClip]]:
        """Return the prompt and its clips. Drops the oldest turns of a past that is too long.

        An attached text is dropped last, and the user is told.
        """
        past = list(past)
        system = self._instruction if options.instruction is None else options.instruction
        encode, tools = self._tekken.encode, options.offered()
        while True:
            exchanges = [
                PromptTurn(self._part(turn.user_input), self._reply(turn), turn.clock, turn.calls)
                for turn in past
            ]
            now = None if user_input is None else self._part(user_input)
            prompt = chat(encode, system, exchanges, now, options.clock, tools, calls)
            if len(prompt) <= longest or not past:
                break
            oldest = next((i for i, turn in enumerate(past) if not turn.attached), 0)
            if past.pop(oldest).attached and not self._told:
                self._told = True
                self._notify(
                    "Voxtral has no room for all attached texts, and leaves the oldest out."
                )
        clips = [s for s in (*(e.user_input for e in exchanges), now) if isinstance(s, PromptClip)]
        numbers = {clip.number for clip in clips}
        self._clips = [(whose, clip) for whose, clip in self._clips if clip.number in numbers]
        return prompt, clips

    def clip(self, utterance: Utterance) -> PromptClip:
        """Return the clip of an utterance, always the same one."""
        for whose, clip in self._clips:
            if whose.is_same(utterance):
                return clip
        clip = PromptClip(next(self._numbers), without_trailing_zeros(utterance.samples))
        self._clips.append((utterance, clip))
        return clip

    @contextlib.contextmanager
    def passing(self) -> Generator[None]:
        """Remove, at the end of the context, the clips that were added inside it."""
        before = list(self._clips)
        try:
            yield
        finally:
            self._clips = before

    def forget(self) -> None:
        self._clips = []

    def _part(self, user_input: Utterance | str) -> PromptClip | str:
        return user_input if isinstance(user_input, str) else self.clip(user_input)

    def _reply(self, turn: PastTurn) -> list[int]:
        """Return the tokens of a reply. Encodes its text only if another brain wrote it."""
        ids = [token.id for token in turn.reply if token.id is not None]
        return ids or self._tekken.encode(turn.reply_text)


class Detokenizer:
    """Turns tokens into text at once: whole characters, without control characters."""

    def __init__(self, tekken: Tekken) -> None:
        self._tekken = tekken
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, token: int) -> str:
        return strip_control_characters(self._decoder.decode(self._tekken.piece(token)))

    def rest(self) -> str:
        """Return the replacement for bytes that never completed a character."""
        return self._decoder.decode(b"", final=True)
