"""The state of one conversation, which the engine's rooms share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from voxtui.dialogue.components.components import Components
from voxtui.dialogue.events import Event, State, StateChanged
from voxtui.dialogue.history.history import History
from voxtui.dialogue.inbox import Inbox
from voxtui.dialogue.listening.listener import Listener
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import Skills


@dataclass(slots=True, eq=False)
class Dialogue:
    """Only the engine's thread changes it. Other threads may read `state`, post and emit."""

    inbox: Inbox
    components: Components
    listener: Listener
    history: History
    config: LiveConfig
    emit: Callable[[Event], object]
    skills: Skills | None
    local: bool
    """the user sits at this machine"""
    confirms: bool = False
    """a key can be asked for, so tools that act may run"""
    state: State = State.LOADING

    def enter(self, state: State) -> None:
        self.state = state
        self.emit(StateChanged(state))
