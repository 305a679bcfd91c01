"""The screen of the conversation: what a person writes, chooses and asks it to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from textual import events, on
from textual.app import App
from textual.binding import Binding, BindingsMap
from textual.widgets import Input

from voxtui.commands.text_input import clipboard_text
from voxtui.dialogue.attachments import Attachment, estimated_tokens
from voxtui.dialogue.events import Event, Notice, State
from voxtui.errors import InputError, ModelMissing, VoxtuiError
from voxtui.session.local_session import LocalSession
from voxtui.session.user_session import NotAllowed, Severity
from voxtui.slash_commands import number, parse
from voxtui.ui.conversation.transcript import Transcript
from voxtui.ui.menu import CONVERSATION
from voxtui.ui.palette import Entry
from voxtui.ui.pasted import (
    FIELD_CHARACTERS,
    FIELD_LINES,
    PastedTexts,
    PastedView,
    at_least_tokens,
    joined_lines,
    pasted_lines,
    too_long,
)
from voxtui.ui.startup import Samples
from voxtui.ui.status import Status
from voxtui.ui.talk import Talk
from voxtui.ui.talkbar import TalkBar
from voxtui.ui.terminal.keyboard import Paste
from voxtui.ui.terminal.painting import SteppedScreen
from voxtui.ui.turn_views import TurnViews

ENTER = ("enter", "ctrl+j")
"""Carriage return, and the line feed of a program that types."""


class MainScreen(SteppedScreen):
    """Translates keys, texts and the mouse into commands of the controls.

    Its actions do nothing while another screen is open above it.
    """

    def __init__(
        self,
        program: App[None],
        keys: Sequence[Binding],
        controls: LocalSession,
        transcript: Transcript,
        turns: TurnViews,
        bar: TalkBar,
        talk: Talk,
        status: Status,
        tell: Callable[[str, Severity], object],
        report: Callable[[Event], object],
    ) -> None:
        """`report` shows an event of another thread."""
        super().__init__()
        self.program = program
        self._keys = frozenset(key.key for key in keys)
        own = BindingsMap(key for key in keys if not key.system)
        self._bindings = BindingsMap.merge([own, self._bindings])
        self.controls = controls
        self._transcript = transcript
        self.turns = turns
        self._bar = bar
        self._talk = talk
        self.status = status
        self.tell = tell
        self._report = report
        self._offered: tuple[object, ...] = ()
        """what the keys do now, as the footer shows it"""

    # Keys.

    def talks(self, key: events.Key) -> bool:
        return key.key == self.controls.config.ui.talk_key and self.talk_key_talks

    @property
    def talk_key_talks(self) -> bool:
        """False while the talk key is a space in a text. It always ends a talk."""
        types = self.controls.config.ui.talk_key == "space" and not self._bar.field.empty
        return not types or self.controls.talking is not None

    async def take_key(self, key: events.Key) -> bool:
        """Write, send or edit. Return False if `key` does none of it."""
        if key.character is not None and key.is_printable:
            self._bar.write(key.character)
        elif key.key in ENTER and (self._bar.typing or self._bar.pasted.waiting):
            corrected = self._bar.corrected
            await self._send(self._bar.take(), corrected)
        else:
            return key.key not in self._keys and await self._bar.edit(key)
        return True

    @on(TalkBar.Held)
    def _mouse_down(self, event: TalkBar.Held) -> None:
        self.give_pasted()
        self._talk.mouse_down(event.time)

    @on(TalkBar.LetGo)
    def _mouse_up(self, event: TalkBar.LetGo) -> None:
        self._talk.mouse_up(event.time)

    def offer_keys(self) -> None:
        """Make the footer show what the keys do now."""
        offered = (self._escape, self.talk_key_talks, self._bar.field.empty)
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the present actions of the keys; none of the commands below another screen."""
        match action:
            case "talk":
                return self.talk_key_talks
            case "new" | "mute" | "again" | "edit" | "copy" | "save":
                return self.is_active
            case "type":
                return self._bar.field.empty
            case "escape":
                return self._escape in parameters
            case _:
                return True

    @property
    def _escape(self) -> str:
        """The present action of Esc, a key of ESCAPE; empty: none."""
        if not self.is_active:
            return ""
        if self.controls.can_stop:
            return "drop" if self.controls.state is State.LISTENING else "stop"
        if self._bar.typing:
            return "leave"
        return "live" if self.turns.selected is not None else ""

    def action_talk(self) -> None:
        self._talk.press()

    # Texts.

    def show_caption(self, text: str, settled: int) -> None:
        """Show the words so far at the prompt."""
        if self._bar.typing and self._bar.field.empty:  # as after /clip
            self.leave_field()
        self._bar.caption(text, settled)

    def action_type(self) -> None:
        self._bar.write("/")

    def take_paste(self, paste: events.Paste) -> None:
        """Fold a long paste, write a short one into the field, and refuse one that does not fit."""
        bar = self._bar
        if not isinstance(paste, Paste):  # typed by a program
            bar.write(joined_lines(paste.text))
            return
        most, room = self.controls.text_room
        left = room - bar.pasted.tokens
        tokens = at_least_tokens(paste.characters)
        if tokens <= left:  # else it is too long to be looked at
            text = pasted_lines(paste.text)
            folded = text.count("\n") >= FIELD_LINES or paste.characters > FIELD_CHARACTERS
            if not folded or bar.corrected is not None:
                bar.write(joined_lines(text))
                return
            if (tokens := estimated_tokens(text)) <= left:
                bar.paste(text, room, self.status.tokens_per_second)
                return
        self.tell(too_long(paste.characters, tokens, left, most), "warning")

    def give_pasted(self) -> None:
        """Add the pasted texts to the conversation."""
        for text in self._bar.pasted.take():
            self.controls.attach(text)

    @on(PastedTexts.Opened)
    def _open_pasted(self) -> None:
        self.program.push_screen(PastedView(self._bar.pasted.newest))

    def leave_field(self) -> None:
        self._bar.close_field()
        self._transcript.focus()
        self.offer_keys()

    @on(Input.Changed)
    def _text_changed(self, event: Input.Changed) -> None:
        if event.input is not self._bar.field:
            return
        self.offer_keys()
        # A slash begins a command, and a correction follows another history than the newest.
        ahead = self._bar.corrected is None and not event.value.startswith("/")
        ahead = ahead and not self._bar.pasted.waiting  # it is not in the history yet
        self.controls.typing(event.value if ahead else "")

    async def _send(self, text: str, corrected: int | None) -> None:
        """Run `text` as a command, or have it answered, in place of the turn `corrected`."""
        text = text.strip()
        try:
            command = parse(text)
            if command is None and self._bar.pasted.waiting:
                self.give_pasted()
                if not text:
                    return
            elif not text:
                self.action_mend()
                return
            if command is None and corrected is not None:
                self._correct(corrected, text)
            elif command is None:
                if self.controls.say(text) is None:
                    self._note_kept(text)
            elif command[0] == "clip":
                self.action_clip(number(command[1]))
            elif command[0] == "edit":
                self.action_edit(command[1])
            elif not await self.program.run_action(command[0], self):
                await self.program.run_action(command[0])
        except NotAllowed as refused:
            self._refuse(refused)
        self._talk.follow()

    def _note_kept(self, text: str) -> None:
        self.tell(f"Kept until the models are loaded: “{text}”", "information")

    def action_paste(self) -> None:
        self.run_worker(self._paste, thread=True, group="paste")

    def _paste(self) -> None:
        """Give what is on the clipboard. Runs on a thread of its own, because it may block."""
        try:
            attachment = Attachment("the clipboard", clipboard_text())
            self.program.call_from_thread(self.controls.attach, attachment)
        except InputError as error:
            self._report(Notice(str(error), "error"))
        except NotAllowed as refused:
            self.program.call_from_thread(self._refuse, refused)

    # Actions.

    def action_mend(self) -> None:
        """Mend the problem that the banner shows."""
        self.status.banner.mend()

    def action_escape(self, _: str) -> None:
        if self.action_stop():
            return
        if self._bar.typing:
            self.leave_field()
        else:
            self.turns.select(None)
        self.offer_keys()

    @on(Transcript.Step)
    def _step(self, event: Transcript.Step) -> None:
        self.turns.step(event.by)
        self.offer_keys()

    @on(Transcript.Picked)
    def _pick(self, event: Transcript.Picked) -> None:
        self.turns.pick(event.turn)
        self.offer_keys()

    def action_stop(self) -> bool:
        stopped = self.controls.stop()
        self._talk.follow()
        return stopped

    def action_page_up(self) -> None:
        self._transcript.scroll_page_up()

    def action_page_down(self) -> None:
        self._transcript.scroll_page_down()

    def action_new(self) -> None:
        if self.controls.turn is not None:
            self.notify("A new conversation. /undo brings the old one back.")
        self._do(self.controls.new_conversation)
        self.turns.forget()
        self._transcript.clear()

    def action_undo(self) -> None:
        try:
            self.controls.undo()
        except NotAllowed as refused:
            self._refuse(refused)
        else:
            self._transcript.restore()

    def action_mute(self) -> None:
        self.status.top.show_muted(self.controls.toggle_mute())

    def _correct(self, turn: int, text: str) -> None:
        """Answer `text` in place of `turn`; if that is refused, let it be edited again."""
        try:
            self.controls.correct(turn, text)
        except NotAllowed:
            self._bar.correct(turn, text)
            raise

    def action_again(self) -> None:
        self._retry(partial(self.controls.answer_again, turn=self.turns.selected))

    def action_edit(self, text: str = "") -> None:
        """Answer `text` in place of the selected or newest turn; empty: let its words be edited."""
        try:
            turn, words = self.controls.words_of(self.turns.selected)
            if text:
                self._correct(turn, text)
            else:
                self._bar.correct(turn, words)
        except NotAllowed as refused:
            self._refuse(refused)
        self.offer_keys()

    def action_fetch(self) -> None:
        self._retry(self.controls.fetch)

    def _retry(self, act: Callable[[], object]) -> None:
        """Call `act`, which may load the models again after a failed start."""
        failed = self.controls.failed is not None
        self._do(act)
        if failed and self.controls.failed is None:
            self.begin_again()

    def begin_again(self) -> None:
        """Show the loading once more."""
        for text in self.controls.kept:
            self._note_kept(text)
        self.status.begin_again()

    def action_clip(self, number: int) -> None:
        self._do(partial(self.controls.play_clip, number))

    @on(Samples.Chosen)
    def _clip_chosen(self, message: Samples.Chosen) -> None:
        self.action_clip(message.number)

    def action_copy(self) -> None:
        if text := self.get_selected_text():
            self.program.copy_to_clipboard(text)
            self.notify("The selection was handed to the terminal's clipboard.")
            return
        finished = reversed(self.controls.record.finished)
        reply = next((t.result.reply for t in finished if t.result and t.result.reply), None)
        if reply is None:
            self.notify("There is no answer to copy yet.", severity="warning")
            return
        self.program.copy_to_clipboard(reply.strip())
        self.notify("The last answer was handed to the terminal's clipboard.")

    def action_save(self) -> None:
        self.run_worker(self._save, thread=True, group="save")

    def _save(self) -> None:
        """Save the session. Runs on a thread of its own, because a disk may be slow."""
        try:
            place = self.controls.save()
        except NotAllowed as refused:
            self.program.call_from_thread(self._refuse, refused)
        except InputError as error:
            self._report(Notice(str(error), "error"))
        else:
            shown = str(place).replace(str(Path.home()), "~", 1)
            self._report(Notice(f"Saved, with your words:\n{shown}", "information"))

    async def action_numbers(self) -> None:
        await self.program.run_action("panel")

    def commands(self) -> Iterable[Entry]:
        """Yield the entries of the menu that choose nothing."""
        yield Entry(CONVERSATION, "New conversation", self.action_new)
        yield Entry(CONVERSATION, "Answer again", self.action_again, "what was said last")
        yield Entry(CONVERSATION, "Edit", self.action_edit, "what was heard, and send it instead")
        yield Entry(CONVERSATION, "Copy", self.action_copy, "the selection, or the last answer")
        yield Entry(CONVERSATION, "Paste", self.action_paste, "talk about the clipboard's text")
        yield Entry(CONVERSATION, "Save", self.action_save, "Markdown, JSON and sound files")
        yield Entry(CONVERSATION, "Mute", self.action_mute, chosen=self.controls.muted)

    def _do(self, act: Callable[[], object]) -> None:
        """Call `act`; show the sentence if it is refused."""
        try:
            act()
        except NotAllowed as refused:
            self._refuse(refused)
        except VoxtuiError as error:  # the models' files were not even found
            self.show_failed(error)
        self._talk.follow()

    def show_failed(self, error: VoxtuiError) -> None:
        """Show why the start failed, and what mends it."""
        fetch = isinstance(error, ModelMissing)
        self.status.show_failed(error, self.action_fetch if fetch else self.action_again)

    def _refuse(self, refused: NotAllowed) -> None:
        self.tell(str(refused), refused.severity)
