"""A reply of the chat model, which may begin before it is requested and be continued later."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from threading import Event as Flag

from msgspec import structs

from voxtui.brains.embedded.chat_process import ChatRequest, Llama
from voxtui.brains.embedded.tool_prompt import ToolChoice
from voxtui.brains.reply_form import FREE, ReplyForm
from voxtui.brains.speculation import Speculation
from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.prefetch import TICK_SECONDS

CHARACTER_SECONDS = 0.055
"""Time in which a voice speaks a character of an opening."""

FIRST_TOKENS = 4
"""Number of tokens after an opening that the voice needs to go on."""


@dataclass(slots=True)
class Work:
    """A time (monotonic seconds) in which the chat model worked on a prompt."""

    prompt: str
    started: float
    ended: float = inf
    complete: bool = False
    """whether the whole prompt was evaluated"""


class ChatReply(Speculation[str]):
    """The reply to a request: the text of each token. `max_tokens` 0 only prefills the prompt.

    With a `choice` the model is first asked which tool to call; a call replaces the tokens.
    `settled`, a beginning of the prompt, is evaluated at once, the rest only from `due_at` on. The
    opening of `form` is the first token, and is heard while the model reads the prompt.
    """

    def __init__(
        self,
        chat: Llama,
        request: ChatRequest,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
        progress: Callable[[int, int], object] = lambda done, total: None,
        choice: ToolChoice | None = None,
        form: ReplyForm = FREE,
    ) -> None:
        asked = choice and choice.prompt
        key = request.prompt, request.max_tokens, request.json_schema, asked
        super().__init__(key, cancelled, due_at=due_at)
        self.call: ToolCall | None = None
        """the call that the model has chosen, which only a turn may run"""
        self._choice = choice
        self._form = form
        self.prefilled_at: float | None = None
        self.prompt_tokens = self.call_tokens = 0
        self._chat = chat
        self._request = request
        self._settled = settled
        self._progress = progress
        self._works: list[Work] = []
        self._opens_at = inf
        """when the opening may be spoken (monotonic seconds), so that the rest comes in time"""

    def follow(self, earlier: ChatReply) -> None:
        """Count the work on `earlier` whose result this reply uses."""
        prompt = self._request.prompt
        self._works = [work for work in earlier._works if prompt.startswith(work.prompt)]

    @property
    def _is_settled(self) -> bool:
        """True once `settled` is evaluated, also by earlier work that ended after `follow`."""
        done = (work.prompt for work in tuple(self._works) if work.complete)
        return not self._settled or self._settled in done

    @property
    def due_at(self) -> float:
        return super().due_at if self._is_settled else 0.0

    def worked_before(self, at: float) -> float:
        return sum(max(0.0, min(w.ended, at) - w.started) for w in tuple(self._works))

    def tokens(self) -> Generator[str]:
        opening = self._form.opening
        with closing(super().tokens()) as rest:
            if opening and self._wait_to_open():
                yield opening
            yield from rest

    def _wait_to_open(self) -> bool:
        """Wait until the opening may be spoken. Return False if there is no reply to begin."""
        with self._changed:
            while time.monotonic() < self._opens_at and not self.computed:
                if self.ended or self._cancelled.is_set():
                    return False
                self._changed.wait(min(TICK_SECONDS, max(0.0, self._opens_at - time.monotonic())))
        return True

    def _open(self, unread: int) -> None:
        """Set when the opening may be spoken, before this number of tokens is read."""
        speed = self._chat.speed
        needed = unread * speed.reading + FIRST_TOKENS * speed.writing
        spoken = len(self._form.opening) * CHARACTER_SECONDS
        self._opens_at = time.monotonic() + max(0.0, needed - spoken)

    def advance(self, wanted: Callable[[], bool]) -> bool:
        def on_prefilled(done: int, total: int) -> bool:
            # A run that is stopped after its last batch has evaluated the prompt, too.
            self._works[-1].complete = self._works[-1].complete or done >= total
            if not self.computed and done >= total:
                self.prompt_tokens = total
                self.prefilled_at = time.monotonic()
            if self._opens_at == inf and self._is_settled:
                self._open(total - done)
            self._progress(done, total)
            return not wanted()

        def run(prompt: str, max_tokens: int, ignore_end: bool = False) -> bool:
            texts, form = self.computed, self._form
            limited = form.most and not ignore_end
            begun = form.opening + "".join(texts)
            complete = False

            def on_token(text: str) -> bool:
                nonlocal complete
                reply = form.opening + "".join(self.computed)
                complete = not ignore_end and form.is_complete(reply, text)
                if complete:
                    return True
                self.add(text)
                return not wanted()

            grammar = form.grammar(begun if texts else "") if limited else None
            # Another seed, because the numbers of the first run have chosen the tokens so far.
            sampling = self._request.sampling
            sampling = structs.replace(sampling, seed=sampling.seed + len(texts))
            self._works.append(work := Work(prompt, time.monotonic()))
            self._opens_at = inf
            try:
                request = replace(
                    self._request,
                    prompt=prompt + (begun if max_tokens else ""),
                    sampling=sampling,
                    max_tokens=max_tokens,
                    ignore_end=ignore_end,
                    grammar=self._request.grammar if grammar is None else grammar,
                )
                ended = self._chat.run(request, on_prefilled, on_token) or complete
            finally:
                work.ended = time.monotonic()
            work.complete = work.complete or ended
            return ended or (max_tokens == 0 and work.complete)

        if not self._is_settled:
            run(self._settled, 0)
            return False
        if self._choice is not None and self._chosen(self._choice, wanted):
            return self.call is not None
        prompt, most = self._request.prompt, self._request.max_tokens
        ended = run(prompt, most - len(self.computed))
        written = len(self.computed) + bool(self._form.opening)
        missing = min(self._request.sampling.min_new_tokens, most) - written
        if ended and missing > 0 and not self._request.json_schema:
            # once, though tokens may have no text
            ended = wanted() and run(prompt, missing, ignore_end=True)
        return ended

    def _chosen(self, choice: ToolChoice, wanted: Callable[[], bool]) -> bool:
        """Ask which tool to call. Return True if there is a call, or after an interruption."""
        texts: list[str] = []

        def on_prefilled(done: int, total: int) -> bool:
            self.prompt_tokens = total
            self.prefilled_at = time.monotonic()
            return not wanted()

        def on_token(text: str) -> bool:
            texts.append(text)
            return not wanted()

        request = choice.request(self._request.sampling)
        self._works.append(work := Work(choice.prompt, time.monotonic()))
        try:
            ended = self._chat.run(request, on_prefilled, on_token)
        finally:
            work.ended = time.monotonic()
        if not ended:
            return True
        self._choice = None
        self.call, self.call_tokens = choice.call("".join(texts)), len(texts)
        return self.call is not None
