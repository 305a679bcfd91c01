"""Recognise a name that microWakeWord has a model of, by the extra `wake-word`."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from importlib import import_module
from typing import Any

from voxtui.dialogue.data import Frame, as_pcm
from voxtui.errors import ModelError, how_to_install

NAMES = ("alexa", "hey jarvis", "hey mycroft", "okay nabu")


def has_model(name: str) -> bool:
    return name.lower() in NAMES


def is_installed() -> bool:
    return importlib.util.find_spec("pymicro_wakeword") is not None


class MicroWakeWord:
    """A name by `pymicro-wakeword`, with its own limits. Loads on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def heard(self, frame: Frame) -> bool:
        detector, features = self._models
        sound = features.process_streaming(as_pcm(frame.samples))
        verdicts = [detector.process_streaming(window) for window in sound]
        if any(verdicts):
            detector.reset()
        return any(verdicts)

    @cached_property
    def _models(self) -> tuple[Any, Any]:
        try:
            package: Any = import_module("pymicro_wakeword")
            model = package.Model(self._name.lower().replace(" ", "_"))
            return package.MicroWakeWord.from_builtin(model), package.MicroWakeWordFeatures()
        except (ImportError, OSError, ValueError) as error:
            raise ModelError(
                f"pymicro-wakeword cannot listen for {self._name!r}: {error}",
                how_to_install("wake-word"),
            ) from error
