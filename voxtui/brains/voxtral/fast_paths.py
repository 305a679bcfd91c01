"""The path that answers: the plain one, or a fast one after the trial has proved it.

A switch happens between two turns. A token in some thousand is computed plainly as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from threading import Event as Flag
from typing import TYPE_CHECKING

from voxtui.brains.voxtral import model as model_room
from voxtui.brains.voxtral.failures import check_free_memory, first_line, is_full
from voxtui.brains.voxtral.loading import report_while
from voxtui.brains.voxtral.model_thread import ModelThread, Tokens
from voxtui.brains.voxtral.proving import Proving
from voxtui.brains.voxtral.turns import Turns
from voxtui.brains.voxtral.verdict import FastPath
from voxtui.brains.voxtral.work import ModelWork
from voxtui.dialogue.protocols import Progress

if TYPE_CHECKING:
    from voxtui.brains.voxtral.generate import ReplyGenerator
    from voxtui.settings.schema import Sampling

CAPTURED_CAPACITY = 8192
"""Tokens of the cache of a fast path (1 GB). It cannot grow, because graphs use its address."""

CHECK_EVERY = 1000
"""Tokens of a fast path, of which one is computed plainly as well."""


class FastPaths:
    """Holds the loop that answers. `notify` gets a sentence for each path that is not used."""

    def __init__(
        self, plain: ReplyGenerator, sampling: Sampling, thread: ModelThread, turns: Turns,
        notify: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._plain = self.generator = plain
        self.path: FastPath | None = None
        """the fast path that answers; None: the plain one"""
        self.proving: Proving | None = None
        """None: fast paths are not wanted here"""
        self._sampling, self._thread, self._turns = sampling, thread, turns
        self._notify = notify
        self._unchecked = CHECK_EVERY
        """tokens since a token of the fast path was compared; the first reply is checked"""
        self._closing = Flag()

    def use_what_is_proved(self, progress: Progress, trial_first: bool) -> None:
        """Switch to the fastest path of the verdict. `trial_first`: complete that before."""
        if self.proving is None:
            return
        if trial_first and not self.proving.is_complete:
            report_while(progress, "trying fast paths", self.proving.try_paths)
        if fastest := self.proving.verdict.fastest:
            report_while(
                progress, f"capturing the path {fastest.path}",
                lambda stopping: self.switch(fastest.path),
            )  # fmt: skip

    def after_turn(self, tokens: int) -> None:
        """Begin the trial, or a check once the fast path gave enough tokens. Returns at once."""
        self._unchecked += tokens if self.path else 0
        if self.proving is not None:
            check = self.path is not None and self._unchecked >= CHECK_EVERY
            self._unchecked = 0 if check else self._unchecked
            self.proving.after_turn(check)

    # See Prover. Any thread but the model's.

    @property
    def busy(self) -> bool:
        return self._turns.busy

    def switch(self, path: FastPath) -> bool:
        """Answer by `path` from the next turn on. Return False if a turn interrupted that.

        If the path fails, the plain one stays, and the user gets a sentence. Raises ModelLost if
        the device is unusable afterwards.
        """
        switched = False

        def work() -> Generator[int | None, None, None]:
            nonlocal switched
            try:
                loop = yield from self._captured(path)
            except Exception as error:  # noqa: BLE001 - reported; works without
                why = "The GPU has no memory for it" if is_full(error) else first_line(error)
                self._notify(f"Voxtral answers without the path `{path}`: {why}.")
                self.generator.forget()  # raises if the device is lost
            else:
                self.generator, self.path = loop, path
            switched = True

        return self._run_between_turns(work) and switched

    def check(self) -> bool:
        """Compute a token plainly as well, and drop the fast path if it differs.

        Return False if a turn interrupted that.
        """
        checked = False

        def work() -> Generator[int | None, None, None]:
            nonlocal checked
            yield None
            held = self.generator.cache.held
            if self.path is not None and held and held[-1] >= 0:
                from voxtui.brains.voxtral import fp8
                from voxtui.brains.voxtral.equality import compare_last

                layers = len(self.generator.embedder.encoder.layers)
                plain = fp8.without_kernels(self._plain.decoder)
                found = compare_last(self.generator, plain, layers)
                if found.why:
                    self.drop(f"A token differed from the plain path. {found.why}", True)
            checked = True

        return self._run_between_turns(self._thread.guarded(work)) and checked

    def close(self) -> None:
        """End the trial and the switch. May be called twice."""
        self._closing.set()
        if self.proving is not None:
            self.proving.close()

    # On the model's thread.

    def drop(self, why: str, for_good: bool) -> None:
        """Answer by the plain path from now on. `for_good`: after the next start too."""
        path = self.path
        self._use_plain()
        if path is not None and self.proving is not None:
            self.proving.drop(path, why, for_good)

    def _run_between_turns(self, work: Tokens) -> bool:
        """Run `work` on the model's thread. Return False during a turn; a new one ends the work."""
        request = self._turns.between(lambda: self._thread.request(ModelWork(work, self._closing)))
        if request is None:
            return False
        for _ in self._thread.tokens(request):
            pass
        return True

    def _captured(self, path: FastPath) -> Generator[None, None, ReplyGenerator]:
        """Capture `path`. Yields where a turn may interrupt it."""
        from voxtui.brains.voxtral import graphs, step

        self._use_plain()  # never two fast paths: see CudaRecorder
        decoder, embedder = copy.copy(self._plain.decoder), self._plain.embedder
        check_free_memory(decoder.embedding.device)
        captured = False
        try:
            step.keep_compiled_kernels()
            if kernels := step.kernels_of(path):
                step.enable(decoder, kernels)
            loop = model_room.reply_generator(decoder, embedder, self._sampling, CAPTURED_CAPACITY)
            for _ in loop.capture(graphs.CudaRecorder()):
                yield
            captured = True
        finally:
            if not captured:  # it failed, or a turn has priority
                embedder.graphs.clear()
        return loop

    def _use_plain(self) -> None:
        """Answer by the plain path, and let go of the graphs and the cache of a fast one."""
        self.path, self.generator = None, self._plain
        self.generator.embedder.graphs.clear()
