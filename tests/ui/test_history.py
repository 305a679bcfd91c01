"""The list of stored conversations on the screen."""

from __future__ import annotations

import sqlite3
from contextlib import asynccontextmanager, closing

import pytest
from textual import events
from textual.widgets import Input, OptionList

from tests.fakes import ScriptedEngine
from tests.ui.conftest import screen, until
from voxtui.settings.schema import Config, SessionConfig
from voxtui.settings.sources import load_config
from voxtui.storage.conversation_database import Conversations, Exchange, history_file
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.history.history_screen import HistoryScreen
from voxtui.ui.history.question import Question

KEEPS = Config(session=SessionConfig(keep=True))


@asynccontextmanager
async def writing(**options):
    async with screen(**options) as s:
        try:
            yield s
        finally:
            s.app.session.log.close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def stored(*conversations: str) -> Conversations:
    """Store conversations of one turn, the last one newest."""
    file = Conversations(history_file())
    for at, words in enumerate(conversations, 1):
        file.store(None, [Exchange(words, f"**Answer** to {words}", at=float(at))], {}, ())
    return file


def lines(s) -> list[str]:
    lists = s.app.screen.query(OptionList)
    return [str(option.prompt) for found in lists for option in found.options]


def titles(s) -> list[str]:
    return [line.split("  ")[0] for line in lines(s)]


async def opened(s, words: str = "") -> None:
    s.app.main.action_history(words)
    await until(s, lambda: isinstance(s.app.screen, HistoryScreen) and lines(s))


async def test_enter_goes_on_with_a_conversation_and_the_engine_reads_it(home) -> None:
    stored("The older one", "The newer one")
    async with writing(config=KEEPS) as s:
        await opened(s)
        assert titles(s) == ["The newer one", "The older one"]
        await s.press("down", "enter")
        await until(s, lambda: "You  The older one" in s.text)
        assert "Vox  Answer to The older one" in s.text
        name, past = s.engine.calls[-1]
        assert name == "new_conversation"
        assert isinstance(past, tuple)
        assert [turn.user_text for turn in past] == ["The older one"]


async def test_a_conversation_that_another_window_locks_does_not_stop_the_screen(home) -> None:
    file = stored("The older one").file
    async with writing(config=KEEPS) as s:
        await opened(s)
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await s.press("enter")
            await s.type("Hello")
            assert "Hello" in s.text
            assert "You  The older one" not in s.text
        await until(s, lambda: "You  The older one" in s.text)
        assert "Hello" in s.text


async def test_continue_shows_the_newest_conversation_and_starts_with_it(home) -> None:
    stored("The older one", "The newer one")
    app = VoxtuiApp(ScriptedEngine, KEEPS)
    app.continues = True
    async with app.run_test() as pilot:
        await pilot.pause()
        assert [turn.user_text for turn in app.session.engine.past] == ["The newer one"]
        strips = app.screen._compositor.render_strips()
        assert any("You  The newer one" in strip.text for strip in strips)
        app.session.log.close()


async def test_the_last_words_of_a_resumed_conversation_are_answered_again_and_edited(home) -> None:
    stored("The older one", "The newer one")
    async with writing(config=KEEPS) as s:
        await opened(s)
        await s.press("enter")
        await until(s, lambda: "You  The newer one" in s.text)
        s.engine.past = s.engine.calls[-1][1]
        await s.send("/again")
        assert s.engine.calls[-1][:2] == ("say", "The newer one")
        await s.send("/edit")
        assert s.app.bar.field.value == "The newer one"
        await s.type("!")
        await s.press("enter")
        assert s.engine.calls[-1][:2] == ("say", "The newer one!")


async def test_the_list_follows_the_words_and_says_where_nothing_matches(home) -> None:
    stored("Anna and the sea", "Something else")
    async with writing(config=KEEPS) as s:
        await opened(s, "sea")
        assert titles(s) == ["Anna and the sea"]
        await s.press("z")
        await until(s, lambda: lines(s) == ["No match"])
        await s.press("enter")
        assert isinstance(s.app.screen, HistoryScreen)
        await s.press("ctrl+u")  # as in every text field
        await until(s, lambda: titles(s) == ["Something else", "Anna and the sea"])


async def test_a_deleted_conversation_comes_back_and_is_erased_once_the_list_closes(home) -> None:
    file = stored("First", "Second")
    async with writing(config=KEEPS) as s:
        await opened(s)
        await s.press("ctrl+d")
        await until(s, lambda: titles(s) == ["First"])
        await s.press("ctrl+z")
        await until(s, lambda: titles(s) == ["Second", "First"])
        await s.press("ctrl+d")
        await until(s, lambda: titles(s) == ["First"])
        await s.press("escape")
        await until(s, lambda: b"Second" not in file.file.read_bytes())
    assert [one.title for one in file.newest()] == ["First"]


async def test_a_conversation_gets_another_name(home) -> None:
    file = stored("First", "Second")
    async with writing(config=KEEPS) as s:
        await opened(s)
        await s.press("down", "f2")
        s.app.screen.query_one(Input).value = "The sea"
        await s.press("enter")
        await until(s, lambda: titles(s) == ["Second", "The sea"])
    assert [one.title for one in file.newest("sea")] == ["The sea"]


async def test_a_name_that_is_written_faster_than_the_screen_is_kept_whole(home) -> None:
    file = stored("First")
    async with writing(config=KEEPS) as s:
        await opened(s)
        await s.press("f2")
        for key, character in (("ctrl+u", "\x15"), ("S", "S"), ("e", "e"), ("enter", "\r")):
            s.app.post_message(events.Key(key, character))
        await until(s, lambda: titles(s) == ["Se"])
    assert [one.title for one in file.newest()] == ["Se"]


async def test_an_export_is_a_markdown_file(home) -> None:
    stored("First")
    async with writing(config=KEEPS) as s:
        await opened(s)
        await s.press("ctrl+e")
        await until(s, lambda: "Exported" in s.text)
        await s.press("ctrl+e")
        await s.settle()
        assert "Exported" in s.text
    (place,) = home.rglob("conversation-1.md")
    assert "**You**" in place.read_text() and "First" in place.read_text()


async def test_all_conversations_are_erased_from_the_menu(home) -> None:
    file = stored("First", "Second")
    async with writing(config=KEEPS) as s:
        s.app.menu.forget_all()
        await until(s, lambda: "Every stored conversation was erased." in s.text)
    assert not file.newest()


async def test_nothing_is_stored_before_a_person_says_so(home) -> None:
    async with writing() as s:
        s.app.main.action_history()
        await until(s, lambda: isinstance(s.app.screen, Question))
        assert not history_file().exists()
        await s.press("escape")
        assert load_config(None, (), {}).config.session.keep is None  # asked again
        s.app.main.action_history()
        await until(s, lambda: isinstance(s.app.screen, Question))
        await s.press("enter")
        await until(s, lambda: isinstance(s.app.screen, HistoryScreen))
        await until(s, lambda: lines(s) == ["No conversation is stored yet."])
        assert load_config(None, (), {}).config.session.keep is True


async def test_words_are_no_yes(home) -> None:
    async with writing() as s:
        s.app.main.action_history()
        await until(s, lambda: isinstance(s.app.screen, Question))
        await s.press("H", "i", "enter")
        await until(s, lambda: ("say", "Hi") in s.engine.calls)
        assert load_config(None, (), {}).config.session.keep is None


async def test_no_is_remembered_too(home) -> None:
    async with writing() as s:
        s.app.main.action_history()
        await until(s, lambda: isinstance(s.app.screen, Question))
        await s.press("down", "enter")
        await until(s, lambda: not isinstance(s.app.screen, Question))
        assert load_config(None, (), {}).config.session.keep is False
        assert not isinstance(s.app.screen, HistoryScreen)


async def test_what_is_wrong_with_the_file_is_still_shown_once_the_models_are_loaded(home) -> None:
    history_file().parent.mkdir(parents=True)
    history_file().write_bytes(b"no database" * 100)
    async with writing(loaded=False, config=KEEPS) as s:
        await until(s, lambda: "This conversation is not stored." in s.text)
        s.engine.load()
        await s.settle()
        assert "This conversation is not stored." in s.text


async def test_the_file_of_a_newer_voxtui_is_one_sentence(home) -> None:
    with sqlite3.connect(stored("First").file) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    async with writing(config=KEEPS) as s:
        await opened(s)
        await until(s, lambda: "a newer voxtui wrote it" in lines(s)[0])
        await s.pilot.resize_terminal(100, 30)
        await s.settle()
        assert "a newer voxtui wrote it" in lines(s)[0]


@pytest.mark.parametrize("box", ["question", "history", "menu", "help"])
async def test_two_enters_at_once_close_a_box_once(home, box) -> None:
    stored("one")
    async with writing(config=Config() if box == "question" else KEEPS) as s:
        if box in ("question", "history"):
            s.app.main.action_history()
        else:
            await s.press("ctrl+p" if box == "menu" else "f1")
        await until(s, lambda: len(s.app.screen_stack) == 2 and (box == "help" or lines(s)))
        for _ in range(3):
            s.app.post_message(events.Key("enter", "\r"))
        await s.settle()
        assert s.app.is_running
