from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import SECONDS
from voxtui.dialogue.chunker import Chunker
from voxtui.settings.schema import StreamingConfig


def chunks(tokens: list[str], **settings: int) -> list[str]:
    out: list[str] = []
    chunker = Chunker(StreamingConfig(**{"flush_ms": 5000, **settings}), out.append)
    for token in tokens:
        chunker.add(token)
    chunker.close()
    return out


def test_with_one_word_nothing_visible_waits() -> None:
    out: list[str] = []
    chunker = Chunker(StreamingConfig(), out.append)
    chunker.add("H")
    assert out == ["H"]
    chunker.add("ello")
    assert out == ["H", "ello"]
    chunker.close()


def test_a_burst_is_let_out_at_most_max_words_at_a_time() -> None:
    assert chunks(["one two three four five"]) == ["one two", " three four", " five"]


def test_fewer_than_min_words_are_gathered() -> None:
    assert chunks(["a", " b", " c", " d"], min_words=3, max_words=4) == ["a b c", " d"]


def test_a_short_rest_goes_out_by_itself_after_flush_ms() -> None:
    out: list[str] = []
    came = threading.Event()

    def take(text: str) -> None:
        out.append(text)
        came.set()

    chunker = Chunker(StreamingConfig(min_words=5, max_words=5, flush_ms=1), take)
    chunker.add("only this")
    assert came.wait(SECONDS) and out == ["only this"]
    chunker.close()
    assert out == ["only this"]


@given(st.lists(st.text(alphabet="ab \n", max_size=5)), st.integers(1, 4), st.integers(0, 3))
def test_no_text_is_lost_or_changed(tokens: list[str], least: int, more: int) -> None:
    out = chunks(tokens, min_words=least, max_words=least + more)
    assert "".join(out) == "".join(tokens)
    assert all(len(piece.split()) <= least + more for piece in out)
