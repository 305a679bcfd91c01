"""The screen of the talk bar, where the user types, pastes and talks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import cast

from textual import events, on
from textual.binding import Binding, BindingsMap
from textual.containers import Horizontal
from textual.widgets import Input

from voxtui.dialogue.engine_commands import Attach, Typing
from voxtui.dialogue.events import State
from voxtui.dialogue.history.attachments import estimated_tokens
from voxtui.session.local_session import LocalSession
from voxtui.session.user_session import NotAllowed
from voxtui.ui.conversation.turn_views import TurnViews
from voxtui.ui.driver.keyboard import Paste
from voxtui.ui.driver.painting import SteppedScreen
from voxtui.ui.driver.terminal_app import TerminalApp
from voxtui.ui.status import Status
from voxtui.ui.talk.pasted import (
    FIELD_CHARACTERS,
    FIELD_LINES,
    PastedView,
    at_least_tokens,
    joined_lines,
    pasted_lines,
    too_long,
)
from voxtui.ui.talk.talk import PushToTalk
from voxtui.ui.talk.talkbar import TalkBar
from voxtui.ui.talk.talkkey import Mode

ENTER = ("enter", "ctrl+j")
"""Keys for carriage return, and for the line feed of a program that types."""


ATTACHED = "▤"


class TalkScreen(SteppedScreen):
    """Turns keys, texts and mouse events into talking and writing, unless a screen is above it."""

    def __init__(
        self,
        keys: Sequence[Binding],
        session: LocalSession,
        talk: PushToTalk,
        turns: TurnViews,
        status: Status,
    ) -> None:
        super().__init__()
        self._keys = frozenset(key.key for key in keys) - {"delete"}  # which edits a text
        own = BindingsMap(key for key in keys if not key.system)
        self._bindings = BindingsMap.merge([own, self._bindings])
        self.session = session
        self.turns = turns
        self.transcript, self.bar = turns.transcript, talk.bar
        self.area = Horizontal(id="main")
        self.talk = talk
        self.status = status
        self._offered: tuple[object, ...] = ()

    @property
    def program(self) -> TerminalApp:
        return cast("TerminalApp", self.app)  # pyright: ignore[reportUnknownMemberType]

    def show_state(self) -> None:
        self.status.show_state()
        self.offer_keys()

    @on(TurnViews.RestIsDue)
    def _show_rest(self) -> None:
        self.show_state()

    @on(PushToTalk.Changed)
    def _talk_changed(self, event: PushToTalk.Changed) -> None:
        self.status.show_mode()
        if event.talking and self.bar.typing and self.bar.field.empty:
            self.leave_field()
        self.offer_keys()

    # Keys.

    def talks(self, key: events.Key) -> bool:
        return key.key == self.session.config.ui.talk_key and self.talk_key_talks

    @property
    def talk_key_talks(self) -> bool:
        """False while the talk key is a space in a text. It always ends a talk."""
        types = self.session.config.ui.talk_key == "space" and not self.bar.field.empty
        return not types or self.session.talking is not None

    @property
    def _talk_action(self) -> str:
        """The present action of the talk key, `begin` or `end`; empty for none."""
        session = self.session
        if not self.talk_key_talks or session.microphone is None or session.failed:
            return ""
        if session.talking is None and session.state is not State.LISTENING:
            return "" if session.state is State.LOADING else "begin"
        return "" if self.talk.mode is Mode.MOUSE else "end"

    @property
    def offers_selection(self) -> bool:
        """True while Up selects a turn: nothing is being written, and Esc has no action."""
        types = self.bar.typing or self.bar.field.recall.draft
        return self.is_active and self.turns.any and not self._escape and not types

    async def take_key(self, key: events.Key) -> bool:
        if self.session.awaits_key and self.bar.field.empty and key.key in (*ENTER, "escape"):
            self.session.confirm(key.key != "escape")
        elif key.character is not None and key.is_printable:
            self.bar.write(key.character)
        elif key.key in ENTER and (self.bar.typing or self.bar.pasted.waiting):
            corrected = self.bar.corrected
            await self.send(self.bar.take(), corrected)
        else:
            return key.key not in self._keys and await self.bar.edit(key)
        return True

    @on(TalkBar.Held)
    def _mouse_down(self, event: TalkBar.Held) -> None:
        self.give_pasted()
        self.talk.mouse_down(event.time)

    @on(TalkBar.LetGo)
    def _mouse_up(self, event: TalkBar.LetGo) -> None:
        self.talk.mouse_up(event.time)

    def offer_keys(self) -> None:
        offered = (
            self._escape, self._talk_action, self.bar.field.empty, self.turn_offered,
            self.offers_selection,
        )  # fmt: skip
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return True for present actions of the keys; no other screen may be above this one."""
        match action:
            case "talk":
                return self.is_active and self._talk_action in parameters
            case "new" | "mute" | "again" | "edit" | "copy" | "save":
                return self.is_active
            case "type":
                return self.is_active and self.bar.field.empty
            case "correct" | "speak" | "delete":
                return self.turn_offered
            case "mend":
                return not self.turn_offered
            case "escape":
                return self._escape in parameters
            case _:
                return True

    @property
    def turn_offered(self) -> bool:
        """True while the keys act on a selected turn, because no text is being written."""
        return self.is_active and self.turns.selected is not None and self.bar.field.empty

    @property
    def _escape(self) -> str:
        """The present action of Esc, a key of ESCAPE; empty for none."""
        if not self.is_active:
            return ""
        if self.session.can_stop:
            return "drop" if self.session.state is State.LISTENING else "stop"
        if self.bar.typing:
            return "leave"
        return "live" if self.turns.selected is not None else ""

    def action_talk(self, _: str) -> None:
        self.talk.press()

    @abstractmethod
    async def send(self, text: str, corrected: int | None) -> None:
        """Answer `text`, in place of the turn `corrected`. MainScreen also runs commands."""

    # Texts.

    def action_type(self) -> None:
        self.bar.write("/")

    def take_paste(self, paste: events.Paste) -> None:
        """Fold a long paste, write a short one into the field, and refuse one that does not fit."""
        bar = self.bar
        if not isinstance(paste, Paste):  # typed by a program
            bar.write(joined_lines(paste.text))
            return
        most, room = self.session.text_room
        left = room - bar.pasted.tokens
        tokens = at_least_tokens(paste.characters)
        if tokens <= left:  # else it is too long to be looked at
            if not (text := pasted_lines(paste.text)).strip():
                return
            folded = text.count("\n") >= FIELD_LINES or paste.characters > FIELD_CHARACTERS
            if not folded or bar.corrected is not None:
                bar.write(joined_lines(text))
                return
            if (tokens := estimated_tokens(text)) <= left:
                bar.paste(text, room, self.status.tokens_per_second)
                return
        self.notify(too_long(paste.characters, tokens, left, most), severity="warning")

    def give_pasted(self) -> None:
        """Attach the pasted texts, and show that in the conversation."""
        length = self.bar.pasted.length
        if texts := self.bar.take_pasted():
            self.transcript.add_line(ATTACHED, f"{length} pasted")
        for text in texts:
            self.session.post(Attach(text))

    def action_open_pasted(self) -> None:
        self.program.push_screen(PastedView(self.bar.pasted.newest))

    def leave_field(self) -> None:
        self.bar.close_field()
        self.transcript.focus()
        self.offer_keys()

    @on(Input.Changed)
    def _text_changed(self, event: Input.Changed) -> None:
        if event.input is not self.bar.field:
            return
        self.offer_keys()
        # A slash begins a command, and a correction follows another history than the newest.
        ahead = self.bar.corrected is None and not event.value.startswith("/")
        ahead = ahead and not self.bar.pasted.waiting  # it is not in the history yet
        self.session.post(Typing(event.value if ahead else ""))

    async def action_mend(self) -> None:
        if action := self.status.banner.action:
            await self.run_action(action)

    def action_escape(self, _: str) -> None:
        if self.action_stop():
            return
        if self.bar.typing:
            self.leave_field()
        else:
            self.turns.select(None)
        self.offer_keys()

    def action_stop(self) -> bool:
        stopped = self.session.stop()
        self.talk.follow()
        return stopped

    def _refuse(self, refused: NotAllowed) -> None:
        self.notify(str(refused), severity=refused.severity)
