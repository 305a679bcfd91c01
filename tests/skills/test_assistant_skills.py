"""Timers and reminders: what is done, what is kept, and what rings."""

import stat
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.deadline import SECONDS
from tests.fakes import Events, Flag
from tests.ui.pseudo_terminal import until
from voxtui.dialogue.events import CountdownsChanged, Event, Notice, Rang, Reminded, RingsIn
from voxtui.dialogue.protocols import SkillRequest
from voxtui.errors import InputError
from voxtui.skills import assistant_skills, timer_store
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.skills.timer_store import Entries, TimerStore, reminders_file, timers_file

NOON = datetime(2026, 11, 22, 12, 0)


class Clock:
    """FakeClock: local time that a test sets."""

    def __init__(self) -> None:
        self.now = NOON
        self._set_by = timedelta()

    def __call__(self) -> datetime:
        return self.now

    def since_boot(self) -> float:
        return (self.now - NOON - self._set_by).total_seconds()

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)

    def set(self, **span: float) -> None:
        self._set_by += timedelta(**span)
        self.now += timedelta(**span)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(assistant_skills, "seconds_since_boot", clock.since_boot)
    return clock


@pytest.fixture
def skills(tmp_path, clock) -> AssistantSkills:
    return AssistantSkills(tmp_path, now=clock)


def ask(skills: AssistantSkills, words: str, again: bool = False) -> str | None:
    answered = skills.answer(SkillRequest(words, again))
    return answered and answered.text


SUNDAY, MONDAY = "2026-11-22", "2026-11-23"


@pytest.mark.parametrize(
    ("said", "then", "due"),
    [
        ("Set a timer for ten minutes.", "Oh no, wait, cancel that.", []),
        ("Set an alarm for five.", "No, hang on, don't bother.", []),
        (
            "Remind me in an hour to move the car.",
            "No sorry, make it two hours.",
            [f"{SUNDAY} 14:00"],
        ),
        ("Set a pasta timer for ten minutes.", "I meant twelve minutes.", [f"{SUNDAY} 12:12"]),
        (
            "Remind me tomorrow at seven in the evening to eat.",
            "Make that eight.",
            [f"{MONDAY} 20:00"],
        ),
        (
            "Set an alarm for noon tomorrow.",
            "Can you move that to one o'clock?",
            [f"{MONDAY} 13:00"],
        ),
        ("Set an alarm for 7 pm.", "I meant seven tomorrow morning.", [f"{MONDAY} 07:00"]),
        (
            "Remind me in half an hour that the cake is in.",
            "Make it 40 minutes.",
            [f"{SUNDAY} 12:40"],
        ),
        # What may mean something else changes nothing.
        ("Set an alarm for 11:30 am tomorrow.", "Make it two.", [f"{MONDAY} 11:30"]),
        ("Set a timer for ten minutes.", "Don't cancel it.", [f"{SUNDAY} 12:10"]),
        ("Set a timer for ten minutes.", "Make it funny.", [f"{SUNDAY} 12:10"]),
        ("Set a timer for ten minutes.", "Forget it, he never called.", [f"{SUNDAY} 12:10"]),
        ("Set a timer for ten minutes.", "Cancel that and tell me a joke.", [f"{SUNDAY} 12:10"]),
    ],
)
def test_the_next_words_take_back_or_correct_what_was_set(skills, tmp_path, said, then, due):
    assert ask(skills, said)
    before = TimerStore(tmp_path).read()
    assert bool(ask(skills, then)) == (TimerStore(tmp_path).read() != before)
    entries = TimerStore(tmp_path).read().all
    assert [f"{one.due.astimezone():%Y-%m-%d %H:%M}" for one in entries] == due


def test_only_the_next_words_correct_what_was_set(skills, tmp_path):
    ask(skills, "Set a tea timer for ten minutes.")
    assert ask(skills, "How long is left?") == "The tea timer has 10 minutes left."
    assert ask(skills, "Cancel that.") == "The tea timer is cancelled."
    ask(skills, "Set a timer for ten minutes.")
    assert ask(skills, "What is two plus two?") == "That is 4."
    assert ask(skills, "Cancel that.") is None
    ask(skills, "Set a timer for ten minutes.")
    assert ask(skills, "Make it 5 minutes.") == "Your timer is set for 5 minutes."
    assert [one.seconds for one in TimerStore(tmp_path).read().timers] == [600, 300]  # the newest


def test_a_correction_that_cannot_be_stored_loses_nothing(skills, tmp_path, monkeypatch):
    ask(skills, "Set a timer for ten minutes.")

    def refuse(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(timer_store, "write_file", refuse)
    assert "cannot be stored" in (ask(skills, "Make it 5 minutes.") or "")
    assert [one.seconds for one in TimerStore(tmp_path).read().timers] == [600]


def test_several_named_timers_are_set_read_paused_resumed_and_cancelled(skills, clock):
    assert ask(skills, "Set a pasta timer for ten minutes") == (
        "Your pasta timer is set for 10 minutes."
    )
    assert ask(skills, "Timer for 3 minutes") == "Your timer is set for 3 minutes."
    clock.later(seconds=70)
    assert ask(skills, "How long is left on the pasta timer?") == (
        "The pasta timer has 8 minutes and 50 seconds left."
    )
    assert ask(skills, "Pause the pasta timer") == "The pasta timer is paused."
    clock.later(seconds=60)
    assert ask(skills, "Which timers are running?") == (
        "The pasta timer is paused and has 8 minutes and 50 seconds left. "
        "The timer for 3 minutes has 50 seconds left."
    )
    assert ask(skills, "Resume the pasta timer") == "The pasta timer is running again."
    assert ask(skills, "Add 5 minutes to the pasta timer") == (
        "The pasta timer now has 13 minutes and 50 seconds left."
    )
    assert ask(skills, "Cancel the timer") == (
        "There are 2: the pasta timer and the timer for 3 minutes. Say which one you mean."
    )
    assert ask(skills, "Cancel the 3 minute timer") == "The timer for 3 minutes is cancelled."
    assert ask(skills, "Cancel the rice timer") == "There is no timer called rice."
    assert ask(skills, "Cancel all timers") == "The pasta timer is cancelled."
    assert ask(skills, "How long is left?") == "There is no timer."


def test_a_timer_is_not_shortened_below_nothing(skills):
    ask(skills, "Timer for 3 minutes")
    assert ask(skills, "Take five minutes off the timer") == (
        "The timer for 3 minutes has 3 minutes left. It was not shortened."
    )


def test_reminders_are_set_listed_and_cancelled(skills):
    assert ask(skills, "Remind me tomorrow at nine to call mum") == (
        "I will remind you tomorrow at 9:00 am: call mum."
    )
    assert ask(skills, "Wake me at seven am") == "Your alarm is set for tomorrow at 7:00 am."
    assert ask(skills, "What are my reminders?") == (
        "Tomorrow at 7:00 am: alarm. Tomorrow at 9:00 am: call mum."
    )
    assert ask(skills, "Cancel the reminder to call mum") == "Cancelled: call mum."


def test_an_alarm_is_no_reminder(skills):
    ask(skills, "Remind me tomorrow at nine to call mum")
    assert ask(skills, "Cancel my alarm.") == "There is no alarm."
    ask(skills, "Wake me at seven am")
    assert ask(skills, "Cancel every reminder") == "Cancelled: call mum."
    assert ask(skills, "Cancel all reminders") == "There is no reminder."
    ask(skills, "Remind me at four")
    assert ask(skills, "What are my reminders?") == (
        "Today at 4:00 pm: reminder. Tomorrow at 7:00 am: alarm."
    )
    assert ask(skills, "Cancel the alarm") == "Cancelled: the alarm tomorrow at 7:00 am."
    assert ask(skills, "Cancel the reminder") == "Cancelled: the reminder today at 4:00 pm."


def test_one_of_several_alarms_is_cancelled(skills):
    for hour in ("seven am", "eight am", "nine pm"):
        ask(skills, f"Wake me at {hour}")
    assert ask(skills, "Cancel the ten o'clock alarm") == "There is no such alarm."
    assert ask(skills, "Cancel my 9PM alarm") == ("Cancelled: the alarm today at 9:00 pm.")
    assert ask(skills, "Cancel the alarm") == (
        "There are 2: the alarm tomorrow at 7:00 am and the alarm tomorrow at 8:00 am. "
        "Say which one you mean."
    )
    assert ask(skills, "The eight o'clock one") == "Cancelled: the alarm tomorrow at 8:00 am."
    assert ask(skills, "Delete the alarm at seven") == "Cancelled: the alarm tomorrow at 7:00 am."


def test_an_entry_without_a_name_from_an_older_file_is_an_alarm(skills, tmp_path):
    reminders_file(tmp_path).write_text('[{"at": "2026-11-23T07:00:00Z"}]')
    assert ask(skills, "Cancel all reminders") == "There is no reminder."
    assert (ask(skills, "Cancel all alarms") or "").startswith("Cancelled: the alarm tomorrow")


@pytest.mark.parametrize("answer", ["The five minute timer.", "five minute timer", "Five minutes"])
def test_the_timer_that_is_meant_is_no_new_one(skills, answer):
    ask(skills, "Set a timer for 5 minutes")
    ask(skills, "Set a tea timer for 10 minutes")
    assert "which one" in (ask(skills, "Take one minute off the timer") or "")
    assert ask(skills, answer) == "The timer for 5 minutes now has 4 minutes left."
    assert "which one" in (ask(skills, "Stop the timer") or "")
    assert ask(skills, "tea") == "The tea timer is cancelled."
    assert ask(skills, "the five minute timer") is None


@pytest.mark.parametrize("verb", ["Change", "Reset", "Extend"])
def test_a_timer_that_is_changed_is_no_new_one(skills, verb):
    ask(skills, "Set a timer for 5 minutes")
    assert ask(skills, f"{verb} timer to 10 minutes") is None


def test_the_next_words_complete_a_request(skills):
    assert ask(skills, "Set a timer for the pasta") == "For how long?"
    assert ask(skills, "Ten minutes.") == "Your pasta timer is set for 10 minutes."
    assert ask(skills, "Remind me tomorrow at five to call mum") == (
        "In the morning or in the afternoon?"
    )
    assert ask(skills, "In the afternoon.") == "I will remind you tomorrow at 5:00 pm: call mum."
    assert ask(skills, "Remind me to buy milk") == "When?"
    assert ask(skills, "What is the capital of Italy?") is None
    assert ask(skills, "In ten minutes.") is None


def test_nothing_is_done_twice_for_one_utterance(skills):
    ask(skills, "Timer for 3 minutes")
    assert ask(skills, "Timer for 3 minutes", again=True) == (
        "That is done already. Say it again if you want it twice."
    )
    assert ask(skills, "How long is left?", again=True) == (
        "The timer for 3 minutes has 3 minutes left."
    )


def test_the_files_are_private_readable_and_never_written_through_a_link(skills, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("[]")
    timers_file(tmp_path).symlink_to(elsewhere)
    ask(skills, "Set a tea timer for 4 minutes")
    ask(skills, "Remind me tomorrow at nine to call mum")
    for path in (timers_file(tmp_path), reminders_file(tmp_path)):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert '"name": "tea"' in timers_file(tmp_path).read_text()
    assert elsewhere.read_text() == "[]"


def test_a_damaged_file_is_named_and_kept(skills, tmp_path):
    timers_file(tmp_path).write_text("{")
    said = ask(skills, "Timer for 3 minutes")
    assert said is not None and "timers.json: is damaged" in said and "delete it" in said
    assert timers_file(tmp_path).read_text() == "{"


def test_nothing_is_created_before_it_is_asked_for(tmp_path, clock):
    folder = tmp_path / "data"
    skills = AssistantSkills(folder, now=clock)
    skills.start(Events())
    ask(skills, "What time is it?")
    skills.close()
    assert not folder.exists()


def started(folder: Path, clock: Clock) -> tuple[AssistantSkills, Events]:
    skills, events = AssistantSkills(folder, now=clock), Events()
    skills.start(events)
    return skills, events


@contextmanager
def rung(tmp_path, clock):
    """Yield skills whose tea timer has just rung, and their events."""
    skills, events = started(tmp_path, clock)
    try:
        ask(skills, "Set a tea timer for ten minutes")
        clock.later(minutes=10)
        events.until(Rang)
        yield skills, events
    finally:
        skills.close()


def test_a_timer_rings_until_it_is_stopped_and_is_gone(tmp_path, clock):
    skills, events = started(tmp_path, clock)
    try:
        ask(skills, "Set a pasta timer for ten minutes")
        events.until(CountdownsChanged, lambda e: [c.name for c in e.countdowns] == ["pasta"])
        clock.later(minutes=10)
        rang = events.until(Rang)
        assert rang == Rang("Your pasta timer is done.")
        events.until(CountdownsChanged, lambda e: [c.rings for c in e.countdowns] == [True])
        clock.later(seconds=2)
        assert events.until(Reminded) == Reminded("Your pasta timer is done.")
        clock.later(seconds=5)
        assert events.until(RingsIn).seconds == pytest.approx(0.0, abs=0.1)
        assert skills.stop_ringing()
        events.until(CountdownsChanged, lambda e: e.countdowns == ())
        assert not skills.stop_ringing()
        assert TimerStore(tmp_path).read() == Entries()
    finally:
        skills.close()


def test_a_chime_is_announced_before_its_time_and_withdrawn_if_it_is_cancelled(tmp_path, clock):
    skills, events = started(tmp_path, clock)
    try:
        ask(skills, "Set a timer for ten seconds")
        clock.later(seconds=9.5)
        assert events.until(RingsIn) == RingsIn(0.5)
        ask(skills, "Cancel the timer")
        assert events.until(RingsIn) == RingsIn(None)
        events.drain()
        assert events.of(Rang) == []
    finally:
        skills.close()


@pytest.mark.parametrize("hours", [1, -1, 72])
def test_a_timer_rings_after_its_length_although_the_clock_was_set(tmp_path, clock, hours):
    skills, events = started(tmp_path, clock)
    try:
        ask(skills, "Set a tea timer for ten minutes")
        ask(skills, "Remind me tomorrow at noon to call Ada")
        events.until(CountdownsChanged, lambda e: len(e.countdowns) == 2)
        clock.set(hours=hours)
        ends = clock.now.timestamp() + 600
        moved = events.until(CountdownsChanged, lambda e: ends in [c.ends for c in e.countdowns])
        reminded_at = (NOON + timedelta(days=1)).timestamp()
        assert hours > 24 or reminded_at in [c.ends for c in moved.countdowns]
        clock.later(minutes=10)
        events.until(Rang, lambda e: e == Rang("Your tea timer is done."))
        events.until(CountdownsChanged, lambda e: any(c.rings for c in e.countdowns))
        clock.set(hours=hours)
        clock.later(seconds=2)
        assert events.until(Reminded, lambda e: "tea" in e.sentence)
        clock.later(minutes=2)
        events.until(CountdownsChanged, lambda e: not any(c.rings for c in e.countdowns))
    finally:
        skills.close()


def test_what_nobody_stops_is_missed_after_two_minutes_and_stays_in_the_list(tmp_path, clock):
    with rung(tmp_path, clock) as (skills, events):
        clock.later(minutes=2)
        missed = events.until(CountdownsChanged, lambda e: not any(c.rings for c in e.countdowns))
        assert [(c.name, c.missed) for c in missed.countdowns] == [("tea", True)]
        assert (
            ask(skills, "How long is left on the tea timer?")
            == "The tea timer ended 2 minutes ago."
        )
        skills.stop_ringing(missed=True)
        events.until(CountdownsChanged, lambda e: e.countdowns == ())


def test_stop_alone_needs_no_model(skills):
    for words in ("Stop.", "Stop talking!", "Enough", "Stop talking now.", "Be quiet, please."):
        assert ask(skills, words) == "Okay."
    assert ask(skills, "Okay.") is None
    assert ask(skills, "Stop the world, I want to get off.") is None


@pytest.mark.parametrize(
    "words", ["Stop.", "Okay", "Alright, thanks", "Turn that thing off", "stop the timer"]
)
def test_words_stop_what_rings(tmp_path, clock, words):
    with rung(tmp_path, clock) as (skills, events):
        assert ask(skills, words) == "Okay."
        events.until(CountdownsChanged, lambda e: e.countdowns == ())


def test_what_still_runs_is_stopped_by_its_name_and_after_what_rang(tmp_path, clock):
    skills, events = started(tmp_path, clock)
    try:
        ask(skills, "Set a tea timer for ten minutes")
        ask(skills, "Set a rice timer for twenty minutes")
        ask(skills, "Set a pasta timer for thirty minutes")
        clock.later(minutes=10)
        events.until(Rang)
        assert ask(skills, "Stop the rice timer") == "The rice timer is cancelled."
        assert skills.rang and ask(skills, "Stop the timer") == "Okay."
        events.until(CountdownsChanged, lambda e: len(e.countdowns) == 1)
        clock.later(seconds=20)
        assert ask(skills, "Stop the timer") == "The pasta timer is cancelled."
    finally:
        skills.close()


def test_yes_answers_the_brain_soon_after_something_rang(tmp_path, clock):
    with rung(tmp_path, clock) as (skills, events):
        skills.stop_ringing()  # as the talk key does
        events.until(CountdownsChanged, lambda e: e.countdowns == ())
        clock.later(seconds=3)
        assert ask(skills, "Okay, thanks.") == "Okay."
        clock.later(seconds=10)
        assert [ask(skills, words) for words in ("Yes.", "Thanks", "Okay")] == [None] * 3
        assert ask(skills, "Turn it off") == "Okay."


@pytest.mark.parametrize(
    ("words", "minutes"), [("Snooze", 5), ("snooze for ten minutes", 10), ("five more minutes", 5)]
)
def test_words_snooze_what_rings_or_was_just_stopped(tmp_path, clock, words, minutes):
    with rung(tmp_path, clock) as (skills, events):
        skills.stop_ringing()  # as the talk key does
        events.until(CountdownsChanged, lambda e: e.countdowns == ())
        assert ask(skills, words) == f"Tea rings again in {minutes} minutes."
        events.until(CountdownsChanged, lambda e: len(e.countdowns) == 1)
        clock.later(minutes=minutes)
        assert events.until(Rang) == Rang("Your tea timer is done.")
        skills.stop_ringing(snooze=True)
        events.until(CountdownsChanged, lambda e: [c.rings for c in e.countdowns] == [False])
        clock.later(minutes=5)
        assert events.until(Rang) == Rang("Your tea timer is done.")


@pytest.mark.parametrize(
    "entry",
    [
        '{"seconds": -5, "name": "tea"}',
        '{"seconds": 1e300}',
        '{"seconds": 60, "left": -1e9}',
        '{"seconds": 60, "name": "a\u202eb"}',
        '{"seconds": 60, "ends": "9999-12-31T23:59:59-14:00"}',
        '{"x": ' + "[" * 100_000,
    ],
    ids=lambda entry: entry[:30],
)
def test_a_file_edited_by_hand_is_refused_with_a_reason(tmp_path, entry):
    timers_file(tmp_path).write_text(f"[{entry}]")
    with pytest.raises(InputError, match="is damaged"):
        TimerStore(tmp_path).read()


def test_a_reminder_at_the_end_of_the_calendar_is_refused_with_a_reason(tmp_path):
    reminders_file(tmp_path).write_text('[{"at": "9999-12-31T23:59:59-14:00"}]')
    with pytest.raises(InputError, match="in the year 9999"):
        TimerStore(tmp_path).read()


def test_what_was_missed_is_said_at_the_next_start(tmp_path, clock):
    before = AssistantSkills(tmp_path, now=clock)
    ask(before, "Set a pasta timer for ten minutes")
    ask(before, "Remind me in an hour to call mum")
    clock.later(minutes=74)
    skills, events = started(tmp_path, clock)
    try:
        assert events.until(Rang) == Rang("Your pasta timer ended 1 hour ago.")
        assert events.until(Rang) == Rang("Reminder, due 14 minutes ago: call mum.")
    finally:
        skills.close()


def test_of_two_one_rings_and_the_other_takes_over(tmp_path, clock):
    first, rings = started(tmp_path, clock)
    ask(first, "Timer for 5 minutes")
    rings.until(CountdownsChanged, lambda e: len(e.countdowns) == 1)
    kept = TimerStore(tmp_path)
    while (lock := kept.try_to_ring()) is not None:
        lock.release()  # the thread of the first has not taken it yet
    second, silent = started(tmp_path, clock)
    try:
        silent.until(CountdownsChanged, lambda e: len(e.countdowns) == 1)
        clock.later(minutes=5)
        rings.until(Rang)
        assert first.stop_ringing()
        silent.until(CountdownsChanged, lambda e: e.countdowns == ())
        assert silent.of(Rang) == []
        first.close()
        ask(second, "Timer for 5 minutes")
        silent.until(CountdownsChanged, lambda e: len(e.countdowns) == 1)
        clock.later(minutes=5)
        assert silent.until(Rang) == Rang("Your timer for 5 minutes is done.")
    finally:
        first.close()
        second.close()


def test_a_snooze_that_waits_is_not_lost_by_a_stop(tmp_path, clock):
    rang, go_on, events = Flag(), Flag(), Events()

    def emit(event: Event) -> None:
        events(event)
        if isinstance(event, Rang):
            rang.set()
            assert go_on.wait(SECONDS)

    skills = AssistantSkills(tmp_path, now=clock)
    skills.start(emit)
    try:
        ask(skills, "Set a tea timer for ten minutes")
        clock.later(minutes=10)
        assert rang.wait(SECONDS)
        assert skills.stop_ringing(snooze=True)
        skills.stop_ringing()  # the talk key, before the thread has looked
        events.drain()
        go_on.set()
        events.until(CountdownsChanged, lambda e: [c.rings for c in e.countdowns] == [False])
        (tea,) = TimerStore(tmp_path).read().all
        assert not tea.missed and tea.remaining(clock.now.astimezone(UTC)) == 300
    finally:
        skills.close()


@pytest.mark.parametrize("failing", ["write_file", "_acquire"])
def test_a_timer_rings_and_is_stopped_while_its_files_cannot_be_written(
    tmp_path, clock, monkeypatch, failing
):
    def fail(*_: object, **__: object) -> None:
        raise InputError("No space left on device")

    def rings(*which: bool) -> None:
        ask(skills, "How long is left?")  # so that the thread looks now
        events.until(CountdownsChanged, lambda e: [c.rings for c in e.countdowns] == [*which])

    skills, events = started(tmp_path, clock)
    try:
        ask(skills, "Set a tea timer for ten minutes")
        rings(False)
        with monkeypatch.context() as full:
            full.setattr(timer_store, failing, fail)
            clock.later(minutes=10)
            rings(True)
            assert ask(skills, "Snooze") == "Tea rings again in 5 minutes."
            rings(False)
            clock.later(minutes=5)
            rings(True)
            assert skills.stop_ringing()
            rings()
            assert len(events.of(Rang)) == 2 and len(events.of(Notice)) == 1
            assert len(TimerStore(tmp_path).read().all) == 1
        ask(skills, "How long is left?")
        until(lambda: TimerStore(tmp_path).read() == Entries())
    finally:
        skills.close()


def test_a_damaged_file_is_reported_once(tmp_path, clock):
    timers_file(tmp_path).write_text("{")
    skills, events = started(tmp_path, clock)
    try:
        notice = events.until(Notice)
        assert isinstance(notice, Notice) and "is damaged" in notice.message
    finally:
        skills.close()


def test_a_command_that_ends_soon_says_who_rings(tmp_path, clock):
    alone = AssistantSkills(tmp_path, rings=False, now=clock)
    assert ask(alone, "Timer for 5 minutes") == (
        "Your timer is set for 5 minutes. It rings while voxtui is open."
    )
    lock = TimerStore(tmp_path).try_to_ring()
    assert lock is not None
    try:
        assert ask(alone, "Timer for 5 minutes") == "Your timer is set for 5 minutes."
    finally:
        lock.release()


def test_a_time_of_day_is_kept_in_universal_time(tmp_path, clock):
    skills = AssistantSkills(tmp_path, now=clock)
    ask(skills, "Remind me at three to leave")
    (reminder,) = TimerStore(tmp_path).read().reminders
    assert reminder.due == datetime(2026, 11, 22, 15, 0).astimezone(UTC)


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (("Remind me to eat", "tomorrow", "nine"), "I will remind you tomorrow at 9:00 am: eat."),
        (("Remind me tomorrow at five", "5 pm"), "Your reminder is set for tomorrow at 5:00 pm."),
        (("Set a timer", "For ten minutes, please."), "Your timer is set for 10 minutes."),
        (("Set a timer", "Never mind"), None),
        (("Tea timer 5 minutes", "Rice timer 9 minutes", "Stop the timer", "Thanks"), None),
        (("Wake me at 7 am", "Wake me at 8 am", "Cancel the alarm", "no"), None),
        (
            ("Wake me at 7 am", "Wake me at 8 am", "Cancel the alarm", "Both of them."),
            "Cancelled: the alarm tomorrow at 7:00 am and the alarm tomorrow at 8:00 am.",
        ),
        (
            ("Remind me at 5 pm to eat", "Remind me at 6 pm to go", "Cancel the reminder", "Why?"),
            None,
        ),
    ],
)
def test_words_answer_a_question_or_are_left_to_the_brain(skills, said, answered):
    assert [ask(skills, words) for words in said][-1] == answered
