"""`python -m benchmarks.serve`: conversations with `voxtui serve`, by 1 to 64 clients at once."""

from __future__ import annotations

import sys

import click

from benchmarks.serve.load import LoadOptions, run
from voxtui.cli.options import CommonOptions, global_options, with_options
from voxtui.errors import VoxtuiError


@click.command()
@click.option("--turns", type=click.IntRange(1, 1000), default=5, metavar="N", show_default=True,
              help="Turns of each client.")  # fmt: skip
@click.option("--scripted", is_flag=True, help="Leave out the real models.")
@click.option("--json", "as_json", is_flag=True,
              help="Print JSON on stdout; the report goes to stderr.")  # fmt: skip
@click.option("--brain", metavar="NAME", help="Measure this brain instead of brain.name.")
@global_options
def serve(
    options: CommonOptions, turns: int, scripted: bool, as_json: bool, brain: str | None
) -> None:
    """Measure conversations with voxtui serve, by 1 to 64 clients at once.

    Scripted components show the cost of the server, and the real models how many people they carry.
    """
    with_options(options.load().config, brain)
    arguments = [*options.arguments, *(["--brain", brain] if brain else [])]
    run(arguments, LoadOptions(turns, scripted, as_json))


if __name__ == "__main__":
    try:
        serve()
    except VoxtuiError as error:
        sys.exit(str(error))
