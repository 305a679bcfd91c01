"""Draw every state of `tests/ui/states.py` as a picture, to be looked at.

python -m tools.states DIRECTORY [--size 80x24] [--only NAME,NAME] [--theme NAME]
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from msgspec import structs

from tests.ui.states import STATES, Clock, brought_about, frozen, make_app
from tools.screenshot import save


async def draw(name: str, size: tuple[int, int], path: Path, theme: str) -> None:
    act, config = STATES[name]
    if theme:
        config = structs.replace(config, ui=structs.replace(config.ui, theme=theme))
    clock, app = Clock(), make_app(config)
    with frozen(clock):
        async with app.run_test(size=size, notifications=True) as pilot:
            await brought_about(pilot, act, clock)
            save(app, path)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("directory", type=Path)
    options.add_argument("--size", default="80x24")
    options.add_argument("--only", default=",".join(STATES))
    options.add_argument("--theme", default="", help="instead of that of the state")
    asked = options.parse_args()
    asked.directory.mkdir(parents=True, exist_ok=True)
    columns, rows = map(int, asked.size.split("x"))
    for name in asked.only.split(","):
        path = asked.directory / f"{name}-{asked.size}.png"
        asyncio.run(draw(name, (columns, rows), path, asked.theme))


if __name__ == "__main__":
    main()
