"""The skills of the person at this machine: clock, sums, units, timers and reminders."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from voxtui.dialogue.events import CountdownsChanged, Event, Notice, Rang
from voxtui.dialogue.protocols import SkillAnswer
from voxtui.dialogue.turn.safe_skills import log_failure
from voxtui.errors import InputError

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from voxtui.dialogue.protocols import SkillRequest
    from voxtui.skills.timer_store import Entries, Reminder, Timer

LOOK_SECONDS = 1.0
"""Interval at which the files are checked, because another voxtui may change them."""

CLOSE_SECONDS = 2.0
"""Longest wait for the thread. It may be compiling the rules, which takes a tenth of a second."""

_QUIET_AGAIN = "That is done already. Say it again if you want it twice."
_RINGS_IF_OPEN = "It rings while voxtui is open."


class AssistantSkills:
    """Answers from rules, without a model. `now` returns the local time.

    `folder` holds the files of timers and reminders. Several processes may share it; one of them
    rings. `rings` False: never this one, because it is a command that ends soon.
    """

    def __init__(
        self,
        folder: Path,
        rings: bool = True,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        from voxtui.skills.timer_store import Entries, TimerStore

        self._kept = TimerStore(folder)
        self._rings = rings
        self._emit: Callable[[Event], object] = lambda event: None
        self.now = now
        self._retry = ""
        """the request that the user's next words complete"""
        self._lock: BaseFileLock | None = None
        """held by the one process that rings"""
        self._entries = Entries()
        self._seen: object = (None, None)
        self._failure = ""
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="voxtui-skills", daemon=True)

    def start(self, emit: Callable[[Event], object]) -> None:
        """Compile the rules and watch the timers, on a thread. Returns at once."""
        self._emit = emit
        self._thread.start()

    def close(self) -> None:
        """End the thread, and let another voxtui ring. May be called twice."""
        self._closed = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def answer(self, request: SkillRequest) -> SkillAnswer | None:
        """Return the answer to the user's words, or None. See Skills."""
        answer = self._answer(request)
        return SkillAnswer(answer) if isinstance(answer, str) else answer

    def _answer(self, request: SkillRequest) -> SkillAnswer | str | None:
        from voxtui.skills.about_itself import about_itself
        from voxtui.skills.intents import Fact, Question
        from voxtui.skills.requests import acts, carry_out
        from voxtui.skills.understand import understand

        retry, self._retry = self._retry, ""
        words, now = request.words, self.now()
        if itself := about_itself(words, request.sends_to, request.config):
            return itself
        meaning = understand(words, now, request.past)
        if meaning is None and retry:
            meaning = understand(retry.format(words.strip(" .?!")), now)
        match meaning:
            case None:
                return None
            case Fact():
                return SkillAnswer(meaning.sentence, meaning.language, meaning.pace)
            case Question(sentence, retry):
                self._retry = retry
                return sentence
            case change if request.again and acts(change):
                return _QUIET_AGAIN
            case change:
                try:
                    said = carry_out(change, self._kept, now)
                    return f"{said} {_RINGS_IF_OPEN}" if self._unheard(said) else said
                except InputError as error:
                    return f"That cannot be kept. {error}"
                finally:
                    self._changed.set()

    def doubt(self, reply: str) -> str | None:
        """Return a sentence if `reply` claims a timer or a message. See Skills."""
        from voxtui.skills.about_itself import doubt

        return doubt(reply)

    def _unheard(self, said: str) -> bool:
        """Return True if something was set that no running voxtui will ring."""
        if self._rings or not said.startswith(("Your", "I will")):
            return False
        lock = self._kept.try_to_ring()
        if lock is not None:
            lock.release()
        return lock is not None

    # Runs on the thread of the skills.

    def _run(self) -> None:
        for module in (
            "skills.understand",
            "skills.requests",
            "skills.about_itself",
        ):
            import_module(f"voxtui.{module}")
        while self._rings and not self._closed:
            self._changed.clear()
            try:
                wait_s = self._look()
            except Exception as error:  # noqa: BLE001 - other timers still ring
                wait_s = LOOK_SECONDS
                if repr(error) != self._failure:
                    self._failure = repr(error)
                    log_failure(error)
            self._changed.wait(wait_s)

    def _look(self) -> float:
        """Report changes of the files, ring what is due, and return seconds until the next look."""
        from voxtui.skills.hours import utc

        try:
            seen = self._kept.signature()
            if seen != self._seen:
                self._seen, self._entries = seen, self._kept.read()
                self._emit(CountdownsChanged(self._entries.countdowns()))
            due = self._entries.next_due
            if due is None:
                return LOOK_SECONDS
            if self._lock is None:
                self._lock = self._kept.try_to_ring()
            now = utc(self.now())
            if due <= now and self._lock is not None:
                self._ring(now)
                return 0.0
            return min(LOOK_SECONDS, max(0.0, (due - now).total_seconds())) or LOOK_SECONDS
        except InputError as error:
            if str(error) != self._failure:
                self._failure = str(error)
                self._emit(Notice(self._failure, "error"))
            return LOOK_SECONDS

    def _ring(self, now: datetime) -> None:
        from voxtui.skills.requests import due_sentence
        from voxtui.skills.timer_store import Entries, Reminder, Timer

        rung: list[tuple[Timer | Reminder, timedelta]] = []

        def take(entries: Entries) -> Entries:
            rung.clear()
            timers, reminders = list[Timer](), list[Reminder]()
            for timer in entries.timers:
                if timer.ends is not None and timer.ends <= now:
                    rung.append((timer, now - timer.ends))
                else:
                    timers.append(timer)
            for reminder in entries.reminders:
                if reminder.at <= now:
                    rung.append((reminder, now - reminder.at))
                else:
                    reminders.append(reminder)
            return Entries(tuple(timers), tuple(reminders))

        self._kept.change(take)
        for entry, late in rung:
            self._emit(Rang(due_sentence(entry, late)))
