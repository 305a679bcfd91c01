"""A reply of the chat model, which may be begun before it is requested, and continued later."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from threading import Event as Flag
from typing import Protocol

from msgspec import structs

from voxtui.brains.embedded.chat_process import ChatRequest
from voxtui.brains.embedded.reply_form import ANY_FORM
from voxtui.brains.speculation import Speculation


class ChatModel(Protocol):
    """A chat model. See Llama."""

    def load(self, path: Path, beat: Callable[[], object]) -> None: ...

    def run(
        self,
        request: ChatRequest,
        on_prefilled: Callable[[int, int], bool],
        on_token: Callable[[str], bool],
    ) -> bool: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Work:
    """A time (monotonic seconds) in which the chat model worked on a prompt."""

    prompt: str
    started: float
    ended: float = inf
    complete: bool = False
    """the whole prompt was evaluated"""


class ChatReply(Speculation[str]):
    """The reply to a request: the text of each token. `max_tokens` 0 only prefills the prompt.

    `settled`, a beginning of the prompt, is evaluated at once, the rest only from `due_at` on.
    """

    def __init__(
        self,
        chat: ChatModel,
        request: ChatRequest,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        key = request.prompt, request.max_tokens, request.json_schema
        super().__init__(key, cancelled, due_at=due_at)
        self.prefilled_at: float | None = None
        self.prompt_tokens = 0
        self._chat = chat
        self._request = request
        self._settled = settled
        self._progress = progress
        self._works: list[Work] = []

    def follow(self, earlier: ChatReply) -> None:
        """Count the work on `earlier` whose result this one uses."""
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

    def advance(self, wanted: Callable[[], bool]) -> bool:
        def on_prefilled(done: int, total: int) -> bool:
            # A run that is stopped after its last batch has evaluated the prompt, too.
            self._works[-1].complete = self._works[-1].complete or done >= total
            if not self.computed:
                self.prompt_tokens = total
                self.prefilled_at = time.monotonic()
            self._progress(done, total)
            return not wanted()

        def on_token(text: str) -> bool:
            self.add(text)
            return not wanted()

        def run(prompt: str, max_tokens: int, ignore_end: bool = False) -> bool:
            texts = self.computed
            # Another seed, because the numbers of the first run have chosen the tokens so far.
            sampling = self._request.sampling
            sampling = structs.replace(sampling, seed=sampling.seed + len(texts))
            self._works.append(work := Work(prompt, time.monotonic()))
            try:
                form = ANY_FORM if self._request.form and ignore_end else self._request.form
                request = replace(
                    self._request,
                    prompt=prompt + "".join(texts),
                    form=form,
                    beginning="".join(texts),
                    sampling=sampling,
                    max_tokens=max_tokens,
                    ignore_end=ignore_end,
                )
                ended = self._chat.run(request, on_prefilled, on_token)
            finally:
                work.ended = time.monotonic()
            work.complete = work.complete or ended
            return ended

        if not self._is_settled:
            run(self._settled, 0)
            return False
        prompt, most = self._request.prompt, self._request.max_tokens
        ended = run(prompt, most - len(self.computed))
        missing = min(self._request.sampling.min_new_tokens, most) - len(self.computed)
        if ended and missing > 0 and not self._request.json_schema:
            # once, though tokens may have no text
            ended = wanted() and run(prompt, missing, ignore_end=True)
        return ended
