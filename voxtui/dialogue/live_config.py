"""The configuration in force, in the one place that everybody of an engine reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from voxtui.settings.schema import Config


class LiveConfig:
    """Holds the configuration in force. The engine's thread replaces it; any thread reads it."""

    def __init__(self, config: Config) -> None:
        self.current = config
