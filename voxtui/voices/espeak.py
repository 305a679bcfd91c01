"""Phonemes for Kokoro in languages other than English, from the user's own espeak-ng program.

The program is under the GPL. voxtui runs it, and neither imports nor ships any part of it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from voxtui.errors import ModelError

PROGRAM = "espeak-ng"

INSTALL = (
    "Install it with your package manager, for instance: sudo apt install espeak-ng, or on macOS: "
    "brew install espeak-ng."
)

VOICES = {"es": "es", "fr": "fr-fr", "hi": "hi", "it": "it", "pt": "pt-br"}
"""The name of each language in espeak-ng, as in Kokoro's training."""

TIMEOUT_SECONDS = 2.0
"""Timeout of a call, which takes about 10 ms."""

ENVIRONMENT = ("ESPEAK_DATA_PATH", "HOME", "LD_LIBRARY_PATH", "PATH")
"""Environment variables that the process gets. Any other one may be a secret."""

SIGNS = {
    "a^ɪ": "I", "a^ʊ": "W", "d^z": "ʣ", "d^ʒ": "ʤ", "e^ɪ": "A", "o^ʊ": "O", "s^s": "S", "t^s": "ʦ",
    "t^ʃ": "ʧ", "ɔ^ɪ": "Y", "ə^ʊ": "Q",
}  # fmt: skip
"""Kokoro's single signs for sounds that espeak-ng writes as two with a tie."""

_QUOTES = str.maketrans("«»[]", "“”  ")

_PUNCTUATION = re.compile(r"((?:\s*[;:,.!?¡¿—…\"“”()](?=\s|$|[;:,.!?—…\"“”()])|[¡¿\"“(])+\s*)")
"""Matches punctuation that Kokoro knows at the edge of a word, unlike the comma in 3,14."""

_OTHER_LANGUAGE = re.compile(r"\([a-z^-]+\)")
"""Matches espeak-ng's marks around a word that it reads in another language."""


def find_program() -> str:
    path = shutil.which(PROGRAM)
    if path is None:
        raise ModelError(f"The program {PROGRAM} is not installed.", INSTALL)
    return path


class Espeak:
    """Turns text into phonemes of one language. Used by one thread.

    Each process reads one text. The process of the next call is started ahead and waits for its
    text, so a call does not wait for the start.
    """

    def __init__(self, language: str) -> None:
        self._command = [find_program(), "-q", "-b", "1", "--ipa=3", "--tie=^"]
        self._command += ["-v", VOICES[language]]
        self._waiting: subprocess.Popen[str] | None = None
        self.prepare()

    def prepare(self) -> None:
        """Start the process of the next call, unless it already waits. Raises ModelError."""
        if self._waiting is not None:
            return
        try:
            self._waiting = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # so that it gets no Ctrl-C
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise ModelError(f"{PROGRAM} cannot be started: {error.strerror}.", INSTALL) from error

    def __call__(self, text: str) -> str:
        """Return the phonemes of `text` in Kokoro's signs. Raises ModelError."""
        words, signs = _split(text)
        if not any(words):
            return ""
        self.prepare()
        process, self._waiting = self._waiting, None
        assert process is not None
        try:
            # One line a piece; an empty line between them is answered by an empty line.
            spoken, _ = process.communicate(
                "\n\n".join(filter(None, words)) + "\n", TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise ModelError(f"{PROGRAM} took more than {TIMEOUT_SECONDS:g} s.") from None
        if process.returncode:
            raise ModelError(f"{PROGRAM} failed (exit status {process.returncode}).")
        return join(words, signs, spoken)

    def close(self) -> None:
        process, self._waiting = self._waiting, None
        if process is not None:
            process.kill()
            process.communicate()


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the pieces of `text` (empty without a letter), and the punctuation around them."""
    parts = _PUNCTUATION.split(" ".join(text.translate(_QUOTES).split()))
    words = [piece if any(map(str.isalnum, piece)) else "" for piece in parts[::2]]
    return words, ["", *parts[1::2], ""]


def join(words: list[str], signs: list[str], spoken: str) -> str:
    """Return the phonemes `spoken` with the `signs` around each of `words`, as Kokoro writes them.

    If the numbers of groups and words differ, the signs between the pieces are lost.
    """
    groups = [" ".join(group.split()) for group in spoken.strip("\n").split("\n\n")]
    if len(groups) != sum(map(bool, words)):
        groups, last = [" ".join(spoken.split())], next(filter(None, reversed(signs)), "")
        words, signs = ["all"], ["", last]
    rest = iter(groups)
    text = "".join(
        sign + (next(rest) if word else "") for sign, word in zip(signs, [*words, ""], strict=True)
    )
    text = _OTHER_LANGUAGE.sub("", text)
    for tied, sign in SIGNS.items():
        text = text.replace(tied, sign)
    text = " ".join(text.replace("^", "").replace("-", "").split())
    return re.sub(r" (?=[;:,.!?”)])|(?<=[“(¿¡]) ", "", text)
