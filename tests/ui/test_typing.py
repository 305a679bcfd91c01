"""What is typed reaches the field, is sent or obeyed, and nothing of it is lost."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual import events

from tests.ui.conftest import MARKS, screen
from tests.ui.pseudo_terminal import AppInTerminal
from tests.ui.states import turn
from voxtui.dialogue.events import ReplyText, State, StateChanged, UserWords
from voxtui.dialogue.timestamps import Outcome
from voxtui.session.user_session import NotAllowed
from voxtui.settings.schema import Config, KeysConfig, UiConfig
from voxtui.slash_commands import COMMANDS, matching, parse
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.main_screen import MainScreen
from voxtui.ui.startup import SUGGESTIONS

# In order, whatever arrives together.

BACKSPACE, KILL, HOME, END = "\x7f", "\x15", "\x01", "\x05"
TYPED = st.one_of(
    st.text(st.sampled_from("abc äé字.?1m n"), min_size=1, max_size=12),
    st.sampled_from([BACKSPACE, KILL, HOME, END, "\r", "\r", "/new\r", "x" * 120]),
    st.sampled_from(["\x1b[200~pasted\rtext\x1b[201~", "\x1b[200~1\x1b[201~"]),
)


class Line:
    """What a person expects of a line of text: the model of the field."""

    def __init__(self) -> None:
        self.bytes = ""
        self.told: list[list[str]] = []
        self._text, self._at = "", 0

    def type(self, typed: str) -> None:
        if typed.startswith("/"):
            self.type("\r")
        if typed.startswith("\x1b"):
            self._insert(" ".join(typed[6:-6].splitlines()))
            self.bytes += typed
            return
        for key in typed:
            if key != " " or self._text.strip():  # else it would talk
                self._press(key)
                self.bytes += key

    def _press(self, key: str) -> None:
        match key:
            case "\r":
                if text := self._text.strip():
                    new = text == "/new"
                    self.told.append(["new_conversation"] if new else ["say", text])
                self._text, self._at = "", 0
            case "\x7f":
                if self._at:
                    self._text = self._text[: self._at - 1] + self._text[self._at :]
                    self._at -= 1
            case "\x15":
                self._text, self._at = self._text[self._at :], 0
            case "\x01":
                self._at = 0
            case "\x05":
                self._at = len(self._text)
            case _:
                self._insert(key)

    def _insert(self, text: str) -> None:
        self._text = self._text[: self._at] + text + self._text[self._at :]
        self._at += len(text)


@pytest.mark.slow
def test_bytes_in_any_pieces_are_the_same_texts_and_commands(tmp_path):
    with AppInTerminal(tmp_path / "calls", releases=False) as terminal:
        terminal.until(lambda: "no releases" in terminal.told)

        def told() -> list[list[object]]:
            calls = [call[:-1] for call in terminal.calls]
            return [call for call in calls if call[0] in ("say", "new_conversation", "talk")]

        @settings(max_examples=40, deadline=None)
        @given(st.lists(TYPED, max_size=25), st.lists(st.integers(1, 40), min_size=1, max_size=8))
        def type_and_compare(typed: list[str], sizes: list[int]) -> None:
            before, line = len(told()), Line()
            for piece in (*typed, "\r", "the end\r"):
                line.type(piece)
            data, pieces = line.bytes.encode(), list[bytes]()
            while data:
                size = sizes[len(pieces) % len(sizes)]
                while data[size : size + 1] and b"\x1b" in data[max(0, size - 5) : size]:
                    size += 1  # half an escape sequence is the key Esc, after a while
                pieces.append(data[:size])
                data = data[size:]
            terminal.send(*pieces)
            terminal.until(lambda: ["say", "the end"] in told()[before:])
            assert told()[before:] == line.told, json.dumps([p.decode("latin1") for p in pieces])

        type_and_compare()


async def test_a_sentence_typed_into_a_conversation_saves_wipes_and_sends_nothing():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(UserWords(1, "Hello"), ReplyText(1, "Hi there."))
        s.engine.finish(reply="Hi there.")
        await s.settle()
        await s.type("what is the news in france? 1 2 3")
        assert s.app.bar.field.value == "what is the news in france? 1 2 3"
        assert s.commands == [] and s.toasts == []
        assert "Hi there." in s.text


async def test_a_paste_opens_the_field():
    async with screen() as s:
        s.app.post_message(events.Paste("two\nlines"))
        await s.press("space")
        assert s.app.bar.field.value == "two lines "
        assert s.commands == []


async def test_space_talks_while_the_field_holds_only_white_space():
    async with screen() as s:
        s.app.post_message(events.Paste("  "))
        await s.press("space")
        assert s.commands == ["talk"]
        assert not s.app.bar.typing


async def test_space_ends_a_talk_also_if_a_letter_was_typed_meanwhile():
    async with screen() as s:
        await s.press("space", "a", "space")
        assert s.commands == ["talk", "release"]
        assert s.app.bar.field.value == "a"


@pytest.mark.slow
async def test_after_enter_the_field_is_empty_and_keys_of_commands_work():
    async with screen() as s:
        await s.send("hello")
        await s.press("ctrl+t", "space")
        assert s.commands == ["say", "mute", "talk"]
        assert s.app.bar.field.value == ""


# Earlier texts.


@pytest.mark.slow
async def test_up_and_down_bring_earlier_texts_back():
    async with screen() as s:
        for text in ("one", "two", "one"):
            await s.send(text)
        await s.type("dr")
        seen = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await s.press(key)
            seen.append(s.app.bar.field.value)
        assert seen == ["one", "two", "two", "one", "dr", "dr"]


@pytest.mark.slow
async def test_escape_keeps_a_draft():
    async with screen() as s:
        await s.type("a draft")
        await s.press("escape")
        assert not s.app.bar.typing
        await s.press("up")
        assert s.app.bar.typing and s.app.bar.field.value == "a draft"
        await s.press("ctrl+u", "escape", "up")
        assert not s.app.bar.typing


async def test_up_after_a_command_that_was_only_begun_selects_a_turn():
    async with screen() as s:
        turn(s)
        await s.settle()
        for begun in ("/", "/ed"):
            await s.type(begun)
            await s.press("escape")
            await s.pilot.press("up")
            await s.settle()
            assert not s.app.bar.typing and s.app.turns.selected == 1
            await s.press("escape")
        await s.type("/edit What is")  # these words would be lost
        await s.press("escape")
        await s.pilot.press("up")
        await s.settle()
        assert s.app.bar.field.value == "/edit What is"


# Commands.


@pytest.mark.slow
async def test_a_command_is_completed_as_it_is_typed():
    async with screen(size=(120, 40)) as s:
        await s.type("/s")
        assert "/save  /stop" in s.text
        await s.type("a")
        assert "/save: save the session" in s.text
        await s.press("tab")
        assert s.app.bar.field.value == "/save"
        await s.press("ctrl+u")
        await s.type("/cl")
        await s.press("tab")
        assert s.app.bar.field.value == "/clip "


async def test_a_slash_shows_the_most_used_commands_also_in_80_columns():
    async with screen((80, 24)) as s:
        await s.type("/")
        assert "/save  /new  /undo  /history [WORDS]" in s.text


async def test_an_unknown_command_names_the_nearest_and_can_be_mended():
    async with screen() as s:
        await s.send("/mtue")
        assert s.toasts == ["/mtue: there is no such command. Did you mean /mute?"]
        await s.press("up")
        assert s.app.bar.field.value == "/mtue"


@pytest.mark.parametrize("text", ["/save now", "/clip", "/clip x", "/clip ²", "/", "/etc/passwd"])
async def test_a_command_that_cannot_be_obeyed_is_refused_with_one_sentence(text):
    async with screen() as s:
        await s.send(text)
        assert len(s.toasts) == 1 and s.commands == []


def test_a_text_is_no_command():
    assert parse("say /save") is None and matching("say") == ()
    with pytest.raises(NotAllowed):
        parse("/nothing")


def test_the_words_that_end_other_programs_end_this_one():
    assert parse("/exit") == parse("/q") == parse("/quit") == ("quit", "")


async def test_the_numbers_are_those_of_the_last_answer_as_in_plain_mode():
    async with screen() as s:
        await s.send("/numbers")
        assert s.toasts == ["No numbers yet."]
        s.engine.begin("typed")
        s.engine.finish(timestamps=MARKS, reply="Yes.")
        await s.settle()
        size = s.app.panel.chosen
        await s.send("/numbers")
        assert s.toasts[-1].startswith("First token 84 ms, ok 300, first sound 512 ms")
        assert s.app.panel.chosen == size


def test_the_screen_has_an_action_for_each_command():
    actions = {*dir(VoxtuiApp), *dir(MainScreen)}
    names = {command.name for command in COMMANDS}
    assert {f"action_{name}" for name in names} <= actions


async def test_a_new_conversation_is_undone_with_all_that_was_shown():
    async with screen() as s:
        s.engine.begin("typed")
        s.engine.report(ReplyText(1, "Old answer"), StateChanged(State.SPEAKING))
        s.engine.finish(reply="Old answer", timestamps=MARKS)
        await s.settle()
        await s.press("ctrl+n")
        assert "Old answer" not in s.text
        assert any("/undo" in toast for toast in s.toasts)
        await s.press("ctrl+n")  # nothing was said since, so nothing new can be undone
        await s.send("/undo")
        assert not s.toasts
        assert "Old answer" in s.text and SUGGESTIONS[0] not in s.text
        assert s.commands == ["new_conversation", "new_conversation", "recall_conversation"]
        assert "512 ms" in s.app.panel.strip.render().plain
        await s.press("escape", "escape", "up")
        assert s.app.turns.selected == 1


async def test_a_text_sent_just_before_a_new_conversation_does_not_appear_in_it():
    async with screen() as s:
        turn(s, "Hello", "Good day.")
        await s.send("What now?")
        await s.press("ctrl+n")
        s.engine.begin("typed")
        s.engine.report(StateChanged(State.THINKING), UserWords(2, "What now?"))
        s.engine.finish(Outcome.CANCELLED)
        await s.settle()
        assert "What now?" not in s.text and SUGGESTIONS[0] in s.text
        await s.send("/undo")  # nothing was said since
        assert "Good day." in s.text and not s.toasts
        await s.send("And now?")
        s.engine.begin("typed")
        s.engine.report(UserWords(3, "And now?"))
        await s.settle()
        assert "And now?" in s.text


# Keys that the user chose.


async def test_a_command_has_the_key_that_the_user_chose():
    config = Config(ui=UiConfig(keys=KeysConfig(mute="f5", new="ctrl+t")))
    async with screen(config=config) as s:
        await s.press("f5", "ctrl+t")
        assert s.commands == ["mute", "new_conversation"]
        assert "F5 Mute" in s.lines[-1] and "^t New" in s.lines[-1]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"mute": "m"}, 'mute: "m" is no key for a command'),
        ({"mute": "ctrl+c"}, 'mute: "ctrl\\+c" is no key for a command'),
        ({"mute": "ctrl+s"}, "mute and save have the same key, ctrl\\+s"),
    ],
)
def test_a_key_that_types_or_is_taken_is_refused(keys, sentence):
    with pytest.raises(ValueError, match=sentence):
        KeysConfig(**keys)


def test_a_command_cannot_take_the_talk_key():
    with pytest.raises(ValueError, match=r"talk_key and keys\.mute have the same key, f5"):
        UiConfig(talk_key="f5", keys=KeysConfig(mute="f5"))
