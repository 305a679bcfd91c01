"""The skills of the person at this machine: clock, sums, units, timers and reminders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from voxtui.dialogue.events import CountdownsChanged, Event, Notice, Rang, Reminded, RingsIn
from voxtui.dialogue.protocols import SkillAnswer, SkillRequest
from voxtui.dialogue.skill_errors import log_failure
from voxtui.dialogue.tool_interface import Tool, ToolResult, offered, rule_call
from voxtui.dialogue.turn.run_tool import DONE_ALREADY
from voxtui.errors import InputError
from voxtui.skills import timer_alarm
from voxtui.skills.local_time import seconds_since_boot, utc
from voxtui.skills.rules.spoken import SNOOZE_SECONDS
from voxtui.skills.timer_store import Entries, TimerStore

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from voxtui.dialogue.data import ToolCall
    from voxtui.skills.requests import Made
    from voxtui.skills.rules.intents import Question

LOOK_SECONDS = 1.0
"""Interval at which the files are checked, because another voxtui may change them."""

CLOCK_SET_SECONDS = 2.0
"""Difference from which the clock was set by somebody, and did not drift."""

CLOSE_SECONDS = 2.0
"""Maximum wait for the thread. Compiling the rules takes a tenth of a second."""

_SPOKEN = (
    ("timer", "set, change, stop or list timers, alarms and reminders", True),
    ("clock", "the time, the date, days until a date, sums, units", False),
)
"""The rules as tools: name, line, and whether they change something."""

_RINGS_IF_OPEN = "It rings while voxtui is open."


class _Words(msgspec.Struct, forbid_unknown_fields=True):
    request: str


class AssistantSkills:
    """Answers from rules, without a model. `now` returns the local time.

    `folder` holds the files of timers and reminders. Several processes may share it; one of them
    rings. A command that ends soon sets `rings` to False and never rings. `make_tools` takes 50 ms,
    because it compiles the tools' rules. `resources` belong to the tools and are closed with the
    skills.
    """

    def __init__(
        self,
        folder: Path,
        rings: bool = True,
        now: Callable[[], datetime] = datetime.now,
        make_tools: Callable[[], tuple[Tool, ...]] = tuple,
        resources: ExitStack | None = None,
    ) -> None:
        self._store = TimerStore(folder)
        self._rings = rings
        self._emit: Callable[[Event], object] = lambda event: None
        self.now = now
        self._make_tools = make_tools
        self._resources = resources or ExitStack()
        self._made: Made | None = None
        """what the last words have set, which the next may correct"""
        self._asked: Question | None = None
        """the question that the user's next words answer"""
        self._lock: BaseFileLock | None = None
        """the lock of the one process that rings, if this one has it"""
        self._entries = Entries()
        self._alarm = timer_alarm.TimerAlarm()
        self._announced: datetime | None = None
        """the time whose first chime was announced"""
        self._stop: tuple[float, bool] | None = None
        """the order to stop, until the thread has carried it out: snooze (s), forget missed"""
        self._unwritten: list[Callable[[Entries], Entries]] = []
        """the thread's changes that could not be written to the files yet"""
        self._failures: set[str] = set()
        """the failures that were reported"""
        self._booted_at = 0.0
        """the time of the boot by the clock of the last look, in seconds since 1970"""
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
        self._resources.close()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def answer(self, request: SkillRequest) -> SkillAnswer | ToolCall | None:
        """Return the answer to the user's words, the call of a tool, or None. See Skills."""
        answer = self._answer(request)
        return SkillAnswer(answer) if isinstance(answer, str) else answer

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self._tools

    @cached_property
    def _tools(self) -> tuple[Tool, ...]:
        tools = self._make_tools()
        return (*tools, *self._spoken_tools()) if tools else ()

    def _spoken_tools(self) -> tuple[Tool, ...]:
        """Return the rules as tools, for a brain that answers before it knows the words."""
        about = {"type": "string", "description": "what the user wants, in English words"}
        schema = {"type": "object", "properties": {"request": about}, "required": ["request"]}
        text = msgspec.json.encode(schema).decode()
        return tuple(
            Tool(name, line, self._call, text, acts=acts, trusted=True, unheard=True)
            for name, line, acts in _SPOKEN
        )

    def _call(self, arguments: str, cancelled: threading.Event) -> ToolResult:
        words = msgspec.json.decode(arguments, type=_Words).request
        answer = self.answer(SkillRequest(words))
        if not isinstance(answer, SkillAnswer):
            raise InputError("I did not understand that. Please say it in other words.")
        return ToolResult("", answer.text)

    def _answer(self, request: SkillRequest) -> SkillAnswer | ToolCall | str | None:
        from voxtui.skills.requests import acts, carry_out, completed, correction, undoing
        from voxtui.skills.rules.about_itself import about_itself
        from voxtui.skills.rules.intents import Do, Fact, NewReminder, Question, TimerRequest
        from voxtui.skills.rules.timer_words import ringing_orders
        from voxtui.skills.rules.understand import understand

        asked, self._asked = self._asked, None
        made, self._made = self._made, None
        words, now = request.words, self.now()
        orders = ringing_orders(words)
        if (obeyed := self._obey(orders)) is not None:
            return obeyed
        if not request.called:
            return None
        if call := rule_call(self.tools, words):
            return call
        if "quiet" in orders:
            return "Okay."
        # That it cannot do a thing is no answer where a tool may do it.
        if not offered(self.tools, words, request.sends_to) and (
            itself := about_itself(words, request.sends_to, request.config)
        ):
            return itself
        plain = meaning = understand(words, now, request.past)
        # "Five minute timer" sets a timer, but not in answer to "Which one?"
        if asked and (plain is None or getattr(plain, "do", None) is Do.START):
            meaning = completed(asked, words, now) or plain
        instead_of = None
        if made and plain is None and not request.again:
            corrected = correction(made, words, now)
            if corrected == "undo":
                meaning = undoing(made)
            elif corrected:
                meaning, instead_of = corrected, made
        match meaning:
            case None:
                return None
            case Fact():
                return SkillAnswer(meaning.sentence, meaning.language, meaning.pace)
            case Question():
                said = meaning
            case change if request.again and acts(change):
                return DONE_ALREADY
            case change:
                try:
                    said = carry_out(change, self._store, now, instead_of)
                except InputError as error:
                    return f"That cannot be stored. {error}"
                finally:
                    self._changed.set()
                if isinstance(change, TimerRequest | NewReminder) and _says_set(said):
                    self._made = change
                elif not acts(change):  # "How long is left?"
                    self._made = made
        if isinstance(said, Question):
            if plain is None and said.sentence.startswith("There is no"):
                return None  # the words were no answer
            self._asked = said if said.retry else None
            return said.sentence
        return f"{said} {_RINGS_IF_OPEN}" if self._unheard(said) else said

    @property
    def rang(self) -> bool:
        return self._alarm.just_rang(utc(self.now()))

    def stop_ringing(
        self,
        snooze: bool = False,
        missed: bool = False,
        seconds: float = SNOOZE_SECONDS,
    ) -> bool:
        ringing = self._alarm.entries
        rings = bool(ringing) or (snooze and self.rang)
        if rings or missed:
            snooze_s, before = self._stop or (0.0, False)
            self._stop = (seconds if snooze else snooze_s, missed or before)
            self._changed.set()
        if ringing:
            self._emit(RingsIn(None))  # at once: the thread may be at a file
        return rings

    def _obey(self, orders: Mapping[str, float]) -> str | None:
        """Return the answer to `orders` about what rings or rang, or None if nothing does."""
        missed = any(entry.missed for entry in self._entries.all)
        rang = self.rang
        if missed and "clear" in orders and not self._alarm.entries:
            self.stop_ringing(missed=True)
            return "Cleared."
        if rang and "snooze" in orders:
            self.stop_ringing(snooze=True, seconds=orders["snooze"])
            return timer_alarm.snooze_sentence(self._alarm.last, orders["snooze"])
        seconds = timer_alarm.KEY_SECONDS
        heard = "heard" in orders and self._alarm.just_rang(utc(self.now()), seconds)
        if heard or (rang and "stop" in orders):
            self.stop_ringing()
            return "Okay."
        return None

    def doubt(self, reply: str) -> str | None:
        """Return a sentence if `reply` claims a timer or a message. See Skills."""
        from voxtui.skills.rules.about_itself import doubt

        return doubt(reply)

    def _unheard(self, said: str) -> bool:
        """Return True if something was set that no running voxtui will ring."""
        if self._rings or not _says_set(said):
            return False
        lock = self._store.try_to_ring()
        if lock is not None:
            lock.release()
        return lock is not None

    # Runs on the thread of the skills.

    def _run(self) -> None:
        for module in ("skills.rules.understand", "skills.requests", "skills.rules.about_itself"):
            import_module(f"voxtui.{module}")
        while self._rings and not self._closed:
            self._changed.clear()
            try:
                wait_s = self._look()
            except Exception as error:  # noqa: BLE001 - other timers still ring
                wait_s = LOOK_SECONDS
                self._report(error)
            self._changed.wait(wait_s)

    def _report(self, error: Exception) -> None:
        if repr(error) in self._failures:
            return
        self._failures.add(repr(error))
        if isinstance(error, InputError):
            self._emit(Notice(str(error), "error"))
        else:
            log_failure(error)

    def _write(self) -> None:
        if not self._unwritten:
            return
        try:
            with self._store.changing() as stored:
                for change in self._unwritten:
                    stored.entries = change(stored.entries)
            self._unwritten.clear()
        except InputError as error:
            self._report(error)

    def _look(self) -> float:
        """Report changes of the files, ring what is due, and return seconds to the next look."""
        self._carry_out_stop()
        self._write()
        known = self._entries
        self._read()
        now = utc(self.now())
        due = self._entries.next_due
        clock_set = self._clock_set(now)
        if self._lock is None and not self._is_ours(due):
            return LOOK_SECONDS
        if clock_set:
            self._alarm.move(clock_set)
            self._unwritten.append(lambda entries: timer_alarm.moved(entries, known, clock_set))
            return 0.0
        self._announce(due, now)
        if due is not None and due <= now:
            self._ring(now)
            return 0.0
        waits = [LOOK_SECONDS]
        if due is not None:
            left = (due - now).total_seconds()
            waits.append(left if due == self._announced else left - timer_alarm.AHEAD_SECONDS)
        if self._alarm.entries:
            waits.append(self._go_on_ringing(now))
        return max(0.001, min(waits))

    def _is_ours(self, due: datetime | None) -> bool:
        """Return True if what is due rings here; also if the lock cannot be had or asked for."""
        if due is None and not self._alarm.entries:
            return False
        try:
            self._lock = self._store.try_to_ring()
        except InputError as error:
            self._report(error)
            return True
        return self._lock is not None

    def _clock_set(self, now: datetime) -> timedelta:
        """Return how far the clock was set forward since the last look; back, if negative."""
        before, self._booted_at = self._booted_at, now.timestamp() - seconds_since_boot()
        seconds = self._booted_at - before if before else 0.0
        return timedelta(seconds=seconds if abs(seconds) >= CLOCK_SET_SECONDS else 0.0)

    def _read(self) -> None:
        entries = self._store.read()
        for change in self._unwritten:
            entries = change(entries)
        if entries == self._entries:
            return
        self._entries = entries
        if self._alarm.entries and not {*self._entries.all}.intersection(self._alarm.entries):
            self._end_ringing()  # it was stopped, snoozed or cancelled, here or elsewhere
        self._emit(CountdownsChanged(self._entries.countdowns(self._alarm.entries)))

    def _announce(self, due: datetime | None, now: datetime) -> None:
        """Announce the first chime of what is due next, or that it is cancelled."""
        if due is not None and (due - now).total_seconds() <= timer_alarm.AHEAD_SECONDS:
            if due != self._announced:
                self._announced = due
                if (now - due).total_seconds() < timer_alarm.LATE_SECONDS:
                    self._emit(RingsIn(max(0.0, (due - now).total_seconds())))
        elif self._announced is not None:
            if self._announced > now:  # cancelled at the last moment
                self._emit(RingsIn(None))
            self._announced = None

    def _ring(self, now: datetime) -> None:
        _, rung = timer_alarm.ring_due(self._entries, now)
        self._unwritten.append(lambda entries: timer_alarm.ring_due(entries, now)[0])
        self._write()
        rings = [entry for entry, late in rung if late.total_seconds() < timer_alarm.LATE_SECONDS]
        if rings:
            self._alarm.add(rings, now)
        for entry, late in rung:
            self._emit(Rang(timer_alarm.due_sentence(entry, late)))
            if entry not in rings:
                self._emit(Reminded(timer_alarm.due_sentence(entry, late)))

    def _go_on_ringing(self, now: datetime) -> float:
        """Take the next step of the ringing if it is due. Return the seconds until the next."""
        match self._alarm.step(now):
            case (at, timer_alarm.Step.CHIME):
                left = timer_alarm.AHEAD_SECONDS - (now - at).total_seconds()
                self._emit(RingsIn(max(0.0, left)))
            case (_, timer_alarm.Step.SPEAK):
                for entry in self._alarm.entries:
                    self._emit(Reminded(timer_alarm.due_sentence(entry, timedelta())))
            case (_, timer_alarm.Step.END):
                self._end_ringing()
                self._emit(CountdownsChanged(self._entries.countdowns()))
                return LOOK_SECONDS
            case None:
                pass
        return self._alarm.wait(now)

    def _end_ringing(self) -> None:
        self._alarm.stop(utc(self.now()))
        self._emit(RingsIn(None))
        self._announced = None  # what is due at this moment is announced anew

    def _carry_out_stop(self) -> None:
        """Remove stopped entries, or let them ring again."""
        order, self._stop = self._stop, None
        if order is None:
            return
        snooze_s, missed = order
        last, until = self._alarm.last, utc(self.now()) + timedelta(seconds=snooze_s)
        ended = () if snooze_s else self._alarm.entries

        def change(entries: Entries) -> Entries:
            if snooze_s:
                entries = timer_alarm.snoozed(entries, last, until)
            left = (e for e in entries.all if e not in ended and not (missed and e.missed))
            return Entries(tuple(left))

        self._unwritten.append(change)


def _says_set(said: str | Question) -> bool:
    return isinstance(said, str) and said.startswith(("Your", "I will"))
