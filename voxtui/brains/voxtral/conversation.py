"""The conversation as a prompt, in which the user's voice stays sound."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from voxtui.brains.voxtral.prompt import (
    PromptClip,
    PromptIds,
    PromptTurn,
    Tekken,
    chat,
    without_trailing_zeros,
)
from voxtui.dialogue.data import FinishedCall, Utterance
from voxtui.dialogue.protocols import Past, PastTurn, ReplyOptions

if TYPE_CHECKING:
    from voxtui.brains.voxtral.embedder import AudioEmbedder
    from voxtui.dialogue.tool_interface import Tool


def offered(options: ReplyOptions) -> tuple[Tool, ...]:
    """Return the tools that may be called: any of them, as no words are known to match triggers."""
    return tuple(
        tool
        for tool in options.tools
        if tool.line and options.tool_choice in ("auto", "required", tool.name)
    )


class PromptHistory:
    """Makes prompts. The same utterance is the same clip each time, so it is encoded once.

    On the model's thread.
    """

    def __init__(self, tekken: Tekken, embedder: AudioEmbedder, instruction: str) -> None:
        self._tekken, self.embedder, self._instruction = tekken, embedder, instruction
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
        """Return the prompt and its clips. Drops the oldest turns of a past that is too long."""
        told = self._instruction if options.instruction is None else options.instruction
        tools = offered(options)
        while True:
            exchanges = [
                PromptTurn(self._part(turn.user_input), self._reply(turn), turn.clock, turn.calls)
                for turn in past
            ]
            now = None if user_input is None else self._part(user_input)
            prompt = chat(self._tekken.encode, told, exchanges, now, options.clock, tools, calls)
            if len(prompt) <= longest or not past:
                break
            past = past[1:]
        clips = [s for s in (*(e.user_input for e in exchanges), now) if isinstance(s, PromptClip)]
        numbers = {clip.number for clip in clips}
        self._keep([(whose, clip) for whose, clip in self._clips if clip.number in numbers])
        return prompt, clips

    def clip(self, utterance: Utterance) -> PromptClip:
        """Return the clip of an utterance, the same one each time."""
        for whose, clip in self._clips:
            if whose.is_same(utterance):
                return clip
        clip = PromptClip(next(self._numbers), without_trailing_zeros(utterance.samples))
        self._clips.append((utterance, clip))
        return clip

    @contextlib.contextmanager
    def passing(self) -> Generator[None]:
        """Forget at the end of the block the clips that it added."""
        before = list(self._clips)
        try:
            yield
        finally:
            self._keep(before)

    def forget(self) -> None:
        self._keep([])

    def _keep(self, clips: list[tuple[Utterance, PromptClip]]) -> None:
        self._clips = clips
        self.embedder.forget_all_but({clip.number for _, clip in clips})

    def _part(self, user_input: Utterance | str) -> PromptClip | str:
        return user_input if isinstance(user_input, str) else self.clip(user_input)

    def _reply(self, turn: PastTurn) -> list[int]:
        """Return the tokens of a reply. Encodes its text only if another brain wrote it."""
        ids = [token.id for token in turn.reply if token.id is not None]
        return ids or self._tekken.encode(turn.reply_text)
