"""Prove fast paths beside a conversation: a trial in the background, then the switch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from voxtui.brains.voxtral.trial import Start, run_trial, start
from voxtui.brains.voxtral.verdict import (
    FastPath,
    Key,
    Result,
    Verdict,
    read_verdict,
    write_verdict,
)
from voxtui.errors import ModelError

QUIET_SECONDS = 0.2
"""Time between two looks for a moment without a turn."""


class Prover(Protocol):
    """The brain, as far as a thread beside the conversation may use it."""

    @property
    def busy(self) -> bool:
        """True while a turn is under way."""
        ...

    def switch(self, path: FastPath) -> bool:
        """Answer by `path` from the next turn on. Return False if a turn interrupted that."""
        ...

    def check(self) -> bool:
        """Compare a token with the plain path. Return False if a turn interrupted that."""
        ...


class Proving:
    """The verdict about this machine, the trial that completes it, and the checks in use."""

    def __init__(
        self, key: Key, file: Path, brain: Prover,
        notify: Callable[[str], object], start: Start = start,
    ) -> None:  # fmt: skip
        self.verdict = read_verdict(file, key)
        self._file, self._brain, self._notify, self._start = file, brain, notify, start
        self._stopped = threading.Event()
        self._turn_ended = threading.Event()
        self._check_is_due = False
        self._thread: threading.Thread | None = None

    @property
    def is_complete(self) -> bool:
        return not self.verdict.untried

    def after_turn(self, check: bool) -> None:
        """Begin the trial on a thread of its own, if it is not complete. Returns at once.

        `check`: the next moment without a turn is for a check.
        """
        self._check_is_due |= check
        self._turn_ended.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="voxtui-trial", daemon=True)
            self._thread.start()

    def try_paths(self, stopped: threading.Event) -> None:
        """Run the trial until its end, or until `stopped`. Keep each result."""
        before, paths = self.verdict.fastest, self.verdict.untried
        results = run_trial(
            paths,
            fp8=self.verdict.key.quantization == "fp8",
            busy=lambda: self._brain.busy, stopped=stopped, start=self._start,
        )  # fmt: skip
        for result in results:
            self._keep(self.verdict.with_result(result))
        tried = (result for result in self.verdict.results if result.path in paths)
        if refused := [result for result in tried if result.state in ("different", "failed")]:
            self._notify(_refusal(refused))
        new = self.verdict.fastest
        if new and new != before and new.token and new.plain_token:
            self._notify(
                f"Voxtral will use the path `{new.path}`: {new.token.median:.1f} ms a token "
                f"instead of {new.plain_token.median:.1f}."
            )

    def drop(self, path: FastPath, why: str, for_good: bool) -> None:
        """Say that `path` is not used any more. `for_good`: also after the next start."""
        if for_good:
            self._keep(self.verdict.without(path, why))
        self._notify(f"Voxtral no longer uses the path `{path}`: {why}")

    def close(self) -> None:
        """End the trial. May be called twice."""
        self._stopped.set()
        self._turn_ended.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self, verdict: Verdict) -> None:
        self.verdict = verdict
        with suppress(OSError):  # it is then found out again at the next start
            write_verdict(self._file, verdict)

    def _run(self) -> None:
        before = self.verdict.fastest
        self.try_paths(self._stopped)
        new = self.verdict.fastest
        if new and new != before:
            self._repeat(lambda: self._brain.switch(new.path))
        while not self._stopped.is_set():
            self._turn_ended.wait()
            self._turn_ended.clear()
            if self._check_is_due and self._repeat(self._brain.check):
                self._check_is_due = False

    def _repeat(self, work: Callable[[], bool]) -> bool:
        """Run `work` until no turn interrupts it. Return False if that is not worth it any more."""
        while not self._stopped.is_set():
            try:
                if work():
                    return True
            except ModelError:  # the device is lost, which the next turn reports
                return False
            self._stopped.wait(QUIET_SECONDS)
        return False


def _refusal(refused: list[Result]) -> str:
    """Return one sentence about the paths that are not used."""
    if len(refused) == 1:
        return f"Voxtral does not use the path `{refused[0].path}`: {refused[0].why}"
    names = " and ".join(f"`{result.path}`" for result in refused)
    return f"Voxtral does not use the paths {names}; `voxtui doctor` says why."
