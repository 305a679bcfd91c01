from __future__ import annotations

import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import SECONDS
from voxtui.dialogue.turn.text_chunks import Chunker
from voxtui.settings.schema import StreamingConfig


def chunks(tokens: list[str], **settings: int) -> list[str]:
    out: list[str] = []
    chunker = Chunker(StreamingConfig(**{"flush_ms": 5000, **settings}), out.append)
    for token in tokens:
        chunker.add(token)
    chunker.flush()
    return out


def test_with_min_words_1_no_visible_character_waits() -> None:
    out: list[str] = []
    chunker = Chunker(StreamingConfig(), out.append)
    chunker.add("H")
    assert out == ["H"]
    chunker.add("ello")
    assert out == ["H", "ello"]
    chunker.flush()


def test_a_burst_is_emitted_at_most_max_words_at_a_time() -> None:
    assert chunks(["one two three four five"]) == ["one two", " three four", " five"]


def test_fewer_than_min_words_are_gathered() -> None:
    assert chunks(["a", " b", " c", " d"], min_words=3, max_words=4) == ["a b c", " d"]


def test_a_short_rest_is_emitted_after_flush_ms() -> None:
    out: list[str] = []
    came = threading.Event()

    def emit(text: str) -> None:
        out.append(text)
        came.set()

    chunker = Chunker(StreamingConfig(min_words=5, max_words=5, flush_ms=1), emit)
    chunker.add("only this")
    assert came.wait(SECONDS) and out == ["only this"]
    chunker.flush()
    assert out == ["only this"]


@given(st.lists(st.text(alphabet="ab \n", max_size=5)), st.integers(1, 4), st.integers(0, 3))
def test_no_text_is_lost_or_changed(tokens: list[str], least: int, more: int) -> None:
    out = chunks(tokens, min_words=least, max_words=least + more)
    assert "".join(out) == "".join(tokens)
    assert all(len(piece.split()) <= least + more for piece in out)


def test_the_work_is_in_proportion_to_one_long_token() -> None:
    begun = time.thread_time()
    pieces = chunks(["word " * 40_000])
    assert "".join(pieces) == "word " * 40_000
    assert {len(piece.split()) for piece in pieces} == {2}
    assert time.thread_time() - begun < 5.0  # 0.1 s if linear, 12 s if every word scans the rest


def test_after_a_cancel_the_rest_of_a_long_token_is_one_piece() -> None:
    out: list[str] = []
    cancelled = threading.Event()

    def emit(text: str) -> None:
        out.append(text)
        if len(out) == 3:
            cancelled.set()

    chunker = Chunker(StreamingConfig(), emit, cancelled)
    chunker.add("a word " * 1000)
    chunker.flush()
    assert len(out) == 4 and "".join(out) == "a word " * 1000
