"""What a trial found about each fast path of Voxtral on this machine, and the file that keeps it.

Needs no torch, so that `voxtui doctor` can show it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from operator import itemgetter
from pathlib import Path
from typing import Literal, get_args

from voxtui import __version__
from voxtui.errors import ModelError, one_line
from voxtui.models.cuda import driver_version, first_gpu, is_likely
from voxtui.settings.paths import user_folders
from voxtui.storage.files import read_file, write_private

FastPath = Literal["captured", "attention", "all", "overlapped"]

PATHS: Sequence[FastPath] = get_args(FastPath)
"""Each is captured as CUDA graphs. The others also use our kernels: for attention, for the whole
step, or for the whole step with overlapping launches."""

PLAIN = "plain"

State = Literal["equal", "different", "failed", "not tried"]

INCONCLUSIVE_TRIALS = 3
"""Trials in a row that may end without a judgement. A busy machine can starve or kill one, so one
says nothing; but a path that really hangs must not be tried at each start for ever."""

LARGEST_BYTES = 100_000


@dataclass(frozen=True, slots=True)
class Times:
    """The spread of a time, in milliseconds."""

    median: float
    low: float
    """5 % are faster"""
    high: float
    """5 % are slower"""

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial found about one path."""

    path: FastPath
    state: State
    why: str = ""
    """one sentence, if the path may not be used"""
    token: Times | None = None
    """a token, at the depth of the real model"""
    first: Times | None = None
    """the first token of a spoken turn"""
    plain_token: Times | None = None
    """the same of the plain path, in the same minute"""
    plain_first: Times | None = None
    steps: int = 0
    """compared with the plain path"""
    worst: float = 0.0
    """largest difference of a logit, as a share of the bound"""
    flips: int = 0
    """steps with another likeliest token, each within the bound"""
    inconclusive: int = 0
    """latest trials in a row that ended without a judgement, though there was time and memory"""


@dataclass(frozen=True, slots=True)
class Key:
    """What a verdict holds for. After a change of any part, each path is tried again."""

    gpu: str
    driver: str
    torch: str
    transformers: str
    voxtui: str
    quantization: str


@dataclass(frozen=True, slots=True)
class Verdict:
    key: Key
    results: tuple[Result, ...]
    """at most one of each path"""

    @property
    def fastest(self) -> Result | None:
        """Return the path to use: the one with the shortest token that is equal and saves time."""
        good = [
            (result.token.median, result)
            for result in self.results
            if result.state == "equal" and result.token and result.plain_token
            and result.token.median < result.plain_token.median
        ]  # fmt: skip
        return min(good, key=itemgetter(0))[1] if good else None

    @property
    def untried(self) -> list[FastPath]:
        """Return the paths that no trial has judged yet."""
        judged = {result.path for result in self.results if result.state != "not tried"}
        return [path for path in PATHS if path not in judged]

    def with_result(self, new: Result) -> Verdict:
        """Return a copy in which `new` replaces an older result of its path.

        The last of INCONCLUSIVE_TRIALS counts as a failure.
        """
        found = {result.path: result for result in self.results}
        old = found.get(new.path)
        if new.state == "not tried":
            before = old.inconclusive if old and old.state == "not tried" else 0
            new = replace(new, inconclusive=before + new.inconclusive)
            if new.inconclusive >= INCONCLUSIVE_TRIALS:
                why = f"{new.why} {new.inconclusive} trials had no result."
                new = replace(new, state="failed", why=why)
        found[new.path] = new
        return Verdict(self.key, tuple(found[path] for path in PATHS if path in found))

    def without(self, path: FastPath, why: str) -> Verdict:
        """Return a copy in which `path` is different, because a check in use found that."""
        return self.with_result(Result(path, "different", why))


def key_of(gpu: str, quantization: str) -> Key:
    """Return the key of this machine, whose GPU has the name `gpu`."""
    return Key(
        gpu, driver_version(), _version("torch"), _version("transformers"),
        __version__, quantization,
    )  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def verdict_file() -> Path:
    return user_folders().user_cache_path / "voxtral-trial.json"


def read_verdict(path: Path, key: Key) -> Verdict:
    """Return the verdict that `path` holds for `key`; one without results if there is none.

    A file that is damaged, foreign, or made for another key counts as none.
    """
    import msgspec

    nothing = Verdict(key, ())
    try:
        found = msgspec.json.decode(read_file(path, LARGEST_BYTES), type=Verdict)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return nothing
    return found if found.key == key else nothing


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Write `verdict` to `path`. Raises OSError."""
    import msgspec

    write_private(path, msgspec.json.encode(verdict))


HEADS = ("path", "equal?", "ms a token", "ms to the first token")


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the rows of a table of the paths: the head, the plain path, each fast one."""
    rows: list[tuple[str, ...]] = [HEADS]
    timed = [result for result in results if result.plain_token]
    if timed:
        rows.append((PLAIN, "", str(timed[-1].plain_token), str(timed[-1].plain_first or "")))
    rows += [
        (result.path, _equality(result), str(result.token or ""), str(result.first or ""))
        for result in results
    ]
    return rows


def table(results: Sequence[Result]) -> list[str]:
    """Return the lines of that table, and below it why a path may not be used."""
    whys = [f"{result.path}: {one_line(result.why)}" for result in results if result.why]
    return [*_aligned(rows(results)), *whys]


def brief_table(results: Sequence[Result]) -> list[str]:
    """Return the lines of a narrow table: without spreads and reasons."""
    found: list[tuple[str, ...]] = [HEADS]
    for result in results:
        equal = "yes" if result.state == "equal" else result.state
        times = (f"{times.median:.2f}" if times else "" for times in (result.token, result.first))
        found.append((result.path, equal, *times))
    return _aligned(found)


def brief_table_here(quantization: str) -> list[str]:
    """Return the brief table of this machine; empty without a GPU or a trial. May take a second."""
    if not is_likely():
        return []
    try:
        gpu = first_gpu()
    except ModelError:
        return []
    found = read_verdict(verdict_file(), key_of(gpu.name, quantization)).results
    return brief_table(found) if found else []


def _aligned(found: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*found, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in found]


def _equality(result: Result) -> str:
    if result.state != "equal":
        return result.state
    flips = f", {result.flips} near-ties differ" if result.flips else ""
    return f"yes, {result.worst:.0%} of the bound{flips}"
