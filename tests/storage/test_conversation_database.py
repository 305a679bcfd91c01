"""The file of the stored conversations: found, erased, and attacked."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import pytest

from voxtui.errors import InputError
from voxtui.storage.conversation_database import (
    VERSION,
    Conversations,
    Exchange,
    Summary,
    as_markdown,
)

WRITER = """
import sys
from pathlib import Path
from voxtui.storage.conversation_database import Conversations, Exchange
conversations, number = Conversations(Path(sys.argv[1])), None
for i in range(100_000):
    number, _ = conversations.store(number, [Exchange(f"word{i}", "x" * 5000, at=float(i))], {}, ())
    print(i, flush=True)
"""


@pytest.fixture
def conversations(tmp_path: Path) -> Conversations:
    return Conversations(tmp_path / "data" / "history.db")


def say(conversations: Conversations, *words: str, at: float = 1.0) -> int:
    exchanges = [Exchange(text, f"Answer to {text}.", at=at + i) for i, text in enumerate(words)]
    return conversations.store(None, exchanges, {}, ())[0]


def titles(conversations: Conversations, words: str = "") -> list[str]:
    return [summary.title for summary in conversations.newest(words)]


def test_the_newest_conversation_is_the_first(conversations: Conversations) -> None:
    assert conversations.newest() == [] and conversations.count() == 0
    assert not conversations.file.exists()
    first = say(conversations, "Plan Saturday evening", "With Anna")
    second = say(conversations, "Why is the sky blue?", at=5.0)
    conversations.store(first, [Exchange("And Sunday?", "Rest.", at=9.0)], {}, ())
    assert conversations.newest() == [
        Summary(first, "Plan Saturday evening", 9.0, 3),
        Summary(second, "Why is the sky blue?", 5.0, 1),
    ]
    assert conversations.newest(most=1)[0].id == first
    assert stat.S_IMODE(conversations.file.stat().st_mode) == 0o600
    assert [e.you for e in conversations.read(first).values()] == [
        "Plan Saturday evening", "With Anna", "And Sunday?",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "count"),
    [("ann", 1), ("ANNA saturday", 1), ("saturday sky", 0), ("blue", 1), ("answer", 2),
     ("muller", 1), ('"', 0), ("100%", 0), ("*", 0), ("AND OR NOT", 0), ("(", 0), ("_", 0)],
)  # fmt: skip
def test_words_are_found_by_their_beginning(conversations, words: str, count: int) -> None:
    say(conversations, "Plan Saturday evening", "With Anna Müller")
    say(conversations, "Why is the sky blue?")
    assert len(conversations.newest(words)) == count


def test_a_title_is_the_first_words_or_what_the_user_chose(conversations) -> None:
    number = say(conversations, "one\n two " + "three " * 20)
    assert (
        titles(conversations)[0].startswith("one two three") and len(titles(conversations)[0]) < 62
    )
    conversations.rename(number, " The \x1b[2Jsea ")
    conversations.store(number, [Exchange("More", "Yes.", at=3.0)], {}, ())
    assert titles(conversations, "sea") == ["The [2Jsea"]


def test_a_deleted_conversation_comes_back_or_leaves_the_file(conversations) -> None:
    kept, secret = say(conversations, "harmless"), say(conversations, "zanzibarsecret " * 500)
    conversations.delete(secret, now=100.0)
    assert titles(conversations) == ["harmless"] and titles(conversations, "zanz") == []
    with pytest.raises(InputError, match="`voxtui history` lists them"):
        conversations.read(secret)
    conversations.restore(secret)
    assert len(titles(conversations)) == 2
    conversations.delete(secret, now=100.0)
    conversations.erase_deleted(before=99.0)
    assert b"zanzibar" in conversations.file.read_bytes()
    conversations.erase_deleted(before=100.0)
    assert b"zanzibar" not in conversations.file.read_bytes()
    assert [s.id for s in conversations.newest("harm")] == [kept]


def test_all_is_forgotten_on_the_disk_too(conversations) -> None:
    for i in range(50):
        say(conversations, *(f"zanzibarsecret{i}x{j}" for j in range(20)))
    conversations.forget_all()
    assert conversations.newest() == [] and conversations.newest("zanz") == []
    assert b"zanzibar" not in conversations.file.read_bytes()
    assert [file.name for file in conversations.file.parent.iterdir()] == ["history.db"]
    say(conversations, "again")
    assert titles(conversations) == ["again"]


def test_a_conversation_that_was_deleted_elsewhere_goes_on_as_another(conversations) -> None:
    number = say(conversations, "the old words")
    conversations.forget_all()
    other, _ = conversations.store(number, [Exchange("new words", "Yes.", at=9.0)], {}, ())
    assert other != number
    assert [e.you for e in conversations.read(other).values()] == ["new words"]


def test_a_change_and_a_removal_reach_the_index(conversations) -> None:
    number, (first, second) = conversations.store(
        None, [Exchange("speach", "A.", at=1.0), Exchange("wrong", "B.", at=2.0)], {}, ()
    )
    conversations.store(number, (), {first: Exchange("speech", "A.")}, [second])
    assert titles(conversations, "speach") == titles(conversations, "wrong") == []
    assert titles(conversations, "speech") == ["speech"]
    assert conversations.newest()[0].turns == 1
    conversations.store(number, (), {}, [first])
    assert conversations.newest() == []


# Attacks.


def test_a_process_that_is_killed_while_it_writes_loses_no_exchange(conversations) -> None:
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(conversations.file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                if int(line) == 20:
                    writer.send_signal(signal.SIGKILL)
            stored = int(line) + 1
        newest = conversations.newest()[0]
        assert len(conversations.read(newest.id)) in (stored, stored + 1)
        assert len(conversations.newest(f"word{stored - 1}")) >= 1
        with sqlite3.connect(conversations.file) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            database.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        database.close()


def test_two_windows_write_at_once_and_both_are_kept(conversations) -> None:
    number = say(conversations, "begin")

    def write(who: int) -> None:
        own = Conversations(conversations.file)
        for i in range(20):
            own.store(number, [Exchange(f"who{who} {i}", "Yes.", at=float(i))], {}, ())

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    assert conversations.newest()[0].turns == 61
    assert len({e.you for e in conversations.read(number).values()}) == 61


def test_the_file_of_a_newer_version_is_left_alone(conversations) -> None:
    say(conversations, "precious")
    with sqlite3.connect(conversations.file) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    before = conversations.file.read_bytes()
    for act in (
        conversations.newest, conversations.forget_all, lambda: say(conversations, "more"),
        lambda: conversations.read(1), lambda: conversations.erase_deleted(time.time()),
    ):  # fmt: skip
        with pytest.raises(InputError, match="a newer voxtui wrote it"):
            act()
    assert conversations.file.read_bytes() == before


@pytest.mark.parametrize("content", [b"{}" * 5000, b"SQLite format 3\0" + b"\xff" * 9000])
def test_a_damaged_file_is_named_and_left_alone(conversations, content: bytes) -> None:
    conversations.file.parent.mkdir()
    conversations.file.write_bytes(content)
    for act in (conversations.newest, lambda: say(conversations, "more")):
        with pytest.raises(InputError, match="Move it away, and a new one begins"):
            act()
    assert conversations.file.read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE conversation SET changed = 9e99, began = 'x'",
        "UPDATE conversation SET changed = 'later'",
        "UPDATE exchange SET you = x'ff'",
        "UPDATE exchange SET you = CAST(x'ff' AS TEXT)",
        "UPDATE exchange SET at = 1e300",
    ],
)
def test_a_value_that_voxtui_never_writes_is_damage(conversations, change: str) -> None:
    number = say(conversations, "hello")
    with closing(sqlite3.connect(conversations.file)) as database:
        database.executescript("DROP TRIGGER changed;" + change)
    with pytest.raises(InputError, match=r"damaged|Could not decode"):
        conversations.newest()
        conversations.read(number)


def test_a_damaged_byte_anywhere_is_one_sentence(conversations) -> None:
    say(conversations, "hello")
    whole, chance = conversations.file.read_bytes(), random.Random(1)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(30):
            damaged[chance.randrange(6000)] = chance.randrange(256)
        conversations.file.write_bytes(damaged)
        for act in (conversations.newest, lambda: say(conversations, "more")):
            with suppress(InputError):
                act()


def test_a_search_for_broken_text_or_a_number_beyond_all_finds_nothing(conversations) -> None:
    say(conversations, "hello")
    assert len(conversations.newest("hell\udcff")) == 1
    for act in (conversations.read, lambda number: conversations.delete(number, 1.0)):
        with pytest.raises(InputError, match="no such conversation"):
            act(2**63)


def test_without_a_file_there_is_no_conversation(conversations) -> None:
    for act in (conversations.read, lambda number: conversations.delete(number, 1.0)):
        with pytest.raises(InputError, match="There is no conversation 3"):
            act(3)
    assert not conversations.file.exists()


def test_a_full_disk_loses_nothing_that_was_kept(conversations) -> None:
    number = say(conversations, "precious")
    size = conversations.file.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, hard))
    try:
        with pytest.raises(InputError, match=r"(disk is|disk may be) full"):
            for _ in range(100):
                conversations.store(number, [Exchange("x" * 9000, "y", at=2.0)], {}, ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert titles(conversations, "precious") == ["precious"]
    conversations.store(number, [Exchange("there is room again", "Yes.", at=3.0)], {}, ())
    assert titles(conversations, "room") == ["precious"]


def test_a_link_is_not_written_through(conversations, tmp_path: Path) -> None:
    conversations.file.parent.mkdir()
    conversations.file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"history\.db"):
        say(conversations, "more")
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "elsewhere").write_bytes(b"")
    with pytest.raises(InputError, match=r"history\.db: It is not a regular file"):
        say(conversations, "more")
    assert not (tmp_path / "elsewhere").read_bytes()


def test_opening_the_file_leaves_the_locks_of_other_threads(conversations, monkeypatch) -> None:
    say(conversations, "first")
    command = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1], 0.1, isolation_level=None);"
        "file.execute('BEGIN IMMEDIATE')"
    )
    with sqlite3.connect(conversations.file, isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("voxtui.storage.conversation_database.BUSY_SECONDS", 0.1)
        with pytest.raises(InputError, match="another program is using it"):
            say(conversations, "second")
        other = subprocess.run(
            [sys.executable, "-c", command, conversations.file], capture_output=True, check=False
        )
        assert b"locked" in other.stderr
    writer.close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="File exists"):
        say(Conversations(tmp_path / "file" / "history.db"), "more")


@pytest.mark.skipif(os.getuid() != 0, reason="changes its user")
def test_a_read_only_folder_can_be_read_and_says_why_it_keeps_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        conversations = Conversations(Path(folder) / "history.db")
        say(conversations, "precious")
        conversations.file.chmod(0o644)
        Path(folder).chmod(0o755)
        os.seteuid(65534)  # a user who may write neither
        try:
            assert titles(conversations, "prec") == ["precious"]
            with pytest.raises(InputError, match=r"history\.db: it cannot be written there"):
                say(conversations, "more")
        finally:
            os.seteuid(0)


def test_the_conversation_of_the_first_version_is_taken_over(conversations) -> None:
    conversations.file.parent.mkdir()
    old = conversations.file.with_name("conversation.json")
    old.write_text('[{"you": "a text", "vox": "Read.", "given": true}, {"you": "Hi", "vox": "Yo"}]')
    assert titles(conversations) == ["Hi"]
    assert not old.exists()  # else its words would outlive their conversation
    say(conversations, "new", at=time.time() + 9)
    assert titles(conversations) == ["new", "Hi"]
    assert [e.attached for e in conversations.read(conversations.newest("hi")[0].id).values()] == [
        True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"[{}]", b'"', b"\xff"])
def test_a_damaged_conversation_of_the_first_version_is_left_alone(conversations, data) -> None:
    conversations.file.parent.mkdir()
    old = conversations.file.with_name("conversation.json")
    old.write_bytes(data)
    assert titles(conversations) == []
    say(conversations, "new")
    assert (titles(conversations), old.read_bytes()) == (["new"], data)


def test_the_conversation_of_the_first_version_is_forgotten_before_it_was_taken_over(
    conversations,
) -> None:
    conversations.file.parent.mkdir()
    old = conversations.file.with_name("conversation.json")
    old.write_text('[{"you": "Hi", "vox": "Yo"}]')
    conversations.forget_all()
    assert not old.exists()


def test_dates_are_short_where_they_are_near() -> None:
    now = datetime(2026, 11, 24, 15, 0)

    def when(*date: int) -> str:
        return Summary(1, "", datetime(*date).timestamp(), 1).when(now)  # type: ignore[arg-type]

    assert when(2026, 11, 24, 9, 5) == "today 09:05"
    assert when(2026, 11, 23, 23, 59) == "yesterday 23:59"
    assert when(2026, 11, 20, 8, 0) == "Friday 08:00"
    assert when(2026, 3, 2) == "2 March"
    assert when(2025, 3, 2) == "2025-03-02"


def test_an_export_names_times_and_what_answered() -> None:
    exchange = Exchange(
        "Hello", " Hi.", at=datetime(2026, 11, 24, 9, 5).timestamp(), answered_by="embedded"
    )
    text = as_markdown(Summary(1, "Hello", 0.0, 1), [exchange])
    assert text == "# Hello\n\n**You** (2026-11-24 09:05): Hello\n\n**Vox**, embedded: Hi.\n"


@pytest.mark.slow
def test_ten_thousand_conversations_are_listed_and_searched_at_once(conversations) -> None:
    """The measured times stand in docs/benchmarks; a hang or a scan of all words fails here."""
    from benchmarks.history import fill, measure

    fill(conversations, 10_000)
    assert max(measure(conversations).values()) < 2.0
