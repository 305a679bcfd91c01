"""The configuration in force, in the one place that everybody of an engine reads."""

from __future__ import annotations

from dataclasses import dataclass

from voxtui.settings.schema import Config


@dataclass(slots=True)
class LiveConfig:
    """Holds the configuration in force. The engine's thread replaces it; any thread reads it."""

    current: Config
    loaded_brain: str = ""
    """the short name of the brain that is loaded; empty: none"""

    @property
    def brain_name(self) -> str:
        return self.loaded_brain or self.current.brain.name
