"""The configuration in use, in the one place that all parts of an engine read."""

from __future__ import annotations

from dataclasses import dataclass

from voxtui.settings.schema import Config


@dataclass(slots=True)
class LiveConfig:
    """Holds the configuration in use. The engine's thread replaces it; any thread reads it."""

    current: Config
    loaded_brain: str = ""
    """the name of the loaded brain; empty before one is loaded"""

    @property
    def brain_name(self) -> str:
        return self.loaded_brain or self.current.brain.name
