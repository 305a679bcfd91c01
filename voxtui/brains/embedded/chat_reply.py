"""A reply of the chat model, which may be begun before it is requested, and continued later."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Event as Flag
from typing import Protocol

from msgspec.structs import replace

from voxtui.brains.embedded.reply_form import ANY_FORM, ReplyForm
from voxtui.brains.speculation import Speculation
from voxtui.settings.schema import Sampling


class ChatModel(Protocol):
    """A chat model. See Llama."""

    def load(self, path: Path, beat: Callable[[], object]) -> None: ...

    def run(
        self,
        prompt: str,
        sampling: Sampling,
        max_tokens: int,
        on_prefilled: Callable[[int, int], bool],
        on_token: Callable[[str], bool],
        *,
        ignore_end: bool = False,
        grammar: str = "",
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


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """What the chat model is to answer. `max_tokens` 0 only prefills the prompt."""

    prompt: str
    max_tokens: int
    form: ReplyForm | None = None
    """None: any text"""


class ChatReply(Speculation[str]):
    """The reply to a request: the text of each token.

    `settled`, a beginning of the prompt, is evaluated at once, the rest only from `due_at` on.
    """

    def __init__(
        self,
        chat: ChatModel,
        request: ReplyRequest,
        sampling: Sampling,
        cancelled: Flag,
        settled: str = "",
        due_at: float = 0.0,
        progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> None:
        super().__init__(request, cancelled, due_at=due_at)
        self.prefilled_at: float | None = None
        self.prompt_tokens = 0
        self._chat = chat
        self._request = request
        self._sampling = sampling
        self._settled = settled
        self._progress = progress
        self._works: list[Work] = []

    def follow(self, earlier: ChatReply) -> None:
        """Count the work on `earlier` whose result this one uses."""
        self._works = [
            work for work in earlier._works if self._request.prompt.startswith(work.prompt)
        ]

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
        request = self._request

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
            text = "".join(texts)
            form = ANY_FORM if request.form and ignore_end else request.form
            sampling = replace(self._sampling, seed=self._sampling.seed + len(texts))
            self._works.append(work := Work(prompt, time.monotonic()))
            try:
                ended = self._chat.run(
                    prompt + text,
                    sampling,
                    max_tokens,
                    on_prefilled,
                    on_token,
                    ignore_end=ignore_end,
                    grammar=form.grammar(text) if form else "",
                )
            finally:
                work.ended = time.monotonic()
            work.complete = work.complete or ended
            return ended

        if not self._is_settled:
            run(self._settled, 0)
            return False
        ended = run(request.prompt, request.max_tokens - len(self.computed))
        missing = min(self._sampling.min_new_tokens, request.max_tokens) - len(self.computed)
        if ended and missing > 0:
            # once, though tokens may have no text
            ended = wanted() and run(request.prompt, missing, ignore_end=True)
        return ended
