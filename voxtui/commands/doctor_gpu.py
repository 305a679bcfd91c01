"""`voxtui doctor gpu`: try the fast paths of Voxtral again, and show the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import click

from voxtui.brains.voxtral.trial import SECONDS, run_trial
from voxtui.brains.voxtral.verdict import (
    PATHS,
    FastPath,
    Key,
    Result,
    Verdict,
    key_of,
    table,
    verdict_file,
    write_verdict,
)
from voxtui.errors import InputError
from voxtui.models.cuda import check_packages, check_torch, first_gpu
from voxtui.settings.schema import Config

Try: TypeAlias = "Callable[[Sequence[FastPath], bool], Iterator[Result]]"
"""Takes the paths, and True for fp8 weights."""


def run(config: Config) -> bool:
    """Try all paths on this machine and keep the verdict. Return whether one may be used.

    Raises ModelError without a GPU or the packages, InputError.
    """
    quantization = config.brain.voxtral.quantization
    gpu = first_gpu()
    check_packages()
    check_torch()
    key = key_of(gpu.name, quantization)
    return try_again(key, verdict_file(), lambda paths, fp8: run_trial(paths, fp8=fp8))


def try_again(key: Key, file: Path, tries: Try) -> bool:
    click.echo(
        f"Trying the fast paths of Voxtral on {key.gpu}: {len(PATHS)} processes, each with at most "
        f"2 GB, and {SECONDS:.0f} s of GPU time in all. The first trial compiles for a minute."
    )
    verdict = Verdict(key, ())
    for result in tries(PATHS, key.quantization == "fp8"):
        click.echo(f"{result.path}: {result.state}")
        verdict = verdict.with_result(result)
    click.echo()
    for line in table(verdict.results):
        click.echo(line)
    fastest = verdict.fastest
    used = f"the path `{fastest.path}`" if fastest else "the plain path"
    click.echo(f"\nVoxtral uses {used}.")
    try:
        write_verdict(file, verdict)
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}.") from error
    return fastest is not None
