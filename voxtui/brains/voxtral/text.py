"""Text to tokens and back, a token at a time."""

from __future__ import annotations

import codecs
from functools import lru_cache
from pathlib import Path
from typing import Any

from voxtui.errors import strip_control_characters


class Tekken:
    """The tokenizer of a checkpoint directory. Raises OSError, ValueError."""

    def __init__(self, directory: Path) -> None:
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        path = directory / "tekken.json"
        if not path.is_file():
            raise FileNotFoundError(f"{path.name} is missing")
        self._tekkenizer: Any = Tekkenizer.from_file(path)
        self.encode = lru_cache(64)(self._encode)

    def _encode(self, text: str) -> list[int]:
        """Encode `text`, which never becomes a control token."""
        return self._tekkenizer.encode(text, bos=False, eos=False)

    def piece(self, token: int) -> bytes:
        """Return the bytes of `token`; none for a control token."""
        return self._tekkenizer.id_to_byte_piece(token)


class Detokenizer:
    """Turns the tokens of one reply into text at once, but never a part of a character.

    Removes control characters, which a terminal would obey.
    """

    def __init__(self, tekken: Tekken) -> None:
        self._tekken = tekken
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, token: int) -> str:
        return strip_control_characters(self._decoder.decode(self._tekken.piece(token)))

    def rest(self) -> str:
        """Return the replacement for bytes that never became a character."""
        return self._decoder.decode(b"", final=True)
