"""The instruction that every brain gives its model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the benchmark of random weights runs without msgspec
    from voxtui.settings.schema import Config

SHORT = " Answer with one short sentence of at most fifteen words."


def instruction(config: Config) -> str:
    """Return the user's instruction, with a request for one sentence where the preset wants it."""
    short = SHORT if config.generation.sampling().one_sentence else ""
    return f"{config.brain.instruction}{short}".strip()
