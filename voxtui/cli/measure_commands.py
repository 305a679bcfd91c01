from __future__ import annotations

from pathlib import Path

import click

from voxtui.cli.options import (
    FAILED_TURN,
    FILE_PATH,
    CommonOptions,
    global_options,
    json_option,
    with_options,
)


class Bench(click.Command):
    """Accepts `bench turns`, its name while there were other benchmarks, and names their place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] in (["serve"], ["transcribe"]):
            raise click.UsageError(f"In a clone of voxtui: python -m benchmarks.{args[0]}")
        return super().parse_args(ctx, args[1:] if args[:1] == ["turns"] else args)


@click.command(cls=Bench)
@click.argument("files", nargs=-1, type=FILE_PATH)
@click.option("--runs", type=click.IntRange(1, 1000), metavar="N",
              help="Turns per clip (default: 3; with --check 5).")  # fmt: skip
@click.option("--warm-up", type=click.IntRange(0, 100), default=1, metavar="N", show_default=True,
              help="Warm-up turns, which come first and are reported separately.")  # fmt: skip
@click.option("--play", is_flag=True, help="Play the answers; the sound device is measured, too.")
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@click.option("--compare", type=FILE_PATH, metavar="OLD.json",
              help="Report differences from an earlier --json, beyond chance.")  # fmt: skip
@click.option("--budget", "budgets", multiple=True, metavar="NAME=MS",
              help="Exit with 1 if p95 of NAME, such as ttft, exceeds MS. Repeatable.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Print PASS or FAIL for each target, on a short and a long clip.")  # fmt: skip
@click.option("--brain", metavar="NAME", help="Measure this brain instead of brain.name.")
@global_options
def bench(
    options: CommonOptions, files: tuple[Path, ...], runs: int | None, warm_up: int, play: bool,
    as_json: bool, compare: Path | None, budgets: tuple[str, ...], check: bool, brain: str | None,
) -> None:  # fmt: skip
    """Measure turns over FILES, or over the sample clips (the default)."""
    config = with_options(options.load().config, brain)
    from voxtui.bench.bench_command import BenchOptions, run

    wanted = BenchOptions(runs, warm_up, play, as_json, compare, budgets, check)
    raise SystemExit(0 if run(config, files, wanted) else FAILED_TURN)


@click.command()
@json_option
@global_options
def stats(options: CommonOptions, as_json: bool) -> None:
    """Summarise past turns: how long they took, by brain and by day."""
    config = options.load().config
    from voxtui.bench.stats import run

    run(config, as_json)
