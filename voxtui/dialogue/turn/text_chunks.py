"""Group streamed text into pieces for a screen, a pipe or a network connection."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from voxtui.settings.schema import StreamingConfig

_VISIBLE = re.compile(r"\S")


class Chunker:
    """Collects the text of tokens and emits it as the `[streaming]` settings say.

    Once the buffer holds `min_words` words, it emits at most `max_words` at a time. A word counts
    from its first visible character. It emits a shorter buffer `flush_ms` after its oldest token,
    or at the end. With `min_words = 1` no visible character waits.

    The work is proportional to the text. Once `cancelled` is set, the buffer is emitted in one
    piece, because cutting a token of 100,000 characters into words would delay the cancel.

    One thread calls `add`, and `flush` at the end; a timer thread may call `flush` before.
    """

    def __init__(
        self,
        config: StreamingConfig,
        emit: Callable[[str], object],
        cancelled: threading.Event | None = None,
    ) -> None:
        self._config = config
        self._emit = emit
        self._cancelled = cancelled or threading.Event()
        self._words_at_most = re.compile(rf"(?:\s*+\S++){{1,{config.max_words}}}")
        self._lock = threading.Lock()
        self._waiting = ""
        self._timer: threading.Timer | None = None

    def add(self, text: str) -> None:
        with self._lock:
            self._waiting += text
            self._emit_words(self._config.min_words)
            if self._waiting and self._timer is None:
                self._timer = threading.Timer(self._config.flush_ms / 1000, self.flush)
                self._timer.name, self._timer.daemon = "voxtui-flush", True
                self._timer.start()

    def flush(self) -> None:
        with self._lock:
            self._emit_words(0)

    def _emit_words(self, least: int) -> None:
        """Emit pieces of up to `max_words` words while the buffer has at least `least` words."""
        text, start = self._waiting, 0
        words = len(text.split())
        while start < len(text) and words >= least:
            end = self._end(text, start)
            self._emit(text[start:end])
            words, start = max(0, words - self._config.max_words), end
        self._waiting = text[start:]
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, text: str, start: int) -> int:
        """Return the end of the piece at `start`, including white space at the end of the text."""
        piece = self._words_at_most.match(text, start)
        if piece is None or self._cancelled.is_set():
            return len(text)
        return piece.end() if _VISIBLE.search(text, piece.end()) else len(text)
