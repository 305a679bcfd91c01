"""`python -m benchmarks.voxtral`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from benchmarks.voxtral import __doc__ as about
from benchmarks.voxtral import accuracy
from benchmarks.voxtral.command import REPEATS, SECONDS, measure
from benchmarks.voxtral.report import table
from voxtui.errors import VoxtuiError


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.voxtral", description=(about or "").splitlines()[0]
    )
    parser.add_argument("--tiny", action="store_true", help="a rehearsal, on any machine")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of the whole run, at about (%(default)g)"
    )
    parser.add_argument(
        "--json", type=Path, help="write all of it there, and a page of tables beside it (.md)"
    )
    parser.add_argument(
        "--accuracy", nargs="+", type=Path, metavar=("MODEL", "CLIP"),
        help="what fp8 weights change: a directory and 16 kHz WAV clips, or the word random",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.json and not arguments.json.parent.is_dir():
        parser.error(f"--json: there is no folder {arguments.json.parent}.")
    if not arguments.accuracy:
        try:
            measure(arguments.tiny, arguments.repeats, tell, arguments.json, arguments.seconds)
        except torch.OutOfMemoryError as error:
            sys.exit(f"The GPU has no memory for the true shape: {str(error).splitlines()[0]}")
        return
    model, *clips = arguments.accuracy
    try:
        if str(model) == accuracy.RANDOM:
            rows = accuracy.of_random()
        else:
            rows = accuracy.of_model(model, clips)
    except VoxtuiError as error:
        sys.exit(str(error))
    tell(table(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
