"""Draw an asciinema cast as an animated GIF, or its last moment as a PNG.

    python -m tools.cast turn.cast
    python -m tools.animation turn.cast assets/turn.gif [--from 12.5] [--fps 10]
    python -m tools.animation turn.cast turn.png

Needs Pillow and the font DejaVu Sans Mono. The terminal is that of pyte.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pyte
from PIL import Image
from pyte.screens import Char
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from tools.screenshot import Canvas

LAST_FRAME_MS = 3000
"""The last frame stays, so that a reader sees the whole answer."""

COLORS = 48


def frames(cast: Path, begin: float, fps: float) -> Iterator[tuple[float, Image.Image]]:
    """Yield (seconds, picture) of each moment at which the screen looks different."""
    header, *events = (json.loads(line) for line in cast.read_text().splitlines())
    screen = pyte.Screen(header["width"], header["height"])
    stream = pyte.Stream(screen)
    shown, due = None, begin
    for at, kind, text in events:
        while at > due:
            if (lines := lines_of(screen)) != shown:
                shown = lines
                yield due, picture_of(lines, screen.columns)
            due += 1 / fps
        if kind == "o":
            stream.feed(text)
    if (lines := lines_of(screen)) != shown:
        yield due, picture_of(lines, screen.columns)


def lines_of(screen: pyte.Screen) -> list[list[Char]]:
    return [
        [screen.buffer[row][column] for column in range(screen.columns)]
        for row in range(screen.lines)
    ]


def picture_of(lines: list[list[Char]], columns: int) -> Image.Image:
    canvas = Canvas(columns, len(lines))
    for row, cells in enumerate(lines):
        canvas.line(row, [Segment(cell.data or " ", _style(cell)) for cell in cells])
    return canvas.image


def _style(cell: Char) -> Style:
    return Style(
        color=_color(cell.fg),
        bgcolor=_color(cell.bg),
        bold=cell.bold,
        underline=cell.underscore,
        strike=cell.strikethrough,
        reverse=cell.reverse,
    )


def _color(name: str) -> Color | None:
    if name == "default":
        return None
    hexadecimal = len(name) == 6 and all(digit in "0123456789abcdef" for digit in name)
    return Color.parse(f"#{name}" if hexadecimal else name.replace("brown", "yellow"))


def reduced(picture: Image.Image) -> Image.Image:
    """Return a picture of fewer colours, which takes a third of the bytes."""
    return picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=COLORS)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("cast", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--from", dest="begin", type=float, default=0.0, help="Seconds left out.")
    options.add_argument("--fps", type=float, default=10)
    given = options.parse_args()
    if given.out.suffix == ".png":
        *_, (_, last) = frames(given.cast, given.begin, given.fps)
        reduced(last).save(given.out, optimize=True)
        return
    times, pictures = zip(*frames(given.cast, given.begin, given.fps), strict=True)
    lengths = [round((b - a) * 1000) for a, b in itertools.pairwise(times)]
    palette = reduced(pictures[-1])  # one for all, so a frame holds only what has changed
    first, *rest = (
        picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
    )
    first.save(
        given.out,
        save_all=True,
        append_images=rest,
        duration=[*lengths, LAST_FRAME_MS],
        loop=0,
        optimize=True,
    )


if __name__ == "__main__":
    main()
