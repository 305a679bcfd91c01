"""Show sentences that need no answer, in lines above the latency line or in an open box."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from textual.content import Content
from textual.notifications import Notification
from textual.timer import Timer
from textual.widgets import Static

MOST = 3
"""Maximum messages, so that the conversation has enough space."""

SIGNS = {"information": "", "warning": "! ", "error": "✗ "}
STYLES = {"information": "$text-muted", "warning": "$text-warning", "error": "$text-error"}


@dataclass
class Sentence(Notification):
    """A notification that expires on time although the clock is set."""

    raised_at: float = field(default_factory=monotonic)

    @property
    def time_left(self) -> float:
        return self.raised_at + self.timeout - monotonic()


class Messages(Static):
    """Takes lines of its own, and covers nothing. A click removes all messages."""

    def __init__(self) -> None:
        super().__init__(id="messages", markup=False)
        self._expiry: Timer | None = None
        self._since = monotonic()
        """the time of creation; earlier messages are still shown below the box"""

    def show(self, notifications: Iterable[Notification]) -> None:
        # Not `list(notifications)`: it takes their length too, which removes those that expired
        # meanwhile, and a dictionary must not change while it is read.
        newest = [each for each in iter(notifications) if each.raised_at >= self._since]
        newest = newest[: -MOST - 1 : -1]
        lines = (
            Content.styled(f"{SIGNS[each.severity]}{each.message}", STYLES[each.severity])
            for each in newest
        )
        if (text := Content("\n").join(lines)) != self.content:
            self.update(text)
            self.set_class(bool(newest), "shown")
        if self._expiry is not None:
            self._expiry.stop()
            self._expiry = None
        if newest:
            left = max(0.1, min(each.time_left for each in newest))
            self._expiry = self.set_timer(left, lambda: self._drop_expired(newest))

    def _drop_expired(self, shown: Sequence[Notification]) -> None:
        self.show(each for each in reversed(shown) if not each.has_expired)

    def on_click(self) -> None:
        self.app.clear_notifications()  # pyright: ignore[reportUnknownMemberType]
