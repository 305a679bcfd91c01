"""`python -m benchmarks.transcribe`: recognise clips with our server and another, in turn."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarks.serve.process import ON_LOOPBACK, started
from benchmarks.word_errors import word_errors
from voxtui.audio.clips import load_clip
from voxtui.bench.environment import machine
from voxtui.bench.tables import number, spread_json
from voxtui.brains.remote.endpoint import RemoteEndpoint, StatusError
from voxtui.brains.remote.http_connection import error_text
from voxtui.brains.remote.remote_brain import find_model
from voxtui.cli.options import (
    FAILED_TURN,
    FILE_PATH,
    CommonOptions,
    global_options,
    with_options,
)
from voxtui.errors import InputError, RemoteError, VoxtuiError, one_line
from voxtui.settings.schema import Config
from voxtui.settings.urls import check_url
from voxtui.storage.derived_latencies import spread

KEY = "VOXTUI_AGAINST_KEY"
"""The environment variable with the other server's key, which comes from nowhere else."""

MOST_POINTS = 1.0
"""Maximum rise of the word errors in percentage points."""

Notify = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class TranscribeOptions:
    against: str = ""
    """the base URL of the other server; empty for none"""
    model: str = ""
    """the other server's model; empty for its only one"""
    runs: int = 3
    compare: Path | None = None
    """an earlier report by --json"""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """A clip and its words, from the text file beside it; None without such a file."""

    path: Path
    seconds: float
    words: str | None


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer. Times count from the beginning of the request."""

    clip: str
    run: int
    text: str
    wall_ms: float
    first_text_ms: float | None
    """the time of the first text, or None if nothing was heard"""


@dataclass(slots=True)
class Contestant:
    """A server and its answers. If it `streams`, it sends text before it has all of it."""

    name: str
    endpoint: RemoteEndpoint
    model: str
    streams: bool = True
    answers: list[Heard] = field(default_factory=list[Heard])

    def transcribe(self, sample: Sample, run: int) -> Heard:
        """Send a clip. If a server refuses to stream, ask it without. Raises RemoteError."""
        try:
            return self._transcribe(sample, run)
        except StatusError as error:
            if not self.streams or error.status not in (400, 422):
                raise _about(sample, error) from error
        self.streams = False
        try:
            return self._transcribe(sample, run)
        except StatusError as error:
            raise _about(sample, error) from error

    def _transcribe(self, sample: Sample, run: int) -> Heard:
        fields = {"model": self.model, "response_format": "json", "temperature": "0"}
        if self.streams:
            fields["stream"] = "true"
        file = {"file": (sample.path.name, sample.path.read_bytes())}
        pieces: list[str] = []
        whole: str | None = None
        first: float | None = None
        began = time.monotonic()
        for event in self.endpoint.request("POST", "audio/transcriptions", data=fields, files=file):
            if event is None:
                continue
            piece, all_of_it = self._text(event)
            pieces.append(piece)
            whole = all_of_it if all_of_it is not None else whole
            if first is None and (piece or whole or "").strip():
                first = time.monotonic()
        wall = time.monotonic() - began
        if not any(pieces):
            self.streams = False
        text = "".join(pieces) if whole is None else whole
        first_ms = None if first is None else (first - began) * 1000
        return Heard(sample.path.name, run, one_line(text), wall * 1000, first_ms)

    def _text(self, event: dict[str, Any]) -> tuple[str, str | None]:
        """Return the next piece of the text, and the whole text if the event has it."""
        match event:
            case {"type": "transcript.text.delta", "delta": str(piece)}:
                return piece, None
            case {"choices": [{"delta": {"content": str(piece)}}, *_]}:  # vLLM
                return piece, None
            case {"error": _}:
                raise RemoteError(f"{self.endpoint.host}: “{error_text(event)}”.")
            case {"text": str(text)}:
                return "", text
            case {"type": _} | {"choices": _}:  # such as the last event of vLLM
                return "", None
            case _:
                raise self.endpoint.invalid_response()

    def measured(self) -> Sequence[Heard]:
        return [answer for answer in self.answers if answer.run]


def _about(sample: Sample, error: StatusError) -> InputError:
    """Return `error` with the name of the clip, and without hints about a conversation."""
    hint = "" if error.status in (400, 413, 422) else error.hint
    return InputError(f"{sample.path.name}: {error.message}", hint)


def run(
    config: Config, arguments: Sequence[str], clips: Sequence[Path], options: TranscribeOptions
) -> bool:
    """Measure and print the report. Return False if our word errors rose. Raises VoxtuiError.

    `arguments`: the options with which the server is started.
    """
    samples = [sample(path) for path in clips]
    _check_names(samples)
    old = _baseline(options.compare, samples) if options.compare else None

    def notify(sentence: str) -> None:
        click.echo(sentence, err=True)

    for one in samples:
        if one.words is None:
            text = one.path.with_suffix(".txt").name
            notify(f"{one.path.name}: there is no {text}, so its words are not compared.")
    about = machine()
    with ExitStack() as stack:
        contestants: list[Contestant] = []
        if options.against:
            contestants.append(_other(config, options, notify, stack))
        server = stack.enter_context(
            started("voxtui", ["serve", *arguments, *ON_LOOPBACK, "--sessions", "1",
                               "--set", "voice.engine=none"])
        )  # fmt: skip
        contestants.insert(0, _ours(server.url, config, stack))
        measure(contestants, samples, options.runs)
    whole = as_json(contestants, samples, options.runs, about)
    lines = report(contestants, samples, options.runs)
    passed = True
    if old is not None and options.compare:
        new = _points(contestants[0].answers, samples)
        passed = new <= old + MOST_POINTS
        lines += ["", _verdict(passed, new, old, options.compare)]
    if options.as_json:
        click.echo(json.dumps(whole, ensure_ascii=False))
    click.echo("\n".join(lines), err=options.as_json)
    return passed


def _verdict(passed: bool, new: float, old: float, path: Path) -> str:
    limit = f"at most {MOST_POINTS:g} point more than the {old:.1f} % of {path}"
    return f"{'PASS' if passed else 'FAIL'}  word errors {new:.1f} %: {limit}"


def sample(path: Path) -> Sample:
    """Read a clip's length and words. Raises InputError."""
    seconds = load_clip(path, float("inf")).seconds
    text = path.with_suffix(".txt")
    try:
        words = text.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Sample(path, seconds, None)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{text}: is not a text in UTF-8 that can be read.") from error
    if word_errors([(words, "")]) is None:
        raise InputError(f"{text}: holds no words.")
    return Sample(path, seconds, one_line(words))


def _check_names(samples: Sequence[Sample]) -> None:
    names = [one.path.name for one in samples]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name}: two clips have this name.", "Rename one of them.")


def _other(
    config: Config, options: TranscribeOptions, notify: Notify, stack: ExitStack
) -> Contestant:
    """Return the server of --against, once its name has been shown. Raises VoxtuiError."""
    try:
        check_url("--against", options.against)
    except ValueError as error:
        raise InputError(f"{str(error).replace('VOXTUI_API_KEY', KEY)}.") from error
    endpoint = RemoteEndpoint(options.against, config.brain.remote.timeout_s, "--against", KEY)
    stack.callback(endpoint.close)
    notify(f"Your clips go to {endpoint.host}.")
    if endpoint.unencrypted:
        notify(f"The connection to {endpoint.host} is not encrypted.")
    asking = find_model(endpoint, options.model, notify, "--model")
    return Contestant(endpoint.host, endpoint, _result(asking))


def _ours(url: str, config: Config, stack: ExitStack) -> Contestant:
    """Return our own server at `url`. Raises RemoteError."""
    endpoint = RemoteEndpoint(url, config.brain.remote.timeout_s, "--against", "")
    stack.callback(endpoint.close)
    names = _result(endpoint.models())
    assert names
    return Contestant("voxtui", endpoint, names[0])


def _result(generator: Any) -> Any:
    """Return the value with which `generator` ends."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value


def measure(contestants: Sequence[Contestant], samples: Sequence[Sample], runs: int) -> None:
    """Send each clip `runs` times to each server. They take turns at being first.

    Before that, each server gets the first clip once, as run 0, which does not count.
    """
    rounds = [(0, samples[0])] + [(n, one) for n in range(1, runs + 1) for one in samples]
    hidden = not sys.stderr.isatty()
    with click.progressbar(rounds, file=sys.stderr, hidden=hidden, label="Measuring") as shown:
        for count, (number_of_run, one) in enumerate(shown):
            for contestant in contestants if count % 2 else reversed(contestants):
                contestant.answers.append(contestant.transcribe(one, number_of_run))


def report(contestants: Sequence[Contestant], samples: Sequence[Sample], runs: int) -> list[str]:
    """Return the report as text."""
    seconds = sum(one.seconds for one in samples)
    lines = [
        f"clips: {len(samples)}, {seconds:.1f} s; runs: {runs}; p50 and p95 of the requests",
        "",
        f"{'':40} {'wall, ms':>13} {'first text, ms':>15} {'xRT':>6} {'word errors':>12}",
    ]
    for one in contestants:
        walls = spread(answer.wall_ms for answer in one.measured())
        firsts = spread(answer.first_text_ms for answer in one.measured())
        wall = f"{number(walls and walls.p50)} {number(walls and walls.p95):>6}"
        first = f"{number(firsts and firsts.p50)} {number(firsts and firsts.p95):>6}"
        wrong = _word_errors(one.answers, samples)
        shown = "–" if wrong is None else f"{wrong:.1f} %"
        name = f"{one.name} ({one.model})"[:40]
        lines.append(
            f"{name:40} {wall:>13} {first:>15} {number(_xrt(one, samples)):>6} {shown:>12}"
        )
    for one in contestants:
        if not one.streams:
            lines.append(f"{one.name} sends no text before its answer is complete.")
    if len(contestants) > 1:
        lines += _difference(contestants[0], contestants[1], samples)
    return lines


def _difference(ours: Contestant, other: Contestant, samples: Sequence[Sample]) -> list[str]:
    mine, theirs = (_word_errors(one.answers, samples) for one in (ours, other))
    if mine is None or theirs is None:
        return []
    return [f"Word errors of voxtui minus those of {other.name}: {mine - theirs:+.1f} points"]


def _xrt(one: Contestant, samples: Sequence[Sample]) -> float | None:
    """Return the median of seconds of sound per second of work."""
    seconds = {sample.path.name: sample.seconds for sample in samples}
    speeds = spread(seconds[answer.clip] / answer.wall_ms * 1000 for answer in one.measured())
    return speeds and speeds.p50


def _word_errors(answers: Iterable[Heard], samples: Sequence[Sample]) -> float | None:
    """Return the word errors of all runs in percent, or None without a clip that has its words."""
    words = {sample.path.name: sample.words for sample in samples}
    pairs = ((words[a.clip], a.text) for a in answers if a.run)
    rate = word_errors((said, text) for said, text in pairs if said is not None)
    return None if rate is None else rate * 100


def _points(answers: Iterable[Heard], samples: Sequence[Sample]) -> float:
    found = _word_errors(answers, samples)
    assert found is not None
    return found


def as_json(
    contestants: Sequence[Contestant], samples: Sequence[Sample], runs: int, about: dict[str, Any]
) -> dict[str, Any]:
    """Return the measurement for --json and --compare. The first server is ours."""
    servers: list[dict[str, Any]] = []
    for one in contestants:
        wrong, xrt = _word_errors(one.answers, samples), _xrt(one, samples)
        servers.append(
            {
                "name": one.name,
                "model": one.model,
                "streams": one.streams,
                "wall_ms": spread_json(spread(a.wall_ms for a in one.measured())),
                "first_text_ms": spread_json(spread(a.first_text_ms for a in one.measured())),
                "xrt": None if xrt is None else round(xrt, 2),
                "word_errors": None if wrong is None else round(wrong, 2),
                "answers": [_rounded(asdict(answer)) for answer in one.answers],
            }
        )
    clips = [{"name": s.path.name, "seconds": round(s.seconds, 3), "words": s.words}
             for s in samples]  # fmt: skip
    return {"machine": about, "runs": runs, "clips": clips, "servers": servers}


def _rounded(answer: dict[str, Any]) -> dict[str, Any]:
    return {k: round(v, 1) if isinstance(v, float) else v for k, v in answer.items()}


# An earlier report.


class _OldClip(msgspec.Struct, frozen=True):
    name: str
    words: str | None


class _OldServer(msgspec.Struct, frozen=True):
    answers: list[Heard]


class _OldReport(msgspec.Struct, frozen=True):
    clips: list[_OldClip]
    servers: list[_OldServer]


def _baseline(path: Path, samples: Sequence[Sample]) -> float:
    """Return our word errors in the report at `path`, in percent. Raises InputError.

    The report must be of the same clips with the same words.
    """
    try:
        old = msgspec.json.decode(path.read_bytes(), type=_OldReport)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise InputError(
            f"{path}: is not a report of `python -m benchmarks.transcribe --json`."
        ) from error
    for one in samples:
        if one.words is None:
            raise InputError(
                f"{one.path.name}: its words are unknown, so they cannot be compared.",
                f"Write them to {one.path.with_suffix('.txt')}.",
            )
    known = {clip.name: clip.words for clip in old.clips}
    here = {one.path.name: one.words for one in samples}
    if known != here or not old.servers:
        differing = sorted(name for name in known | here if known.get(name) != here.get(name))
        raise InputError(
            f"{path}: was measured on other clips or references: {', '.join(differing)}."
        )
    return _points(old.servers[0].answers, samples)


@click.command()
@click.argument("clips", nargs=-1, required=True, type=FILE_PATH)
@click.option("--against", default="", metavar="URL",
              help="Measure this server, too, such as https://api.openai.com/v1.")  # fmt: skip
@click.option("--model", default="", metavar="NAME", help="The model of --against.")
@click.option("--runs", type=click.IntRange(1, 1000), default=3, metavar="N", show_default=True,
              help="Times that each clip is sent to each server.")  # fmt: skip
@click.option("--compare", type=FILE_PATH, metavar="OLD.json",
              help="Exit with 1 if word errors rose over a point since this --json.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@click.option("--brain", metavar="NAME", help="Measure this brain instead of brain.name.")
@global_options
def transcribe(
    options: CommonOptions, clips: tuple[Path, ...], against: str, model: str, runs: int,
    compare: Path | None, as_json: bool, brain: str | None,
) -> None:  # fmt: skip
    """Measure transcription of CLIPS, beside another server.

    Ours is a voxtui serve that is started for it. The words of CLIP.wav are expected in CLIP.txt.
    VOXTUI_AGAINST_KEY is the key of --against.
    """
    config = with_options(options.load().config, brain)
    arguments = [*options.arguments, *(["--brain", brain] if brain else [])]
    wanted = TranscribeOptions(against, model, runs, compare, as_json)
    raise SystemExit(0 if run(config, arguments, clips, wanted) else FAILED_TURN)


if __name__ == "__main__":
    try:
        transcribe()
    except VoxtuiError as error:
        sys.exit(str(error))
