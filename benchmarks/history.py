"""Measure the list and the search of many stored conversations: python -m benchmarks.history."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from voxtui.storage.conversation_database import SPAN, Conversations, Exchange

COUNT, EXCHANGES = 10_000, 8
ROUNDS = 9
SHOWN = 200
"""Number of conversations that the window shows at once."""

SEARCHES = ("", "t", "th", "the", "the w", "word17", "word17 word901", "word4999x", "nothing")


def fill(conversations: Conversations, count: int) -> None:
    """Store `count` conversations with the word frequencies of a language."""
    chance = random.Random(1)
    vocabulary = ["the", "to", "what", "that", *(f"word{i}" for i in range(5000))]
    weights = [1 / (i + 1) for i in range(len(vocabulary))]

    def words(n: int) -> str:
        return " ".join(chance.choices(vocabulary, weights, k=n))

    now = time.time()
    with conversations._opened(writes=True):  # noqa: SLF001 - makes the file
        pass
    import sqlite3

    with sqlite3.connect(conversations.file) as database:
        for i in range(1, count + 1):
            at = now - 3600 * (count - i)
            database.execute(
                "INSERT INTO conversation (title, began, changed, turns) VALUES (?, ?, ?, ?)",
                (words(8), at, at, EXCHANGES),
            )
            exchanges = (Exchange(words(10), words(25), at=at) for _ in range(EXCHANGES))
            database.executemany(
                "INSERT INTO exchange (id, at, you, vox, answered_by, clock, attached)"
                " VALUES (?, ?, ?, ?, 'embedded', '', 0)",
                [(i * SPAN + n, one.at, one.you, one.vox) for n, one in enumerate(exchanges)],
            )
    database.close()


def measure(conversations: Conversations) -> Mapping[str, float]:
    """Return the median seconds of each search."""
    seconds: dict[str, float] = {}
    for search in SEARCHES:
        runs: list[float] = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            conversations.newest(search, SHOWN)
            runs.append(time.perf_counter() - begun)
        seconds[search] = statistics.median(runs)
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        conversations = Conversations(Path(folder) / "history.db")
        fill(conversations, COUNT)
        size = conversations.file.stat().st_size / 1e6
        print(f"{COUNT:,} conversations of {EXCHANGES} turns, {size:.0f} MB")
        for search, seconds in measure(conversations).items():
            print(f"{search or '(the list)':16} {seconds * 1000:6.1f} ms")
        begun = time.perf_counter()
        conversations.store(17, [Exchange("one more", "Yes.", at=time.time())], {}, ())
        print(f"{'(one more turn)':16} {(time.perf_counter() - begun) * 1000:6.1f} ms")
        conversations.delete(18, time.time())
        begun = time.perf_counter()
        conversations.erase_deleted(time.time())
        print(f"{'(erase one)':16} {(time.perf_counter() - begun) * 1000:6.1f} ms")


if __name__ == "__main__":
    main()
