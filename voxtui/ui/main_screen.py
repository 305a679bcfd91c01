"""The screen of the conversation, and the user's commands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from textual import work

from voxtui.dialogue.engine_commands import Attach, Silence, Speak
from voxtui.dialogue.history.attachments import Attachment
from voxtui.dialogue.protocols import Past
from voxtui.errors import InputError, VoxtuiError
from voxtui.session.removed_turn import RemovedTurn, put_back, remove_turn
from voxtui.session.user_session import NotAllowed
from voxtui.slash_commands import number, parse
from voxtui.storage.saved_session import saved_sessions
from voxtui.terminal.clipboard import clipboard_text
from voxtui.ui.menu.menu import CONVERSATION, in_thread
from voxtui.ui.menu.palette import Entry
from voxtui.ui.talk_screen import TalkScreen

WHAT_TO_KNOW = "What would you like to know?"
"""The reply to pasted text that was sent without a question."""


class MainScreen(TalkScreen):
    _removed: RemovedTurn | None = None

    async def send(self, text: str, corrected: int | None) -> None:
        """Run `text` as a command, or answer it, in place of the turn `corrected`."""
        text = text.strip()
        try:
            command = parse(text)
            if command is None and self.bar.pasted.waiting:
                self.give_pasted()
                if not text:
                    self.transcript.add_line("Vox", WHAT_TO_KNOW)
                    return
            elif not text:
                await self.action_mend()
                return
            if command is None and corrected is not None:
                self._correct(corrected, text)
            elif command is None:
                if self.session.say(text) is None:
                    self._note_queued(text)
            elif command[0] == "clip":
                self.action_clip(number(command[1]))
            elif command[0] == "history":
                self.action_history(command[1])
            elif command[0] == "edit":
                self.action_edit(command[1])
            elif not await self.program.run_action(command[0], self):
                await self.program.run_action(command[0])
        except NotAllowed as refused:
            self._refuse(refused)
        self.talk.follow()

    def _note_queued(self, text: str) -> None:
        self.notify(f"To be sent when the models are loaded: “{text}”")

    @work(group="paste")
    async def action_paste(self) -> None:
        try:
            text = await in_thread(clipboard_text)
            self.session.post(Attach(Attachment("the clipboard", text)))
        except InputError as error:
            self.status.show_problem(str(error))
        except NotAllowed as refused:
            self._refuse(refused)

    # Actions.

    def action_step(self, by: int) -> None:
        """Select the turn before (-1) or after (1) the selected one."""
        self.turns.step(by)
        self.offer_keys()

    def action_pick(self, turn: int) -> None:
        self.turns.pick(turn)
        self.offer_keys()

    def action_page_up(self) -> None:
        self.transcript.scroll_page_up()

    def action_page_down(self) -> None:
        self.transcript.scroll_page_down()

    def action_new(self) -> None:
        if self.session.turn is not None:
            self.notify("A new conversation. /undo brings the old one back.")
        self._do(self.session.new_conversation)
        self._removed = None
        self.turns.forget()
        self.status.begin_conversation()

    def action_history(self, words: str = "") -> None:
        self.ask_to_store(partial(self._choose_conversation, words))

    @work(exclusive=True, group="history")
    async def _choose_conversation(self, words: str) -> None:
        from voxtui.ui.history.history_screen import HistoryScreen

        session = self.session
        folder = saved_sessions(session.config.ui.save_dir)
        keeps = bool(session.config.session.keep)
        screen = HistoryScreen(session.log.conversations, folder, keeps, words)
        conversation = await self.program.push_screen_wait(screen)
        if conversation is None or conversation == session.log.current.number:
            return
        try:
            past, stored = await in_thread(partial(session.conversation.read, conversation))
        except InputError as error:
            self.status.show_problem(str(error))
        else:
            session.conversation.resume(past, stored)
            self.show_past(past)

    def ask_to_store(self, then: Callable[[], object]) -> None:
        """Ask whether to store conversations, unless that is decided. If so, call `then`."""
        if self.session.config.session.keep is not None:
            then()
            return
        from voxtui.ui.history.question import KEEP, KEEP_NO, KEEP_YES, Question

        def answered(keeps: bool | None) -> None:
            if keeps is not None:
                self._do(partial(self.session.choose, "session.keep", keeps))
            if keeps:
                then()

        self.program.push_screen(Question(KEEP, KEEP_YES, KEEP_NO), answered)

    def show_past(self, past: Past) -> None:
        from voxtui.ui.history.past_turns import show_past

        self._removed = None
        self.turns.forget()
        show_past(self.transcript, past)

    def action_undo(self) -> None:
        self.program.clear_notifications()  # "/undo brings it back" is no longer true
        if self._removed is not None:
            put_back(self.session, self._removed)
            self.turns.put_back()
            self._removed = None
            return
        try:
            self.session.conversation.undo()
        except NotAllowed as refused:
            self._refuse(refused)
        else:
            self.turns.restore()

    def action_snooze(self) -> None:
        if not self.session.post(Silence(snooze=True)):
            self.notify("No timer rings.", severity="warning")

    def action_numbers(self) -> None:
        self.notify(self.session.times)

    def action_mute(self) -> None:
        self.status.top.show_muted(self.session.toggle_mute())

    def _correct(self, turn: int, text: str) -> None:
        try:
            self.session.correct(turn, text)
        except NotAllowed:
            self.bar.correct(turn, text)
            raise

    def action_again(self) -> None:
        self._retry(partial(self.session.answer_again, turn=self.turns.selected))

    def action_edit(self, text: str = "") -> None:
        """Answer `text` in place of the selected or newest turn; if it is empty, edit its words."""
        try:
            turn, words = self.session.words_of(self.turns.selected)
            if text:
                self._correct(turn, text)
            else:
                self.bar.correct(turn, words)
        except NotAllowed as refused:
            self._refuse(refused)
        self.offer_keys()

    def action_correct(self) -> None:
        self.action_edit()

    def action_speak(self) -> None:
        if reply := self._reply(self.turns.selected):
            self.session.post(Speak(reply))

    def action_delete(self) -> None:
        if (turn := self.turns.selected) is not None:
            self._removed = remove_turn(self.session, turn)
            self.turns.remove(turn)
            self.notify("The turn was removed. /undo brings it back.")
            self.offer_keys()

    def action_fetch(self) -> None:
        self._retry(self.session.fetch)

    def _retry(self, act: Callable[[], object]) -> None:
        failed = self.session.failed is not None
        self._do(act)
        if failed and self.session.failed is None:
            self.begin_again()

    def begin_again(self) -> None:
        for text in self.session.queued:
            self._note_queued(text)
        self.status.begin_again()

    def action_clip(self, number: int) -> None:
        self._do(partial(self.session.play_clip, number))

    def get_selected_text(self) -> str | None:
        try:
            return super().get_selected_text()
        except IndexError:  # Textual's, if what was selected has become shorter
            return None

    def action_copy(self) -> None:
        if text := self.get_selected_text():
            self.program.copy_to_clipboard(text)
            self.notify("The selection was handed to the terminal's clipboard.")
            return
        if not (reply := self._reply(self.turns.selected)):
            self.notify("There is no answer to copy yet.", severity="warning")
            return
        self.program.copy_to_clipboard(reply)
        which = "last" if self.turns.selected is None else "selected"
        self.notify(f"The {which} answer was handed to the terminal's clipboard.")

    def _reply(self, turn: int | None) -> str:
        """Return the answer of `turn` (None: of the newest one); empty if there is none."""
        turns = reversed(self.session.record.turns.items())
        results = (t.result for number, t in turns if turn in (None, number))
        return next((r.reply.strip() for r in results if r and r.reply), "")

    @work(group="save")
    async def action_save(self) -> None:
        try:
            place = await in_thread(self.session.save)
        except NotAllowed as refused:
            self._refuse(refused)
        except InputError as error:
            self.status.show_problem(str(error))
        else:
            shown = str(place).replace(str(Path.home()), "~", 1)
            self.notify(f"Saved, with your words:\n{shown}")
            self.ask_to_store(lambda: None)

    def commands(self) -> Iterable[Entry]:
        yield Entry(CONVERSATION, "New conversation", action="screen.new")
        yield Entry(CONVERSATION, "History", "go on with an earlier one", action="screen.history")
        yield Entry(CONVERSATION, "Answer again", "what was said last", action="screen.again")
        yield Entry(CONVERSATION, "Edit", "correct what was heard", action="screen.edit")
        yield Entry(CONVERSATION, "Copy", "the selection, or the last answer", action="screen.copy")
        yield Entry(CONVERSATION, "Paste", "talk about the clipboard's text", action="screen.paste")
        yield Entry(CONVERSATION, "Save", "Markdown, JSON and sound files", action="screen.save")
        muted, about = self.session.muted, "the voice; the text goes on"
        yield Entry(CONVERSATION, "Mute", about, chosen=muted, action="screen.mute")

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except NotAllowed as refused:
            self._refuse(refused)
        except VoxtuiError as error:  # the models' files were not even found
            self.status.show_failed(error)
        self.offer_keys()
        self.talk.follow()
