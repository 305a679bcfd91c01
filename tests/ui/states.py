"""Every state a user can see, each brought about in the real App by the scripted engine.

`python -m tools.states` draws them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from msgspec import structs
from textual.widgets import Input

from tests.fakes import ScriptedEngine
from tests.ui.conftest import Screen
from voxtui.dialogue.data import MICROPHONE, SAMPLE_RATE, Utterance
from voxtui.dialogue.events import (
    Caption,
    Captured,
    Countdown,
    CountdownsChanged,
    Loaded,
    LoadFailed,
    Loading,
    MicrophoneLost,
    MicrophoneOpened,
    Notice,
    ReplyText,
    SpokenUpTo,
    State,
    StateChanged,
    TurnStarted,
    UserWords,
)
from voxtui.dialogue.listening.level import diagnose_level
from voxtui.dialogue.timestamps import Milestone, Outcome, Timestamps
from voxtui.errors import ModelMissing
from voxtui.settings.schema import Config, UiConfig, VadConfig
from voxtui.ui.app import VoxtuiApp
from voxtui.ui.driver.keyboard import KeyboardAnswer
from voxtui.ui.talk.talkbar import TalkBar
from voxtui.ui.themes import AUTO, DARK, LIGHT

Act = Callable[[Screen], Awaitable[None]]

SIZES = ((80, 24), (120, 40), (60, 15))

CLIPS = [
    (name, Path(f"{name}.wav"))
    for name in ("Why is the sky blue?", "What is the capital of France?", "Tell me a short joke.")
]
NOW = 1000.0
NEVER = 1e6
"""Seconds until something happens by itself."""

LOADED = Loaded(
    "embedded: qwen2.5-coder-1.5b (Qwen2.5-Coder 1.5B, English)",
    "embedded (af_heart)",
    "USB Microphone",
    "Headphones",
    brain_name="embedded",
)
MARKS = {
    "speech_ended": -0.152,
    "released": 0.0,
    "captured": 0.004,
    "transcribed": 0.057,
    "prefilled": 0.121,
    "first_token": 0.153,
    "first_shown": 0.166,
    "first_sentence": 0.29,
    "first_audio": 0.312,
    "first_sound": 0.338,
    "last_token": 0.81,
    "last_sound": 3.1,
}
QUESTION = "Why is the sky blue?"
ANSWER = "The sky is blue because air scatters blue light more than red light."


def speech(seconds: float = 2.1) -> Utterance:
    """Return samples that look like a voice."""
    at = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    loud = np.abs(np.sin(2.3 * at)) * np.abs(np.sin(7 * at)) + 0.02
    samples = (loud * np.sin(800 * at)).astype(np.float32)
    return Utterance(samples, ((0.0, seconds),), NOW)


CLIPPING = re.compile(
    r' clip-path="url\(#terminal-line-\d+\)"'
    r'|<clipPath id="terminal-line-\d+">\s*<rect [^>]*/>\s*</clipPath>\s*'
)
NEIGHBOURS = re.compile(
    r'(<rect fill="(#\w+)" x="[\d.]+" y="([\d.]+)" width=")([\d.]+)(" height="[\d.]+"/>)'
    r'<rect fill="\2" x="[\d.]+" y="\3" width="([\d.]+)"[^>]*/>'
)


class Clock:
    """The time that the screen reads."""

    def __init__(self) -> None:
        self.now = NOW

    def monotonic(self) -> float:
        return self.now

    time = monotonic


class PicturedApp(VoxtuiApp):
    def export_screenshot(self, **options: Any) -> str:
        """Return the same picture in half the bytes."""
        svg = CLIPPING.sub("", super().export_screenshot(**options))
        svg = svg.replace(' shape-rendering="crispEdges"', "").replace("&#160;", "\xa0")
        svg = svg.replace("<style>", "<style>rect { shape-rendering: crispEdges }", 1)
        joined = 1
        while joined:
            svg, joined = NEIGHBOURS.subn(_joined, svg)
        return svg


def _joined(found: re.Match[str]) -> str:
    return f"{found[1]}{float(found[4]) + float(found[6]):g}{found[5]}"


def make_app(config: Config | None = None) -> VoxtuiApp:
    config = config or Config()
    if config.ui.theme == AUTO:  # a picture must not depend on the terminal of the tests
        config = structs.replace(config, ui=structs.replace(config.ui, theme=DARK))
    app = PicturedApp(ScriptedEngine, config, CLIPS)
    app.NOTIFICATION_TIMEOUT = NEVER
    return app


async def loaded(s: Screen, **other: Any) -> None:
    s.app.post_message(KeyboardAnswer(releases=True))
    s.engine.report(structs.replace(LOADED, **other), StateChanged(State.READY))
    await s.settle()


async def listening(s: Screen, seconds: float = 1.4, level: float = 0.2) -> None:
    """Press the key."""
    s.app.session.talking = s.engine.turns = s.engine.turns + 1
    s.engine.report(TurnStarted(s.engine.turns, MICROPHONE, Timestamps()))
    s.engine.report(StateChanged(State.LISTENING))
    await s.settle()
    s.clock.now += seconds
    s.engine.level = level
    s.app.tick()


async def asked(s: Screen, question: str = QUESTION) -> None:
    """Release the key; the words become known."""
    await listening(s)
    timestamps = s.app.turns.timestamps
    timestamps.record(Milestone.RELEASED, s.clock.now)
    s.engine.report(Captured(s.engine.turns, speech()), StateChanged(State.THINKING))
    s.engine.report(UserWords(s.engine.turns, question))
    s.engine.level = 0.002
    await s.settle()
    s.app.turns._words_due = 0.0  # and no answer for half a second


async def answering(s: Screen, question: str = QUESTION, answer: str = ANSWER) -> None:
    """Halfway through the answer."""
    await asked(s, question)
    released = s.app.turns.timestamps.at(Milestone.RELEASED)
    for name, at in MARKS.items():
        if name not in ("last_token", "last_sound", "released"):
            s.app.turns.timestamps.record(Milestone(name), released + at)
    s.app.turns.timestamps.speculative_s, s.app.turns.timestamps.speech_s = 0.41, 2.6
    s.app.turns.timestamps.spoken.append((len(answer), 2.6))
    s.engine.report(ReplyText(s.engine.turns, answer), StateChanged(State.SPEAKING))
    await s.settle()
    s.clock.now += 1.0
    s.app.tick()


def turn(
    s: Screen, question: str = QUESTION, answer: str = ANSWER, times: float = 1.0, gpu: bool = False
) -> None:
    """Run a whole turn with latencies `times` as long; `gpu`: on a model that hears audio."""
    timestamps = s.engine.begin(at=NOW)
    for name, at in MARKS.items():
        heard = Milestone.ENCODED if gpu and name == "transcribed" else Milestone(name)
        timestamps.record(heard, NOW + at * times)
    s.engine.report(Captured(s.engine.turns, speech()), UserWords(s.engine.turns, question))
    s.engine.report(ReplyText(s.engine.turns, answer))
    memory = 10_270_000_000 if gpu else None
    s.engine.finish(
        timestamps=timestamps.since_release(),
        speculative_s=0.41,
        tokens=17,
        drafted=1,
        reply=answer,
        gpu_bytes=memory,
    )


async def conversation(s: Screen) -> None:
    await loaded(s)
    turn(s, "What is the capital of France?", "The capital of France is **Paris**.", 2.2)
    for times in (0.9, 1.3, 0.8):
        turn(s, "Tell me a joke.", "Why did the scarecrow win a prize?\n\nHe was "
                   "outstanding in his field.", times)  # fmt: skip
    turn(s, times=0.72)
    await s.settle()


# The states.


async def starting(s: Screen) -> None:
    s.engine.level = 0.04
    s.engine.report(MicrophoneOpened(LOADED.microphone))
    s.engine.report(Loading("Voice"), Loading("Speech recogniser"), Loading("Chat model", 0.45))


async def ready(s: Screen) -> None:
    await loaded(s)


async def ready_toggle(s: Screen) -> None:
    await loaded(s)
    s.app.post_message(KeyboardAnswer(releases=False))


async def ready_hands_free(s: Screen) -> None:
    await loaded(s)


async def listening_hold(s: Screen) -> None:
    await loaded(s)
    await listening(s)


async def listening_toggle(s: Screen) -> None:
    await ready_toggle(s)
    await listening(s)


async def listening_mouse(s: Screen) -> None:
    await loaded(s)
    s.app.post_message(TalkBar.Held())
    await s.settle()
    await listening(s)


async def listening_hands_free(s: Screen) -> None:
    await loaded(s)
    await listening(s)
    s.app.session.talking = None
    s.app.tick()


async def captions(s: Screen) -> None:
    """Show more words than fit."""
    await conversation(s)
    await listening(s)
    text = "I want to know whether the sky over the ocean is always blue or sometimes grey and"
    s.engine.report(Caption(s.engine.turns, text, text.index("sometimes")))
    await s.settle()


async def thinking(s: Screen) -> None:
    await conversation(s)
    await asked(s, "Which country do I live in?")


async def speaking(s: Screen) -> None:
    await conversation(s)
    await answering(s, "Which country do I live in?", "You have not told me yet. If you name")


async def answered(s: Screen) -> None:
    await conversation(s)


async def selected(s: Screen) -> None:
    await conversation(s)
    await s.pilot.press("up", "up")


async def on_a_gpu(s: Screen) -> None:
    """With all that is shown only where it is known."""
    await loaded(s, brain="voxtral: Voxtral-Mini-3B-2507 on NVIDIA H200", voice="kokoro (af_heart)")
    s.app.panel.devices_add(38.0)
    for times in (1.3, 1.0, 1.1):
        turn(s, times=times * 0.3, gpu=True)
    await s.settle()


async def light(s: Screen) -> None:
    await conversation(s)


async def talked_over(s: Screen) -> None:
    await conversation(s)
    answer = "There was a fox who wanted grapes. They hung too high, so it said they were sour."
    await answering(s, "Tell me a story.", answer)
    s.engine.report(SpokenUpTo(s.engine.turns, "There was a fox who wanted grapes."))
    cut = {name: at for name, at in MARKS.items() if name != "last_token"}
    s.engine.finish(Outcome.CANCELLED, timestamps={**cut, "cancelled": 1.2}, reply=answer)
    await s.settle()
    await listening(s, 0.6)


async def nothing_heard(s: Screen) -> None:
    await conversation(s)
    await listening(s)
    s.engine.finish(Outcome.NO_SPEECH)


async def silent_microphone(s: Screen) -> None:
    s.engine.level = 0.0
    await loaded(s)
    s.app.status.check_level(LOADED.microphone, False)
    await listening(s, level=0.0)
    s.engine.report(Notice(diagnose_level(LOADED.microphone, 0.0)))
    s.engine.finish(Outcome.NO_SPEECH)


async def failed_turn(s: Screen) -> None:
    await conversation(s)
    await asked(s)
    s.engine.finish(Outcome.FAILED, error="The chat model ran out of memory.")


async def failed_voice(s: Screen) -> None:
    await conversation(s)
    await asked(s)
    notice = "The voice took more than 3 s to begin. The answer goes on as text."
    s.engine.report(ReplyText(s.engine.turns, ANSWER), Notice(notice))
    silent = {name: at for name, at in MARKS.items() if "sound" not in name and "audio" not in name}
    s.engine.finish(timestamps=silent, reply=ANSWER, tokens=17)


async def failed_start(s: Screen) -> None:
    s.engine.report(Loading("Voice"), Loading("Chat model"))
    missing = ModelMissing("The chat model is not on this machine.", "Fetch it.", 1_117_320_768)
    s.engine.report(LoadFailed(missing))


async def no_microphone(s: Screen) -> None:
    await loaded(s, microphone=None)


async def lost_microphone(s: Screen) -> None:
    await conversation(s)
    s.engine.report(Notice("USB Microphone was unplugged.", "error"), MicrophoneLost())


async def typing(s: Screen) -> None:
    await conversation(s)
    await s.type("How far is the moon")


async def kept_while_loading(s: Screen) -> None:
    await starting(s)
    await s.type("Hello")
    await s.pilot.press("enter")
    await s.press("escape", "space")


async def keys(s: Screen) -> None:
    await conversation(s)
    await s.pilot.press("f1")


async def palette(s: Screen) -> None:
    await loaded(s)
    await s.pilot.press("ctrl+p")
    await s.settle()
    await s.app.workers.wait_for_complete()  # the devices are among the entries


async def again(s: Screen) -> None:
    await conversation(s)
    s.engine.begin("replay", at=s.clock.now)
    s.engine.report(Captured(s.engine.turns, speech()), StateChanged(State.THINKING))
    await s.settle()
    s.app.turns._words_due = 0.0


async def copied(s: Screen) -> None:
    await conversation(s)
    await s.press("ctrl+t")
    await s.pilot.press("ctrl+y")


async def saved(s: Screen) -> None:
    await conversation(s)
    place = "~/.local/share/voxtui/sessions/2026-11-21_10-00-00"
    s.engine.report(Notice(f"Saved, with your words:\n{place}", "information"))


async def timers(s: Screen) -> None:
    await conversation(s)
    running = Countdown("pasta", s.clock.now + 272), Countdown("tea", None, 61.0)
    s.engine.report(CountdownsChanged(running))


HANDS_FREE = Config(vad=VadConfig(hands_free=True))

STATES: dict[str, tuple[Act, Config]] = {
    act.__name__: (act, config)
    for act, config in (
        (starting, Config()),
        (kept_while_loading, Config()),
        (failed_start, Config()),
        (ready, Config()),
        (ready_toggle, Config()),
        (ready_hands_free, HANDS_FREE),
        (no_microphone, Config()),
        (silent_microphone, Config()),
        (listening_hold, Config()),
        (listening_toggle, Config()),
        (listening_mouse, Config()),
        (listening_hands_free, HANDS_FREE),
        (captions, Config()),
        (thinking, Config()),
        (speaking, Config()),
        (answered, Config()),
        (selected, Config()),
        (on_a_gpu, Config()),
        (light, Config(ui=UiConfig(theme=LIGHT))),
        (talked_over, Config()),
        (nothing_heard, Config()),
        (failed_turn, Config()),
        (failed_voice, Config()),
        (lost_microphone, Config()),
        (typing, Config()),
        (keys, Config()),
        (palette, Config()),
        (again, Config()),
        (copied, Config()),
        (timers, Config()),
        (saved, Config()),
    )
}


def frozen(clock: Clock) -> AbstractContextManager[object]:
    """Within, the screen's time is that of `clock`, and nothing happens by itself."""
    stack = ExitStack()
    for module in ("driver.terminal_app", "talk.talk", "widgets.timers", "conversation.turn_views"):
        stack.enter_context(patch(f"voxtui.ui.{module}.time", clock))
    for name in (
        "app.TICK_SECONDS", "app.LEVEL_SECONDS", "status.LEVEL_CHECK_SECONDS",
        "widgets.timers.TICK_SECONDS",
    ):  # fmt: skip
        stack.enter_context(patch(f"voxtui.ui.{name}", NEVER))
    return stack


async def brought_about(pilot: Any, act: Act, clock: Clock) -> None:
    engine = pilot.app.session.engine
    shown = Screen(pilot.app, engine, pilot)
    shown.clock = clock
    await shown.settle()
    await act(shown)
    await shown.settle()
    for field in pilot.app.screen.query(Input):
        field.cursor_blink = False
    pilot.app.tick()
    pilot.app.status.show_level()
    await shown.settle()
