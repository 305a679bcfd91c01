"""The errors that a user can understand, each with one sentence and a hint.

The module that calls a library turns its exceptions into one of these. Three places catch them: the
command line, the engine around each turn, the engine around the start.
"""

import re
import shlex
import sys

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]")
"""Matches C0 and C1 controls except tab and newline, lone surrogates, line separators, bidi
overrides.

U+200B to U+200F stay: emoji and Indic scripts need the joiners, and Arabic and Hebrew need the
marks. None of them reorders the text around it, as the overrides and isolates do."""


def strip_control_characters(text: str) -> str:
    """Return `text` without characters that control a terminal or reorder its text.

    Used for every text from outside: of a server, a model, a device or a file name.
    """
    return _CONTROL.sub("", text)


def one_line(text: str) -> str:
    """Return `text` on one line without control characters, so that it cannot fake a line."""
    return re.sub(r"\s*[\r\n]\s*", " ", strip_control_characters(text.replace("\r", "\n"))).strip()


def first_line(error: BaseException) -> str:
    """Return the first line of a library's `error` without its full stop, or its name."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


class VoxtuiError(Exception):
    """A failure the user can understand; `hint` is a command or a config key that helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = one_line(message)
        self.hint = one_line(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class ConfigError(VoxtuiError):
    """A config file, an option or a variable is invalid; the message starts with the place."""


class InputError(VoxtuiError):
    """A file or text handed to voxtui cannot be used."""


class DeviceError(VoxtuiError):
    """A microphone or speaker is missing, busy, lost or does not support the format."""


class ModelError(VoxtuiError):
    """A model cannot be found, fetched, loaded or run."""


class ModelMissing(ModelError):
    """A model is not on this machine; `size` bytes would be fetched."""

    def __init__(self, message: str, hint: str, size: int) -> None:
        super().__init__(message, hint)
        self.size = size


class NoGpu(ModelError):
    """This machine has no GPU for the model. An error only if the user asked for one."""


class ModelLost(ModelError):
    """A model has stopped working until a restart."""


class UnspokenLanguage(ModelError):
    """The voice cannot speak the language of an answer, which is then text only."""


class ForeignSpeech(ModelError):
    """An utterance is in a language that the recogniser does not know. Its words are invented."""

    def __init__(self) -> None:
        super().__init__(
            "That did not sound like English, the only language of the embedded recogniser.",
            "For another one: `voxtui models fetch whisper-base`, then brain.language or Ctrl+P.",
        )


class RemoteError(ModelError):
    """A server that runs a model fails, refuses or cannot be reached."""


class RestartNeeded(VoxtuiError):
    """This process can load no model any more; the next start leaves the cause out."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "Start voxtui again; it will do without it.")


def how_to_install(extra: str) -> str:
    """Return the hint that installs an extra of voxtui from a clone."""
    return (
        f"In a clone of voxtui: make setup EXTRAS={extra}; in an environment of your own: "
        f"{shlex.quote(sys.executable)} -m pip install '.[{extra}]'"
    )
