"""Calls of tools in a turn: who may run one, when, and what the user gets."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.dialogue.talking import talking, text
from tests.dialogue.turn.test_skills import ClockOnly
from tests.fakes import ScriptedBrain
from voxtui.dialogue.data import SKILL, FinishedCall, ToolCall, Utterance
from voxtui.dialogue.engine_commands import Cancel, Confirm, Redo, ReplaceComponents, SendText
from voxtui.dialogue.events import KeyNeeded, Notice, ToolCalled, ToolEnded
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.protocols import SkillAnswer, SkillRequest
from voxtui.dialogue.timestamps import Outcome
from voxtui.dialogue.tool_interface import CallOutcome, Tool, ToolResult, offered
from voxtui.errors import InputError, ModelLost
from voxtui.settings.schema import Config

DISK = ToolCall("disk", '{"path": "/"}')
LIGHTS = ToolCall("lights", '{"state": "off"}')


class FakeTool:
    """Counts its runs; `result` may be an exception, or a flag that its end is waited for."""

    def __init__(self, result: ToolResult | Exception | threading.Event) -> None:
        self.result = result
        self.arguments: list[str] = []
        self.started = threading.Event()
        self.told_to_end = threading.Event()

    def run(self, arguments: str, cancelled: threading.Event) -> ToolResult:
        self.arguments.append(arguments)
        self.started.set()
        if isinstance(self.result, threading.Event):
            cancelled.wait(10)
            self.told_to_end.set()
            return ToolResult("too late")
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class WithTools(ClockOnly):
    """FakeSkills: offers tools; a rule takes `lights`."""

    def __init__(self, *tools: Tool) -> None:
        super().__init__()
        self.tools = tools

    def answer(self, request: SkillRequest) -> SkillAnswer | ToolCall | None:
        return LIGHTS if request.words == "lights off" else None


def disk(tool: FakeTool, **fields) -> Tool:
    return replace(Tool("disk", "free space", tool.run), **fields)


def lights(tool: FakeTool) -> Tool:
    return Tool("lights", "turns lights on or off", tool.run, acts=True)


@contextmanager
def with_tools(brain: ScriptedBrain, *tools: Tool, **parts):
    with talking(brain, skills=WithTools(*tools), **parts) as t:
        yield t


def ended(t) -> list[CallOutcome]:
    return [event.report.outcome for event in t.events.of(ToolEnded)]


def test_the_brain_words_the_result_in_a_second_inference():
    tool = FakeTool(ToolResult("12 GB of 100 GB free"))
    brain = ScriptedBrain([DISK], ["12 gigabytes ", "are free."])
    with with_tools(brain, disk(tool)) as t:
        turn = t.ask()
    assert tool.arguments == ['{"path": "/"}']
    assert turn.reply == text(t.events) == "12 gigabytes are free."
    assert brain.requests[1].calls == (FinishedCall(DISK, "12 GB of 100 GB free"),)
    assert brain.requests[1].user_input == "what was said"  # the sound is not heard twice
    assert turn.as_json()["calls"][0]["name"] == "disk"
    assert turn.timestamps["called"] <= turn.timestamps["tool_ended"]
    assert turn.timestamps["tool_ended"] <= turn.timestamps["first_token"]


def test_a_brain_without_words_gets_the_same_sound_again_for_the_result():
    tool = FakeTool(ToolResult("12 GB"))
    brain = ScriptedBrain([DISK], ["12 gigabytes."], heard=None)
    with with_tools(brain, disk(tool)) as t:
        turn = t.ask()
    first, second = brain.requests
    assert turn.reply == "12 gigabytes."
    assert isinstance(first.user_input, Utterance)
    assert second.user_input is first.user_input
    assert second.calls == (FinishedCall(DISK, "12 GB"),)


def test_a_sentence_of_the_tool_needs_no_second_inference():
    tool = FakeTool(ToolResult("12", "Twelve gigabytes are free."))
    brain = ScriptedBrain([DISK])
    with with_tools(brain, disk(tool)) as t:
        turn = t.ask()
    assert (turn.reply, turn.brain, brain.inferences) == ("Twelve gigabytes are free.", SKILL, 1)


def test_a_result_that_asks_for_a_call_gets_none():
    tool = FakeTool(ToolResult('!lights {"state": "off"}'))
    act = FakeTool(ToolResult("", "Off."))
    brain = ScriptedBrain([DISK], [LIGHTS])
    with with_tools(brain, disk(tool), lights(act), confirms=True) as t:
        t.ask()
    assert (act.arguments, len(t.events.of(KeyNeeded))) == ([], 0)


def test_control_characters_and_excess_are_cut_off_a_result():
    tool = FakeTool(ToolResult("\x1b[31mred" + "x" * 9000))
    brain = ScriptedBrain([DISK], ["Yes."])
    with with_tools(brain, disk(tool)) as t:
        t.ask()
    (call,) = brain.requests[1].calls
    assert call.result.startswith("[31mredxx")
    assert len(call.result) == 4000


def test_what_acts_runs_only_after_a_key():
    tool = FakeTool(ToolResult("", "The lights are off."))
    with with_tools(ScriptedBrain(heard="lights off"), lights(tool), confirms=True) as t:
        t.engine.post(SendText("lights off"))
        t.events.until(KeyNeeded)
        assert tool.arguments == []
        (needed,) = t.events.of(KeyNeeded)
        t.engine.post(Confirm(needed.turn, yes=True))
        turn = t.turn()
    assert (tool.arguments, turn.reply) == (['{"state": "off"}'], "The lights are off.")
    assert turn.timestamps["called"] <= turn.timestamps["confirmed"]


def test_a_note_that_the_model_chose_waits_for_a_key_and_one_of_the_rule_does_not():
    tool = FakeTool(ToolResult("", "Noted."))
    note = replace(Tool("lights", "writes", tool.run), heard=True)
    with with_tools(ScriptedBrain([LIGHTS], heard="lights off"), note, confirms=True) as t:
        t.engine.post(SendText("put the lights out"))
        t.events.until(KeyNeeded)
        assert tool.arguments == []
        t.engine.post(Confirm(t.events.of(KeyNeeded)[0].turn, yes=True))
        assert t.turn().reply == "Noted."
        t.engine.post(SendText("lights off"))
        t.events.until(ToolEnded)
    assert (len(tool.arguments), len(t.events.of(KeyNeeded))) == (2, 1)


def test_what_acts_does_not_run_after_a_no():
    tool = FakeTool(ToolResult("", "The lights are off."))
    with with_tools(ScriptedBrain(heard="lights off"), lights(tool), confirms=True) as t:
        t.engine.post(SendText("lights off"))
        t.events.until(KeyNeeded)
        t.engine.post(Confirm(t.events.of(KeyNeeded)[0].turn, yes=False))
        turn = t.turn()
    assert (tool.arguments, ended(t)) == ([], [CallOutcome.REFUSED])
    assert turn.outcome is Outcome.ANSWERED


def test_an_answer_to_another_turn_confirms_nothing():
    tool = FakeTool(ToolResult("", "Off."))
    with with_tools(ScriptedBrain(heard="lights off"), lights(tool), confirms=True) as t:
        t.engine.post(SendText("lights off"))
        t.events.until(KeyNeeded)
        number = t.events.of(KeyNeeded)[0].turn
        assert t.engine.post(Confirm(number - 1, yes=True)) == 0
        assert t.engine.post(Confirm(number + 1, yes=True)) == 0
        t.engine.post(Cancel())
        turn = t.turn()
    assert (tool.arguments, turn.outcome) == ([], Outcome.CANCELLED)


def test_what_acts_is_refused_where_no_key_can_be_pressed():
    tool = FakeTool(ToolResult("", "Off."))
    with with_tools(ScriptedBrain(heard="lights off"), lights(tool)) as t:
        turn = t.ask()
    assert (tool.arguments, ended(t)) == ([], [CallOutcome.REFUSED])
    assert "key" in turn.reply


def test_what_the_user_trusts_needs_no_key_but_is_not_repeated():
    tool = FakeTool(ToolResult("", "Off."))
    trusted = replace(lights(tool), trusted=True)
    with with_tools(ScriptedBrain(heard="lights off"), trusted) as t:
        number = t.ask().number
        t.engine.post(Redo(number))
        turn = t.turn()
    assert (len(tool.arguments), t.events.of(KeyNeeded)) == (1, [])
    assert "already" in turn.reply


def test_again_does_not_repeat_what_acts():
    tool = FakeTool(ToolResult("", "Off."))
    with with_tools(ScriptedBrain(heard="lights off"), lights(tool), confirms=True) as t:
        t.speak()
        t.events.until(KeyNeeded)
        t.engine.post(Confirm(t.events.of(KeyNeeded)[0].turn, yes=True))
        number = t.turn().number
        t.engine.post(Redo(number))
        turn = t.turn()
    assert (len(tool.arguments), len(t.events.of(KeyNeeded))) == (1, 1)
    assert "already" in turn.reply


def test_nothing_runs_before_the_release():
    tool = FakeTool(ToolResult("", "Off."))
    with with_tools(ScriptedBrain([DISK], heard="how full"), disk(tool)) as t:
        turn = t.ask()
    assert turn.timestamps["called"] >= turn.timestamps["released"] == 0
    assert len(t.events.of(ToolCalled)) == 1


def test_a_barge_in_cancels_a_call():
    tool = FakeTool(threading.Event())
    with with_tools(ScriptedBrain([DISK]), disk(tool)) as t:
        t.engine.post(SendText("how full is the disk"))
        assert tool.started.wait(10)
        t.engine.post(Cancel())
        turn = t.turn()
    assert tool.told_to_end.wait(10)
    assert (turn.outcome, turn.reply, ended(t)) == (
        Outcome.CANCELLED,
        "",
        [CallOutcome.CANCELLED],
    )


def test_a_call_has_a_time_out():
    tool = FakeTool(threading.Event())
    with with_tools(ScriptedBrain([DISK]), disk(tool, timeout_s=0.05)) as t:
        began = time.monotonic()
        turn = t.ask()
    assert ended(t) == [CallOutcome.TIMED_OUT]
    assert "longer than 0.05 seconds" in turn.reply
    assert time.monotonic() - began < 5


def test_a_sentence_comes_before_a_slow_call():
    tool = FakeTool(ToolResult("", "It is full."))
    with with_tools(ScriptedBrain([DISK]), disk(tool, bridge="Let me look.")) as t:
        turn = t.ask()
    assert turn.reply == "Let me look. It is full."
    assert t.voice.clauses[0].startswith("Let me look.")


@pytest.mark.parametrize("error", [InputError("The disk is away."), ZeroDivisionError()])
def test_a_failure_is_said_and_costs_only_the_call(error):
    with with_tools(ScriptedBrain([DISK], ["Hello."]), disk(FakeTool(error))) as t:
        turn = t.ask()
        assert ended(t) == [CallOutcome.FAILED]
        assert turn.outcome is Outcome.ANSWERED
        assert turn.reply
        assert t.ask().reply == "Hello."


def test_a_call_of_no_tool_is_refused():
    with with_tools(ScriptedBrain([ToolCall("shell", "{}")])) as t:
        assert t.ask().reply == "I can't do that."


class Distant(ScriptedBrain):
    sends_to = "models.example"


def test_a_result_that_is_not_shared_stays_on_this_machine():
    tool = FakeTool(ToolResult("12 GB free"))
    brain = Distant([DISK], ["Hello."])
    with with_tools(brain, disk(tool)) as t:
        turn = t.ask()
        t.ask()
    assert (turn.reply, [request.calls for request in brain.requests]) == ("12 GB free", [(), ()])
    assert [past.private for past in brain.requests[1].past] == [True]


def test_a_model_is_offered_what_the_words_trigger_and_what_may_be_shared():
    plain = Tool("disk", "free space", FakeTool(ToolResult("")).run, triggers=("disk", "drive"))
    rule_only = Tool("timer", "", FakeTool(ToolResult("")).run)
    of_client = Tool("weather", "weather now")
    tools = (plain, rule_only, of_client)
    assert offered(tools, "is my hard drive full") == (plain, of_client)
    assert offered(tools, "is the glass full") == (of_client,)
    assert offered(tools, "is my hard drive full", "models.example") == (of_client,)


def test_a_tool_of_a_client_ends_the_turn_with_its_call():
    call = ToolCall("weather", '{"place": "Oslo"}', "abc")
    with with_tools(ScriptedBrain([call]), Tool("weather", "weather now")) as t:
        turn = t.ask()
    assert [event.call for event in t.events.of(ToolCalled)] == [call]
    assert (turn.reply, turn.outcome) == ("", Outcome.ANSWERED)


def test_a_brain_that_replaces_another_is_loaded_for_the_tools():
    chosen, after_it = ScriptedBrain([ModelLost("The GPU failed.")]), ScriptedBrain()
    with with_tools(ScriptedBrain(), disk(FakeTool(ToolResult("")))) as t:
        brains = Fallbacks((lambda: chosen, lambda: after_it))
        t.engine.post(ReplaceComponents(Config(), brain=brains))
        t.engine.post(SendText("hello"))
        t.turn()
        t.events.until(Notice, lambda event: "from now on" in str(event))
        tools = [brain.warmed_for and brain.warmed_for.tools for brain in (chosen, after_it)]
        assert [[tool.name for tool in given or ()] for given in tools] == [["disk"], ["disk"]]
