"""The configuration in force, in the one place that everybody of an engine reads."""

from __future__ import annotations

from voxtui.settings.schema import Config


class LiveConfig:
    """Holds the configuration in force. The engine's thread replaces it; any thread reads it."""

    def __init__(self, config: Config, loaded_brain: str = "") -> None:
        self.current = config
        self.loaded_brain = loaded_brain
        """The short name of the brain that is loaded; empty: none."""

    @property
    def brain_name(self) -> str:
        return self.loaded_brain or self.current.brain.name
