"""The screen and the plain mode offer the same: one script of commands is driven through both."""

import pytest

from tests.fakes import ScriptedEngine, make_factories
from tests.ui.conftest import CLIPS, screen
from tests.ui.pseudo_terminal import until
from voxtui.commands.plain import Plain
from voxtui.dialogue.events import State, StateChanged, UserWords
from voxtui.settings.schema import Config
from voxtui.ui.app import VoxtuiApp


def speaking(engine) -> None:
    engine.begin()
    engine.report(StateChanged(State.LISTENING), StateChanged(State.SPEAKING))


def misheard(engine) -> None:
    speaking(engine)
    engine.report(UserWords(engine.turns, "hey"))


def finishing(engine) -> None:
    engine.finish(reply="Yes.")


# Keys of the screen, the line of the plain mode, the engine's reaction once it was told.
SCRIPT = [
    (("space",), "", None),
    (("ctrl+n",), "/new", lambda engine: engine.load()),
    (("space",), "", speaking),
    (("escape",), "/stop", finishing),
    (("ctrl+t",), "/mute", None),
    ((*"/mute", "enter"), "/mute", None),
    (("ctrl+r",), "/again", None),
    (("ctrl+o",), "/edit", None),
    ((*"/fetch", "enter"), "/fetch", None),
    ((*"/clip", "space", "9", "enter"), "/clip 9", None),
    ((*"/sav", "enter"), "/sav", None),
    (("h", "i", "enter"), "hi", misheard),
    ((*"/edit", "space", *"bye", "enter"), "/edit bye", speaking),
    (("escape",), "/stop", finishing),
    (("escape", "ctrl+n"), "/new", None),
    ((*"/undo", "enter"), "/undo", None),
    ((*"/undo", "enter"), "/undo", None),
]

TOLD = ["new_conversation", "talk", "cancel", "mute", "mute", "say", "redo", "cancel"]
TOLD += ["new_conversation", "recall_conversation"]

REFUSED = [
    "The models are still loading. Text that you send is answered after that.",
    "There is no turn to answer again yet.",
    "There are no words to correct yet.",
    "There is no model to fetch.",
    "There is no sample clip 9. There are: 1 a question, 2 a joke.",
    "/sav: there is no such command. Did you mean /save?",
    "A new conversation can be undone only until its first turn.",
]


def told(engine) -> list[str]:
    return [str(call[0]) for call in engine.calls if call[0] not in ("start", "close")]


async def through_the_screen(monkeypatch) -> tuple[list[str], list[str]]:
    toasts = []
    monkeypatch.setattr(VoxtuiApp, "notify", lambda app, message, **_: toasts.append(message))
    async with screen(loaded=False, factories=make_factories()) as s:
        for keys, _, react in SCRIPT:
            await s.press(*keys)
            if react:
                react(s.engine)
            await s.settle()
        return told(s.engine), [toast for toast in toasts if toast in REFUSED]


def through_the_plain_mode(capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    plain = Plain(
        ScriptedEngine, Config(), CLIPS,
        make_factories(), typed_live=True,
    )  # fmt: skip
    engine = plain.session.engine

    def lines():
        for _, line, react in SCRIPT:
            before = len(engine.calls)
            yield line
            if react:
                until(lambda before=before: len(engine.calls) > before)
                react(engine)

    plain.run(lines())
    printed = capsys.readouterr().err.splitlines()
    return told(engine), [line for line in printed if line in REFUSED]


async def test_both_front_ends_call_the_engine_alike_and_refuse_alike(capsys, monkeypatch):
    assert await through_the_screen(monkeypatch) == (TOLD, REFUSED)
    assert through_the_plain_mode(capsys) == (TOLD, REFUSED)
