"""How much text is let out at a time, to a screen, a pipe or a wire."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from voxtui.settings.schema import StreamingConfig


class Chunker:
    """Collects token text and emits it as `[streaming]` says.

    Once the buffer holds `min_words` words it is emitted, at most `max_words` at a time; a word
    counts from its first visible character. A shorter buffer goes out `flush_ms` after its oldest
    token, or at the end. With `min_words = 1` nothing visible ever waits. `add` and `close` are
    called by one thread; `emit` may also be called by a timer's.
    """

    def __init__(self, config: StreamingConfig, emit: Callable[[str], object]) -> None:
        self._config = config
        self._emit = emit
        self._lock = threading.Lock()
        self._text = ""
        self._timer: threading.Timer | None = None

    def add(self, text: str) -> None:
        """The text of the next token, which may be empty or hold half a word."""
        with self._lock:
            self._text += text
            while _words(self._text) >= self._config.min_words:
                self._let_out(_cut(self._text, self._config.max_words))
            if self._text and self._timer is None:
                self._timer = threading.Timer(self._config.flush_ms / 1000, self._flush)
                self._timer.name, self._timer.daemon = "voxtui-flush", True
                self._timer.start()

    def close(self) -> None:
        """Emit what is left, and stop waiting."""
        self._flush()

    def _flush(self) -> None:
        with self._lock:
            while self._text:
                self._let_out(_cut(self._text, self._config.max_words))
            self._stop_timer()

    def _let_out(self, end: int) -> None:
        piece, self._text = self._text[:end], self._text[end:]
        if not self._text:
            self._stop_timer()
        self._emit(piece)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _words(text: str) -> int:
    return len(text.split())


def _cut(text: str, words: int) -> int:
    """Where the first `words` end; what follows is taken along if it is white space only."""
    found = re.match(rf"(?:\s*+\S++){{{words}}}", text)
    return found.end() if found and text[found.end() :].strip() else len(text)
