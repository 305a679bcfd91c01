"""Take a picture of the real screen after real turns with the sample clips.

    python -m tools.screenshot picture.png [--size 120x40] [--clips 2,6,1] [--theme NAME]

Needs Pillow, the font DejaVu Sans Mono, the chat model and a real or virtual speaker. The numbers
on the picture are those of the machine it ran on.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from voxtui.audio.microphone import SounddeviceMicrophone
from voxtui.audio.speaker import SounddeviceSpeaker
from voxtui.dialogue.components.sound_devices import Devices
from voxtui.dialogue.engine import Engine
from voxtui.dialogue.events import Event, State
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.themes import DARK
from voxtui.wiring import build_engine, sample_clips

FONTS = Path("/usr/share/fonts/truetype/dejavu")
POINTS = 16

EIGHTHS_FROM_LEFT = "▏▎▍▌▋▊▉█"
EIGHTHS_FROM_BOTTOM = "▁▂▃▄▅▆▇█"

Ink = tuple[int, int, int]
Box = tuple[float, float, float, float]


class Canvas:
    """Draws terminal cells as pixels. Block glyphs are boxes, so that neighbours join."""

    def __init__(self, columns: int, rows: int) -> None:
        self._plain = ImageFont.truetype(FONTS / "DejaVuSansMono.ttf", POINTS)
        self._bold = ImageFont.truetype(FONTS / "DejaVuSansMono-Bold.ttf", POINTS)
        self._width = round(self._plain.getlength("M"))
        self._height = sum(self._plain.getmetrics()) + 1
        self.image = Image.new("RGB", (columns * self._width, rows * self._height))
        self._draw = ImageDraw.Draw(self.image)

    def line(self, row: int, segments: list[Segment]) -> None:
        column = 0
        for text, style, control in segments:
            if control:
                continue
            for character in text:
                self._cell(column, row, character, style or Style())
                column += cell_len(character)

    def _cell(self, column: int, row: int, character: str, style: Style) -> None:
        ink, ground = _ink(style.color, (224, 224, 224)), _ink(style.bgcolor, (18, 18, 18))
        if style.reverse:
            ink, ground = ground, ink
        if style.dim:
            ink = tuple((a + b) // 2 for a, b in zip(ink, ground, strict=True))
        self._box(column, row, (0, 0, cell_len(character), 1), ground)
        if box := _block(character):
            self._box(column, row, box, ink)
        elif character.strip():
            font = self._bold if style.bold else self._plain
            at = (column * self._width, row * self._height)
            self._draw.text(at, character, font=font, fill=ink)
        for wanted, height in ((style.underline, 0.93), (style.strike, 0.55)):
            if wanted:
                self._box(column, row, (0, height, 1, height + 0.05), ink)

    def _box(self, column: int, row: int, box: Box, ink: Ink) -> None:
        left, top, right, bottom = box
        x, y = column * self._width, row * self._height
        corners = (
            x + round(left * self._width),
            y + round(top * self._height),
            x + round(right * self._width) - 1,
            y + round(bottom * self._height) - 1,
        )
        if corners[2] >= corners[0] and corners[3] >= corners[1]:
            self._draw.rectangle(corners, fill=ink)


def _ink(color: Color | None, otherwise: Ink) -> Any:
    if color is None or color.is_default:
        return otherwise
    return tuple(color.get_truecolor())


def _block(character: str) -> Box | None:
    if character in EIGHTHS_FROM_LEFT:
        return (0, 0, (EIGHTHS_FROM_LEFT.index(character) + 1) / 8, 1)
    if character in EIGHTHS_FROM_BOTTOM:
        return (0, 1 - (EIGHTHS_FROM_BOTTOM.index(character) + 1) / 8, 1, 1)
    return None


def save(app: VoxtuiApp, path: Path) -> None:
    columns, rows = app.size
    canvas = Canvas(columns, rows)
    for row, strip in enumerate(app.screen._compositor.render_strips()):
        canvas.line(row, list(strip))
    canvas.image.save(path, optimize=True)


def make_app() -> VoxtuiApp:
    config = Config()

    def make_engine(emit: Callable[[Event], object]) -> Engine:
        devices = Devices(SounddeviceMicrophone(""), SounddeviceSpeaker(config.audio.output))
        return build_engine(config, emit, devices)

    return VoxtuiApp(make_engine, config, sample_clips())


async def take(path: Path, size: tuple[int, int], clips: list[int], theme: str) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:

        async def ready(turns: int) -> None:
            while app.session.state is not State.READY or app.turns.over < turns:
                await asyncio.sleep(0.05)

        app.theme = theme
        await ready(0)
        for turn, clip in enumerate(clips, 1):
            app.main.action_clip(clip)
            await ready(turn)
        await pilot.pause(0.3)
        save(app, path)
    app.session.close()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("out", type=Path)
    options.add_argument("--size", default="120x40")
    options.add_argument("--clips", default="2,6,1")
    options.add_argument("--theme", default=DARK)
    asked = options.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    clips = [int(clip) for clip in asked.clips.split(",")]
    asyncio.run(take(asked.out, (columns, rows), clips, asked.theme))


if __name__ == "__main__":
    main()
