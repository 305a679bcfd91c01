"""The state of one conversation, which the parts of the engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from voxtui.dialogue.components.components import Components
from voxtui.dialogue.events import Event, State, StateChanged
from voxtui.dialogue.history.history import History
from voxtui.dialogue.inbox import Inbox
from voxtui.dialogue.listening.listener import Listener
from voxtui.dialogue.live_config import LiveConfig
from voxtui.dialogue.protocols import Past, ReplyOptions, Skills
from voxtui.dialogue.skill_errors import skill_errors_logged

BEGUN_RECENTLY = timedelta(minutes=1)
"""Maximum age of the first key of a typed text whose time the brain is told, so that work ahead
stays valid. Later the brain is told the present time."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    captions: bool = False
    confirms: bool = False
    """whether it answers KeyNeeded by a key; without, tools that act are refused"""


NO_FRONT_END = FrontEnd()


@dataclass(slots=True, eq=False)
class Dialogue:
    """Changed by the engine's thread alone. Other threads may read `state`, post and emit."""

    inbox: Inbox
    components: Components
    listener: Listener
    history: History
    config: LiveConfig
    emit: Callable[[Event], object]
    skills: Skills | None
    options: ReplyOptions
    """the options of the next answer, without the time"""
    front_end: FrontEnd = NO_FRONT_END
    state: State = State.LOADING

    @property
    def is_quiet(self) -> bool:
        """True while nobody speaks: neither side, and no announcement."""
        return self.state is State.READY and self.listener.recording is None

    @property
    def is_idle(self) -> bool:
        """True while nobody speaks and no turn waits, so that the devices may be replaced."""
        return self.is_quiet and not self.inbox.turn_waits

    @property
    def loading_options(self) -> ReplyOptions:
        """Return the options to load a brain for: a history would stand before the time."""
        return self.options if self.history.past else self.timed_options(())

    def timed_options(self, past: Past, begun: datetime | None = None) -> ReplyOptions:
        """Return the options of a turn after `past` that the user began at `begun`, or now."""
        at = self.local_time(begun)
        return self.options if at is None else self.options.with_clock(clock_line(at, past))

    def local_time(self, begun: datetime | None = None) -> datetime | None:
        """Return the time to tell the brain: `begun` if it is recent, else now. Any thread.

        None if there are no skills, or if `brain.clock` is off.
        """
        if self.skills is None or not self.config.current.brain.clock:
            return None
        now = datetime.now()
        with skill_errors_logged():
            now = self.skills.now()
        return begun if begun is not None and abs(now - begun) < BEGUN_RECENTLY else now

    def enter(self, state: State) -> None:
        self.state = state
        self.emit(StateChanged(state))


def clock_line(now: datetime, past: Past) -> str:
    """Return the line with the time, which stands before the user's words in the history.

    It has the date only if no past turn of this day has it, because each digit is a token.
    """
    date = f"{now:%A}, {now.day} {now:%B} {now.year}"
    if any(date in turn.clock for turn in past):
        return f"({now:%H:%M})"
    return f"(It is {date}, {now:%H:%M}.)"
