"""Keys, mouse and terminal begin and end talking on the screen."""

import random

import pytest
from textual import events
from textual.widgets import Input

from tests.ui.conftest import screen, until
from voxtui.dialogue.events import (
    MicrophoneLost,
    Notice,
    ReplyText,
    State,
    StateChanged,
    TurnStarted,
)
from voxtui.dialogue.timestamps import Outcome, Timestamps
from voxtui.settings.schema import Config, UiConfig, VadConfig
from voxtui.ui.driver.keyboard import Key, KeyboardAnswer, KeyUp
from voxtui.ui.footer import Footer
from voxtui.ui.talk.talkbar import Meter, TalkBar
from voxtui.ui.talk.talkkey import Mode

HANDS_FREE = Config(vad=VadConfig(hands_free=True))


async def reports_releases(s):
    s.app.post_message(KeyboardAnswer(True))
    await s.settle()


def send(s, message, at):
    message.time = at
    s.app.post_message(message)


def down(s, at, key="space", repeated=False):
    send(s, Key(key, " " if key == "space" else None, repeated), at)


def up(s, at, key="space"):
    send(s, KeyUp(key), at)


async def until_released(s):
    await until(s, lambda: "release" in s.commands)


# Hold.


async def test_a_key_that_is_held_talks_until_it_comes_up_at_the_times_its_bytes_arrived():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        for n in range(20):
            down(s, 10.5 + n * 0.03, repeated=True)
        up(s, 11.2)
        await s.settle()
        assert s.engine.calls[-2:] == [("talk", 10.0), ("release", 11.2)]
        assert s.commands == ["talk", "release"]


async def test_a_tap_so_short_that_both_its_ends_wait_in_the_queue_begins_and_ends():
    async with screen() as s:
        await reports_releases(s)
        for n in range(5):
            down(s, 10.0 + n)
            up(s, 10.05 + n)
        await s.settle()
        assert s.commands == ["talk", "release"] * 5


@pytest.mark.slow
async def test_a_modifier_that_went_down_meanwhile_does_not_hide_the_release():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        up(s, 11.0, key="shift+space")
        await s.settle()
        assert s.commands == ["talk", "release"]


async def test_letting_go_of_another_key_changes_nothing():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        up(s, 10.5, key="a")
        await s.settle()
        assert s.commands == ["talk"]


async def test_losing_the_focus_ends_the_talk():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        send(s, events.AppBlur(), 11.0)
        await s.settle()
        assert s.engine.calls[-1] == ("release", 11.0)


@pytest.mark.slow
async def test_the_help_opened_while_the_key_is_held_does_not_keep_it_down():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        await s.settle()
        await s.pilot.press("f1")
        up(s, 11.0)
        await s.settle()
        assert s.commands == ["talk", "release"]


async def test_a_key_that_is_still_held_after_escape_does_not_answer():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        await s.settle()
        await s.pilot.press("escape")
        down(s, 11.0, repeated=True)
        up(s, 12.0)
        down(s, 13.0)
        await s.settle()
        assert s.commands == ["talk", "cancel", "talk"]


async def test_a_talk_that_begins_before_the_last_turn_ended_still_ends():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        s.engine.begin()
        up(s, 11.0)
        down(s, 11.1)
        await s.settle()
        s.engine.report(StateChanged(State.THINKING))
        s.engine.finish(Outcome.CANCELLED)
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING), Notice("The voice failed."))
        await s.settle()
        up(s, 12.0)
        await s.settle()
        assert s.commands == ["talk", "release"] * 2


async def test_an_utterance_that_reached_its_limit_is_not_ended_by_the_key():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        await s.settle()
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        s.engine.finish(Outcome.NO_SPEECH)
        await s.settle()
        up(s, 140.0)
        await s.settle()
        assert s.commands == ["talk"]


async def test_space_in_a_text_is_a_space_and_its_release_nothing():
    async with screen() as s:
        await reports_releases(s)
        await s.press("a")
        down(s, 10.0)
        down(s, 10.5, repeated=True)
        up(s, 10.6)
        await s.settle()
        assert s.app.focused.value == "a  "
        assert s.commands == []


async def test_keys_that_arrive_together_are_text_with_its_spaces():
    async with screen() as s:
        for key, character in (("a", "a"), ("space", " "), ("b", "b")):
            s.app.post_message(events.Key(key, character))
        await s.settle()
        assert s.app.focused.value == "a b"
        assert s.commands == []


@pytest.mark.slow
async def test_space_in_an_empty_text_field_talks_and_leaves_it():
    async with screen() as s:
        await reports_releases(s)
        await s.press("a", "escape", "b", "backspace", "left")
        down(s, 10.0)
        down(s, 10.5, repeated=True)
        up(s, 11.0)
        await s.settle()
        assert s.engine.calls[-2:] == [("talk", 10.0), ("release", 11.0)]
        assert "Hold Space and speak" in s.text


@pytest.mark.parametrize("releases", [True, False])
async def test_a_terminal_that_changes_its_mind_about_releases_does_not_keep_the_key_down(releases):
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        s.app.post_message(KeyboardAnswer(releases))
        await s.settle()
        assert s.commands == ["talk", "release"]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
async def test_a_tapped_key_ends_the_talk_after_any_input(seed):
    chance = random.Random(seed)
    async with screen() as s:
        at = 10.0

        def happen():
            message = chance.choice((
                Key("space", " ", False), Key("space", " ", True), KeyUp("space"),
                events.Key("space", " "), events.AppBlur(), events.AppFocus(),
                KeyboardAnswer(True), KeyboardAnswer(False), TalkBar.Held(), TalkBar.LetGo(),
                events.Key("escape", None), events.Key("a", "a"), events.Key("f1", None),
            ))  # fmt: skip
            send(s, message, at)

        for _ in range(60):
            at += chance.choice((0.001, 0.03, 0.2, 2.0))
            happen()
            if chance.random() < 0.3:
                await s.settle()
        for key in ("escape", "escape", "escape"):  # a screen on top, a talk, the field
            send(s, events.Key(key, None), at)
            await s.settle()
        talked = []
        for _ in range(3):
            at += 2.0
            down(s, at)
            up(s, at + 0.3)
            await s.settle()
            talked.append(s.app.session.talking is not None)
        assert not all(talked)
        assert s.app.talk.mode is not Mode.MOUSE or s.app.session.talking is None


# Toggle.


async def test_a_run_of_repeats_is_one_talk_that_ends_with_the_last_of_them():
    async with screen() as s:
        times = [10.0, *(10.5 + n * 0.03 for n in range(30))]
        for at in times:
            send(s, events.Key("space", " "), at)
        await until_released(s)
        assert s.engine.calls[-2:] == [("talk", 10.0), ("release", times[-1])]


async def test_taps_that_are_not_far_apart_begin_and_end_too():
    async with screen() as s:
        for at in (10.0, 10.5):
            send(s, events.Key("space", " "), at)
        await until_released(s)
        assert s.engine.calls[-2:] == [("talk", 10.0), ("release", 10.5)]


@pytest.mark.slow
async def test_a_terminal_that_grants_no_releases_stays_with_toggling():
    async with screen(size=(120, 40)) as s:
        s.app.post_message(KeyboardAnswer(False))
        await s.press("space")
        await s.press("space")
        assert s.commands == ["talk", "release"]
        assert s.app.talk.mode is Mode.TOGGLE


# Mouse.


@pytest.mark.slow
async def test_the_bar_talks_while_the_mouse_button_is_down_wherever_it_comes_up():
    async with screen() as s:
        await s.pilot.mouse_down(Meter)
        await s.settle()
        assert s.commands == ["talk"]
        assert s.app.talk.mode is Mode.MOUSE
        await s.pilot.hover(offset=(5, 3))
        await s.pilot.mouse_up(offset=(5, 3))
        await s.settle()
        assert s.commands == ["talk", "release"]
        assert s.app.talk.mode is Mode.TOGGLE
        assert s.app.screen.get_selected_text() is None


@pytest.mark.slow
async def test_another_mouse_button_does_not_talk():
    async with screen() as s:
        await s.pilot._post_mouse_events([events.MouseDown, events.MouseUp], Meter, button=3)
        await s.settle()
        assert s.commands == []


@pytest.mark.slow
async def test_losing_the_focus_ends_talking_with_the_mouse_button():
    async with screen() as s:
        await s.pilot.mouse_down(Meter)
        s.app.post_message(events.AppBlur())
        await s.settle()
        assert s.commands == ["talk", "release"]


@pytest.mark.slow
async def test_the_mouse_does_not_disturb_a_key_that_is_held():
    async with screen() as s:
        await reports_releases(s)
        down(s, 10.0)
        await s.settle()
        await s.pilot.click(TalkBar)
        assert s.commands == ["talk"]
        up(s, 12.0)
        await s.settle()
        assert s.commands == ["talk", "release"]


@pytest.mark.slow
async def test_a_click_into_the_field_does_not_talk():
    async with screen() as s:
        await s.type("a")
        await s.pilot.click(Input)
        assert s.commands == []


# Hands-free.


async def test_with_hands_free_space_ends_an_utterance_that_began_by_itself():
    async with screen(config=HANDS_FREE) as s:
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        await s.press("space")
        assert s.commands == ["release"]


@pytest.mark.parametrize(("releases", "ends"), [(True, "let go"), (False, "Space")])
async def test_with_hands_free_the_prompt_says_how_space_ends_what_it_began(releases, ends):
    async with screen(config=HANDS_FREE) as s:
        s.app.post_message(KeyboardAnswer(releases=releases))
        await s.press("space")
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert f"{ends}: send · Esc: drop" in s.text


async def test_with_hands_free_an_open_field_says_that_one_may_speak():
    async with screen(config=HANDS_FREE) as s:
        await s.type("a")
        await s.press("backspace")
        assert "Ask something, or speak" in s.line("READY")


async def test_with_hands_free_space_talks_over_a_clip():
    async with screen(config=HANDS_FREE) as s:
        s.engine.begin("a question")
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        await s.press("space")
        assert s.commands == ["talk"]


# What is said of it.


@pytest.mark.slow
@pytest.mark.parametrize("size", [(36, 8), (80, 24), (120, 40)])
async def test_the_prompt_says_how_to_talk(size):
    async with screen(size=size) as s:
        assert "Press Space" in s.lines[-3 if size[1] > 15 else -1]
        await reports_releases(s)
        assert "Hold Space" in s.lines[-3 if size[1] > 15 else -1]
    async with screen(size=size, config=HANDS_FREE) as s:
        await reports_releases(s)
        assert "Speak" in s.lines[-3 if size[1] > 15 else -1]


async def test_the_bar_shows_the_action_of_the_key():
    async with screen() as s:
        assert "Press Space and speak" in s.text
        await reports_releases(s)
        assert "Hold Space and speak" in s.text
        down(s, 10.0)
        s.engine.begin()
        s.engine.report(StateChanged(State.LISTENING))
        await s.settle()
        assert "let go: send · Esc: drop" in s.text and " left" not in s.text
        s.engine.seconds_left = 7.2
        s.app.tick()
        await s.settle()
        assert "s, 7 s left  let go: send" in s.text


# The key.


@pytest.mark.slow
async def test_a_configured_key_talks_also_while_typing():
    config = Config(ui=UiConfig(talk_key="f8"))
    async with screen(size=(120, 40), config=config) as s:
        await reports_releases(s)
        assert "f8 Talk" in s.lines[-1].lower().replace("talk", "Talk")
        assert "Hold F8 and speak" in s.text
        await s.press("space")
        assert s.commands == []
        await s.type("a")
        down(s, 10.0, key="f8")
        up(s, 11.0, key="f8")
        await s.settle()
        assert s.engine.calls[-2:] == [("talk", 10.0), ("release", 11.0)]
        await s.press("escape", "f1")
        assert " F8  " in s.text


@pytest.mark.slow
async def test_the_footer_talks_when_it_is_clicked():
    async with screen(size=(120, 40)) as s:
        await s.pilot.click(offset=(s.lines[-1].index("Talk"), len(s.lines) - 1))
        await s.settle()
        assert s.commands == ["talk"]


@pytest.mark.slow
async def test_the_footer_tells_more_about_the_key_under_the_mouse():
    async with screen(size=(120, 40)) as s:
        column = s.lines[-1].index("^q")
        await s.pilot.hover(offset=(column, len(s.lines) - 1))
        assert s.app.query_one(Footer).tooltip == "quit"
        await s.pilot.hover(offset=(104, len(s.lines) - 1))
        assert s.app.query_one(Footer).tooltip is None


# The microphone goes.


@pytest.mark.slow
async def test_a_microphone_that_goes_away_ends_the_talking():
    async with screen(size=(120, 40)) as s:
        await reports_releases(s)
        down(s, 10.0)
        await s.settle()
        s.engine.begin()
        s.engine.report(MicrophoneLost(), Notice("The microphone was unplugged.", "error"))
        s.engine.report(StateChanged(State.THINKING), ReplyText(1, "Yes."))
        s.engine.finish(reply="Yes.")
        await s.settle()
        up(s, 12.0)
        await s.settle()
        assert s.commands == ["talk"]
        assert "The microphone was unplugged." in s.text
        assert s.text.count("✗ The microphone was unplugged.  Enter: look again") == 1
        down(s, 13.0)
        await s.settle()
        assert s.commands == ["talk"]


@pytest.mark.slow
async def test_the_loss_of_a_microphone_is_shown_until_the_same_one_is_back():
    async with screen(size=(120, 40)) as s:
        s.engine.report(Notice("The microphone 'a microphone' stopped.", "error"))
        await s.settle()
        assert "✗ The microphone 'a microphone' stopped." in s.lines[1]
        s.engine.load("a microphone")
        await s.settle()
        assert "stopped" not in s.text
        s.engine.report(Notice("The server is down.", "error"))
        s.engine.load("a microphone")
        await s.settle()
        assert "✗ The server is down." in s.lines[1]


async def test_without_a_microphone_the_next_turn_removes_a_problem():
    async with screen(microphone=None) as s:
        s.engine.report(Notice("The server is down.", "error"))
        await s.settle()
        assert "✗ The server is down." in s.text
        await s.send("hello")
        s.engine.report(TurnStarted(1, "text", Timestamps()))
        await s.settle()
        assert "The server is down." not in s.text and "No microphone" in s.text


@pytest.mark.slow
async def test_without_a_microphone_the_screen_shows_that_until_one_is_in_use():
    async with screen(size=(120, 40)) as s:
        s.engine.report(MicrophoneLost())
        await s.settle()
        assert "✗ No microphone is in use.  Enter: look again" in s.lines[1]
        assert s.text.lower().count("no microphone") == 1
        s.engine.load("another microphone")
        await s.settle()
        assert "no microphone" not in s.text.lower()
        assert "another microphone" in s.lines[-2]
