"""The first tools, on real files, a real git and real programs."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from tests.deadline import SECONDS
from voxtui.brains.embedded.tool_prompt import tool_choice, tool_prefix
from voxtui.dialogue.data import ToolCall
from voxtui.dialogue.protocols import ReplyOptions, SkillAnswer, SkillRequest
from voxtui.dialogue.tool_interface import Tool, ToolResult, rule_call
from voxtui.errors import ConfigError, InputError
from voxtui.settings.schema import ToolCommand, ToolsConfig
from voxtui.settings.sources import load_config
from voxtui.skills.assistant_skills import AssistantSkills
from voxtui.tools.calendar import Query, calendar_tool, query_in, span
from voxtui.tools.configured_tools import build_tools
from voxtui.tools.notes import Notes, note_in
from voxtui.tools.notes import query_in as notes_in
from voxtui.tools.words import OUTPUT_BYTES, output_of

NEVER = threading.Event()
LAMP = ToolCommand(
    "lamp",
    "switch the {room} lamp {state}",
    (sys.executable, "-c", "import sys; print(sys.argv[1:])", "{room}", "{state}"),
    {"room": ("hall", "living room"), "state": ("on", "off")},
)


def run(tool: Tool, **arguments) -> ToolResult:
    assert tool.run is not None
    return tool.run(json.dumps(arguments), NEVER)


def tool(name: str, **config) -> Tool:
    return next(t for t in build_tools(ToolsConfig(**config)) if t.name == name)


# Notes.


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("Remember that the bins go out on Tuesday.", "the bins go out on Tuesday"),
        ("Vox, please remember that Tom is allergic to nuts.", "Tom is allergic to nuts"),
        ("Could you make a note that we are out of milk?", "we are out of milk"),
        ("Note: call the bank.", "call the bank"),
        ("Add oat milk to my notes.", "oat milk"),
        ("Make a note, the boiler is mended at eight.", "the boiler is mended at eight"),
        ("Put birthday candles on my notes, would you?", "birthday candles"),
        ("Keep a note of the mileage: 40 thousand.", "the mileage: 40 thousand"),
        ("Write down in my notes that the key is with Ann.", "the key is with Ann"),
        ("Right, um, make a note that Jo owes me ten euros.", "Jo owes me ten euros"),
        ("Make a note for me: the car is at Tom's.", "the car is at Tom's"),
        ("I'd like you to remember that Ann is away in May.", "Ann is away in May"),
        ("Keep in mind that the shed is locked.", "the shed is locked"),
        ("Remember my locker code is 4 4 1.", "my locker code is 4 4 1"),
    ],
)
def test_an_order_to_remember_is_a_note(words, note):
    arguments = note_in(words)
    assert arguments is not None
    assert json.loads(arguments) == {"text": note}


@pytest.mark.parametrize(
    "words",
    [
        # The model decides, and a key confirms it.
        "I met the vet. Could you write down that the dog is fine?",
        "The vet wants ninety euros, so jot that down for me.",
        "Do you remember that Tom is allergic to nuts?",
        "I remember that we were out of milk.",
        "Don't remember that Tom is coming.",
        "He told me to remember that the bins go out.",
        "Remember that?",
        "Remember that time?",
        "Remember me.",
        "Why do we remember that day?",
        "I can't remember that.",
        "You need not remember that.",
        "Put that down.",
        "Take a note.",
        "Leave it down there.",
        "My mother always said, please remember that you are loved.",
        "If you see him, please remember that he is deaf.",
        "My gran says it often. Remember that life is short.",
        "I met Tom, remember that guy?",
        "You need not write that down.",
        "She told him so, write that down.",
        "She told him, could you remember that he is deaf?",
        "Make a note of it was what he said.",
        "Remember the days when we were young.",
    ],
)
def test_nothing_else_is_a_note(words):
    assert note_in(words) is None


def test_notes_are_a_file_that_the_user_may_edit(tmp_path):
    remember, find = Notes(tmp_path / "new" / "notes.md").tools()
    assert run(remember, text="the bins go out on Tuesday").sentence == (
        "Noted: The bins go out on Tuesday."
    )
    run(remember, text="the bins go out on Tuesday")
    file = tmp_path / "new" / "notes.md"
    assert file.read_text().splitlines()[2:] == ["- The bins go out on Tuesday"]
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(file.read_text() + "* Tom likes tea\n\nWritten by hand\x1b[31m\n")
    assert run(find, about="tom").sentence == "Tom likes tea."
    assert run(find).text.splitlines()[-1] == "Written by hand[31m"
    assert run(find, about="cheese").sentence == "No note says anything about cheese."


def test_a_note_is_one_line_however_it_comes(tmp_path):
    remember, _ = Notes(tmp_path / "notes.md").tools()
    run(remember, text="a\n# head\n- b" + "x" * 9000)
    assert len((tmp_path / "notes.md").read_text().splitlines()) == 3


def test_a_note_begins_a_line_of_its_own(tmp_path):
    (tmp_path / "notes.md").write_text("- written by hand")
    remember, find = Notes(tmp_path / "notes.md").tools()
    run(remember, text="-5 degrees is the freezer")
    assert run(find).text.splitlines() == ["written by hand", "-5 degrees is the freezer"]


def test_the_newest_of_many_notes_is_found(tmp_path):
    (tmp_path / "notes.md").write_text("- an old note\n" * 20_000)
    remember, find = Notes(tmp_path / "notes.md").tools()
    run(remember, text="the newest")
    assert run(find, about="newest").sentence == "The newest."


def test_notes_do_not_follow_a_link(tmp_path):
    (tmp_path / "notes.md").symlink_to(tmp_path / "elsewhere")
    remember, _ = Notes(tmp_path / "notes.md").tools()
    with pytest.raises(InputError, match="cannot be written"):
        run(remember, text="x")


def test_what_is_asked_of_the_notes():
    assert json.loads(notes_in("What's in my notes?") or "") == {"about": ""}
    assert json.loads(notes_in("Read me my notes about the bank.") or "") == {"about": "bank"}
    assert json.loads(notes_in("Do I have any notes about the car?") or "") == {"about": "car"}
    assert json.loads(notes_in("What have I written?") or "null") is None
    assert notes_in("How do people take notes?") is None


# The machine.


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("How much disk space is left?", "disk"),
        ("How full is my hard drive?", "disk"),
        ("How much memory is free?", "memory"),
        ("What's my battery level?", "battery"),
        ("How long has this laptop been on?", "uptime"),
        ("Are there any uncommitted changes?", "git_status"),
    ],
)
def test_a_rule_takes_a_plain_question_to_the_machine(words, name):
    call = rule_call(build_tools(ToolsConfig()), words)
    assert call is not None
    assert call.name == name


@pytest.mark.parametrize(
    "words",
    [
        "How much space is there on the moon?",
        "How full is the glass?",
        "My battery is at ten percent.",
        "How long has this film been on?",
        "How much memory does a brain have?",
    ],
)
def test_a_rule_takes_nothing_else(words):
    assert rule_call(build_tools(ToolsConfig()), words) is None


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Has this laptop got any memory left?", "memory"),
        ("How is my battery doing?", "battery"),
        ("Is there a charger connected?", "battery"),
        ("How long is it since the last reboot?", "uptime"),
        ("Show me the memory stats.", "memory"),
        ("What did I ask you to remember last week? Read it out.", "notes"),
        ("When was this machine last rebooted?", "uptime"),
        ("When did I switch this computer on?", "uptime"),
        ("Has this machine been restarted lately?", "uptime"),
        ("What does it mean that memory is free?", ""),
        ("What's the difference between a disk and a drive?", ""),
        ("Why does my laptop's battery get hot?", ""),
        ("How do I free memory on a computer?", ""),
        ("What is a git branch?", ""),
        ("My tablet has no storage left.", ""),
        ("How full is a typical hard drive?", ""),
        ("Can one put more memory into any old laptop?", ""),
        ("Shall I plug in my laptop?", "battery"),
        ("Have I a note about the car?", "notes"),
        ("Could you find what I wrote down about the boiler?", "notes"),
        ("Read out the text that I copied a moment ago.", "clipboard"),
        ("My teacher wrote me a note.", ""),
        ("Which notes make up a chord?", ""),
        ("My battery is at ten percent again.", ""),
        ("I wrote a note about the car and then lost it.", ""),
        ("Is the battery good for another hour?", "battery"),
        ("Does my watch need charging?", ""),
    ],
)
def test_a_model_is_asked_about_this_machine_only(words, name):
    triggered = {t.name for t in build_tools(ToolsConfig()) if t.line and t.is_triggered(words)}
    assert name in triggered if name else not triggered


def test_disk_memory_and_uptime_of_this_machine():
    assert "gigabytes are free" in run(tool("disk")).sentence
    if Path("/proc/meminfo").exists():
        assert "of memory are free" in run(tool("memory")).sentence
        assert "has been on for" in run(tool("uptime")).sentence


def test_a_machine_without_a_battery_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr("voxtui.tools.machine.POWER", tmp_path)
    with pytest.raises(InputError, match="no battery"):
        run(tool("battery"))
    battery = tmp_path / "BAT0"
    battery.mkdir()
    (battery / "capacity").write_text("57\n")
    (battery / "status").write_text("Charging\n")
    assert run(tool("battery")).sentence == "The battery is at 57 percent, charging."


def test_git_status_runs_no_program_of_the_repository(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="git"):
        run(tool("git_status"))
    subprocess.run(["git", "init", "-q", "-b", "main"], check=True)
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    monitor.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", str(monitor)], check=True)
    assert run(tool("git_status")).sentence == "On main: 1 new file."
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "config", "filter.a=b.clean", f"{monitor}; cat"], check=True)
    (tmp_path / ".gitattributes").write_text("* filter=a=b\n")
    with pytest.raises(InputError, match=r"this repository names \(filter.a=b.clean\)"):
        run(tool("git_status"))
    assert not (tmp_path / "ran").exists()


# Commands.


def test_a_sentence_of_the_user_runs_an_argument_list():
    (lamp,) = (command,) = [t for t in build_tools(ToolsConfig(command=(LAMP,))) if t.acts][:1]
    call = rule_call((lamp,), "Please switch the living room lamp off.")
    assert call is not None
    assert json.loads(call.arguments) == {"room": "living room", "state": "off"}
    assert command.run is not None
    assert command.run(call.arguments, NEVER).text == "['living room', 'off']"


@pytest.mark.parametrize(
    "words",
    [
        "Switch the garage lamp off.",
        "Don't switch the hall lamp off.",
        "I switch the hall lamp off.",
    ],
)
def test_another_sentence_runs_nothing(words):
    assert rule_call(build_tools(ToolsConfig(command=(LAMP,))), words) is None


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        "[]",
        "no json",
        '{"room": "hall"}',
        '{"room": "hall", "state": "off; rm -rf /"}',
        '{"room": "hall", "state": "off", "more": "x"}',
        '{"room": 1, "state": "off"}',
    ],
)
def test_arguments_that_the_schema_forbids_run_nothing(arguments):
    (lamp, *_) = build_tools(ToolsConfig(command=(LAMP,)))
    assert lamp.run is not None
    with pytest.raises(InputError):
        lamp.run(arguments, NEVER)


def test_a_text_is_no_option_of_the_program_and_meets_no_shell():
    command = ToolCommand("search", "search for {what}", ("echo", "{what}"), {"what": "text"})
    (search, *_) = build_tools(ToolsConfig(command=(command,)))
    assert run(search, what="$(id) `id` ; id").text == "$(id) `id` ; id"
    with pytest.raises(InputError):
        run(search, what="--help")


def test_a_letter_that_looks_alike_is_that_of_the_choice():
    command = msgspec.structs.replace(LAMP, arguments={**LAMP.arguments, "room": ("sink",)})
    call = rule_call(build_tools(ToolsConfig(command=(command,))), "switch the ſink lamp on")
    assert call == ToolCall("lamp", '{"room": "sink", "state": "on"}')


def test_a_call_names_one_tool():
    mine = msgspec.structs.replace(LAMP, name="disk")
    tools = build_tools(ToolsConfig(command=(mine,)), (Tool("git_status", "x", None, "{}"),))
    names = [tool.name for tool in tools]
    assert len(names) == len({*names})
    assert tools[0].line.startswith("switch the")
    assert next(tool.line for tool in tools if tool.name == "git_status") != "x"


def test_numbers_are_numbers():
    command = ToolCommand("volume", "set the volume to {n}", ("echo", "{n}"), {"n": "integer"})
    (volume, *_) = build_tools(ToolsConfig(command=(command,)))
    call = rule_call((volume,), "Set the volume to thirty-five.")
    assert call is not None
    assert json.loads(call.arguments) == {"n": 35}
    for wrong in ("35", 3.5, True, 10**12, -1):
        with pytest.raises(InputError):
            run(volume, n=wrong)


def test_what_a_command_started_ends_with_it(tmp_path):
    pid = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {pid}; wait"
    with pytest.raises(InputError, match="too long"):
        output_of(("sh", "-c", script), 1, NEVER)
    deadline = time.monotonic() + SECONDS
    while is_alive(int(pid.read_text())):
        assert time.monotonic() < deadline


def test_a_command_is_over_when_its_program_is(tmp_path):
    pid = tmp_path / "pid"
    assert output_of(("sh", "-c", f"echo on; sleep 300 & echo $! > {pid}"), 60, NEVER) == "on"
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it was left running, as the command meant


def test_a_command_that_a_signal_ended_is_not_done():
    with pytest.raises(InputError, match="ended by signal 11"):
        output_of(("sh", "-c", "kill -SEGV $$"), 10, NEVER)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it goes on
def test_a_command_that_may_not_be_ended_is_not_waited_for(monkeypatch):
    def killpg(group, number):
        raise PermissionError

    monkeypatch.setattr(os, "killpg", killpg)
    with pytest.raises(InputError, match="goes on"):
        output_of(("sleep", "3"), 0.1, NEVER)


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that ended may wait for its parent."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_command_ends_in_time_and_prints_4_kilobytes_at_most():
    with pytest.raises(InputError, match="too long"):
        output_of((sys.executable, "-c", "import time; time.sleep(60)"), 0.2, NEVER)
    endless = "import sys\nwhile True: sys.stdout.write('x' * 1000)"
    assert len(output_of((sys.executable, "-c", endless), 10, NEVER)) == OUTPUT_BYTES
    with pytest.raises(InputError, match="cannot be run"):
        output_of(("/no/such/program",), 1, NEVER)
    with pytest.raises(InputError, match=r"exit code 3\. why"):
        output_of((sys.executable, "-c", "print('why'); raise SystemExit(3)"), 10, NEVER)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Lamp!", "sentence": "x", "run": ("true",)},
        {"name": "lamp", "sentence": "switch {room}", "run": ("true",)},
        {"name": "lamp", "sentence": "x", "run": ("{room}",)},
        {"name": "lamp", "sentence": "x", "run": ()},
        {"name": "lamp", "sentence": "x {a}", "run": ("true",), "arguments": {"a": ()}},
    ],
)
def test_a_command_that_cannot_work_is_refused_at_the_start(fields):
    with pytest.raises((msgspec.ValidationError, ValueError)):
        msgspec.convert({**fields}, ToolCommand)


def test_commands_come_from_the_users_own_file_only(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = '[[tools.command]]\nname = "lamp"\nsentence = "lamp"\nrun = ["true"]\n'
    own = tmp_path / "own.toml"
    own.write_text(text)
    assert load_config(own, (), {}).config.tools.command[0].name == "lamp"
    (tmp_path / "voxtui.toml").write_text(text)
    with pytest.raises(ConfigError, match="cannot be set by a file in the current directory"):
        load_config(None, (), {})


def test_a_mistake_in_a_command_is_named(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('[[tools.command]]\nname = "lamp"\nsentence = "lamp"\n')
    with pytest.raises(ConfigError, match=r"tools.command\[0\]: run is missing"):
        load_config(file, (), {})


def test_only_a_tool_that_the_user_shares_is_shared():
    shared = {t.name for t in build_tools(ToolsConfig(shared=("disk",))) if t.shared}
    assert shared == {"disk"}


# The calendar.

ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test//EN
BEGIN:VEVENT
UID:1
DTSTART:20261126T090000
DTEND:20261126T100000
SUMMARY:Dentist
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART;VALUE=DATE:20261127
DTEND;VALUE=DATE:20261128
SUMMARY:Anna's \\nbirthday
END:VEVENT
BEGIN:VEVENT
UID:3
DTSTART:20261102T183000
RRULE:FREQ=WEEKLY;BYDAY=MO
SUMMARY:Choir
END:VEVENT
END:VCALENDAR
"""


def calendar_sentence(path: Path, when: str) -> str:
    pytest.importorskip("recurring_ical_events")
    from voxtui.tools.calendar import _read

    now = datetime(2026, 11, 25, 22, 0)
    return _read(path, json.dumps({"when": when}), now, NEVER).sentence


def test_what_is_in_a_calendar(tmp_path):
    path = tmp_path / "mine.ics"
    path.write_bytes(ICS.replace("\n", "\r\n").encode())
    assert calendar_sentence(path, "tomorrow") == "Tomorrow: 09:00, Dentist."
    assert calendar_sentence(path, "friday") == "On Friday: all day, Anna's birthday."
    assert calendar_sentence(path, "next week") == "Next week: Monday 18:30, Choir."
    assert calendar_sentence(path, "today") == "There is nothing in your calendar today."


@pytest.mark.parametrize("start", ["", "DTSTART:soon\n"])
def test_an_event_without_a_start_costs_no_other_event(tmp_path, start):
    path = tmp_path / "mine.ics"
    path.write_text(ICS.replace("DTSTART:20261102T183000\n", start))
    rest = "One event cannot be read."
    assert calendar_sentence(path, "tomorrow") == f"Tomorrow: 09:00, Dentist. {rest}"
    assert calendar_sentence(path, "today") == f"There is nothing in your calendar today. {rest}"


def test_a_calendar_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.ics"):
        calendar_sentence(tmp_path / "none.ics", "today")
    (tmp_path / "bad.ics").write_text("no calendar")
    with pytest.raises(InputError, match=r"bad\.ics"):
        calendar_sentence(tmp_path / "bad.ics", "today")


def test_an_event_that_was_cancelled_is_not_read(tmp_path):
    path = tmp_path / "mine.ics"
    path.write_text(ICS.replace("SUMMARY:Dentist", "SUMMARY:Dentist\nSTATUS:CANCELLED"))
    assert calendar_sentence(path, "tomorrow") == "There is nothing in your calendar tomorrow."


def test_a_rule_without_end_stops_with_its_turn(tmp_path):
    """The library looks at each second since 1970; its thread could not be ended."""
    path = tmp_path / "mine.ics"
    path.write_text(ICS.replace("20261126T090000", "19700101T000000\nRRULE:FREQ=SECONDLY"))
    calendar, cancelled = calendar_tool(path), threading.Event()
    assert calendar.run is not None
    end = threading.Timer(1, cancelled.set)
    end.start()
    with pytest.raises(InputError, match="was ended"):
        calendar.run('{"when": "today"}', cancelled)
    end.join()


def test_a_file_of_an_unknown_user_ends_nothing():
    config = ToolsConfig(notes_file="~nobody-here/n.md", calendar_file="~nobody-here/c.ics")
    assert {"notes", "calendar"} <= {tool.name for tool in build_tools(config)}


@pytest.mark.parametrize(
    ("words", "when"),
    [
        ("What's on my calendar tomorrow?", "tomorrow"),
        ("What is in my diary for next week?", "next week"),
        ("Do I have anything planned for Friday?", "friday"),
        ("Do I have any meetings on Monday?", "monday"),
        ("What have I got on this weekend?", "the weekend"),
        ("Are we doing anything tonight?", "today"),
        ("Have I got a board meeting on Tuesday?", "tuesday"),
        ("How does my Sunday look?", "sunday"),
    ],
)
def test_a_question_to_the_calendar(words, when):
    assert json.loads(query_in(words) or "{}") == {"when": when}


def test_days_of_a_request():
    wednesday = datetime(2026, 11, 25, 12, 0)
    days = {when: [str(day) for day in span(when, wednesday)] for when in Query.__annotations__ and
            ("today", "the weekend", "wednesday", "tuesday")}  # fmt: skip
    assert days == {
        "today": ["2026-11-25", "2026-11-26"],
        "the weekend": ["2026-11-28", "2026-11-30"],
        "wednesday": ["2026-11-25", "2026-11-26"],
        "tuesday": ["2026-12-01", "2026-12-02"],
    }


def test_a_tool_of_the_user_comes_before_the_answer_that_voxtui_cannot_do_it(tmp_path):
    plain = AssistantSkills(tmp_path, rings=False)
    able = AssistantSkills(
        tmp_path, rings=False, make_tools=lambda: build_tools(ToolsConfig(command=(LAMP,)))
    )
    request = SkillRequest("Switch the hall lamp off.")
    assert isinstance(plain.answer(request), SkillAnswer)
    assert isinstance(able.answer(request), ToolCall)
    # The model chooses here, because the words are others.
    assert able.answer(SkillRequest("Switch off the hall lamp.")) is None
    assert isinstance(able.answer(SkillRequest("Switch off the radio.")), SkillAnswer)


def test_rules_are_tools_where_a_brain_does_not_know_the_words(tmp_path):
    skills = AssistantSkills(tmp_path, rings=False, make_tools=lambda: build_tools(ToolsConfig()))
    timer, clock = skills.tools[-2:]
    assert (timer.name, clock.name) == ("timer", "clock")
    assert run(clock, request="seven times eight").sentence == "That is 56."
    said = run(timer, request="set a pasta timer for ten minutes").sentence
    assert "10 minutes" in said
    assert (tmp_path / "timers.json").exists()
    with pytest.raises(InputError, match="other words"):
        run(timer, request="bake a cake")
    options = ReplyOptions(tools=skills.tools)
    assert tool_choice((), "set a timer for ten minutes", options) is None
    assert "timer" not in tool_prefix(skills.tools)


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        ("Switch off the hall lamp.", True),
        ("The hall lamp is too bright, switch it off.", True),
        ("I want the hall lamp off.", True),
        ("Can you switch off the hall lamp?", True),
        ("Don't switch off the hall lamp.", False),
        ("I switched off the hall lamp.", False),
        ("I've already put the hall lamp on.", False),
        ("She left the lamp on.", False),
        ("Our hall needs another lamp.", False),
        ("My hands are full, switch the lamp on.", True),
        ("Was the lamp on?", False),
        ("Should I switch off the lamp?", False),
    ],
)
def test_a_model_is_asked_about_orders_only(words, ordered):
    (lamp, *_) = build_tools(ToolsConfig(command=(LAMP,)))
    assert lamp.is_triggered(words) is ordered


def test_a_command_is_known_by_other_spellings_of_its_words():
    backup = ToolCommand("backup", "start the backup", ("true",))
    volume = ToolCommand("volume", "set volume to {n} percent", ("true",), {"n": "integer"})
    tools = build_tools(ToolsConfig(command=(backup, volume)))[:2]
    for words, names in (("Back up my files now.", ["backup"]), ("Louder, 70%.", ["volume"]), (
        "Is the shop open?", []
    )):  # fmt: skip
        assert [t.name for t in tools if t.is_triggered(words)] == names
