"""Turn the talk key, the mouse and the focus into the beginning and end of an utterance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from textual.message import Message
from textual.timer import Timer

from voxtui.session.local_session import LocalSession
from voxtui.session.user_session import NotAllowed
from voxtui.ui.talk.talkbar import TalkBar
from voxtui.ui.talk.talkkey import Act, Begin, End, Mode, TalkKey


class PushToTalk:
    class Changed(Message):
        """Talking has begun or ended, or the way of talking changed. Sent by the bar."""

        def __init__(self, talking: bool) -> None:
            super().__init__()
            self.talking = talking
            """whether an utterance was in progress when this was sent"""

    def __init__(self, session: LocalSession, bar: TalkBar) -> None:
        self.bar = bar
        self._session = session
        self._key = TalkKey()
        self._by_mouse = False
        self._settling: Timer | None = None

    @property
    def mode(self) -> Mode:
        if self._by_mouse:
            return Mode.MOUSE
        if self._session.config.vad.hands_free:
            return Mode.HANDS_FREE
        return Mode.HOLD if self._key.releases else Mode.TOGGLE

    @property
    def is_held(self) -> bool:
        """True if an utterance lasts as long as the key or the button is held."""
        return self._by_mouse or self._key.releases

    def press(self, at: float | None = None, repeated: bool = False) -> None:
        """Take a press of the key at `at` (monotonic seconds), or a repeat."""
        at = time.monotonic() if at is None else at
        self._obey(self._key.press(at, repeated), at)

    def key_up(self, at: float) -> None:
        self._obey(self._key.release(at), at)

    def mouse_down(self, at: float) -> None:
        if self._session.talking is None:
            self._by_mouse = True
            self._begin(at)

    def mouse_up(self, at: float) -> None:
        if self._by_mouse:
            self._by_mouse = False
            self._session.end_talking(at)
            self._changed()

    def let_go(self, at: float | None = None) -> None:
        """Release key and button, because their release will not be reported here."""
        at = time.monotonic() if at is None else at
        self._obey(self._key.lose_focus(at), at)
        self.mouse_up(at)

    def use_keyboard(self, releases: bool, at: float) -> None:
        self.let_go(at)
        self._key.releases = releases

    def follow(self) -> None:
        if self._session.talking is None:
            self._key.abandon()
            if self._by_mouse:
                self._by_mouse = False
                self._changed()

    def _begin(self, at: float) -> None:
        if self._session.talking is not None:
            self._key.abandon()
            if not self._by_mouse:
                self._session.end_talking(at)
            return
        try:
            self._session.begin_talking(at)
        except NotAllowed as refused:
            self.bar.notify(str(refused), severity=refused.severity)
        if self._session.talking is None:  # refused, or it ended what began hands-free
            self._key.abandon()
        self._changed()

    def _changed(self) -> None:
        self.bar.post_message(self.Changed(self._session.talking is not None))

    def _obey(self, acts: Sequence[Act], now: float) -> None:
        for act in acts:
            match act:
                case Begin(at):
                    self._begin(at)
                case End(at):
                    self._session.end_talking(at)
        if self._settling is not None:
            self._settling.stop()
            self._settling = None
        if (deadline := self._key.deadline) is not None:
            settle = partial(self._settle, deadline)
            self._settling = self.bar.set_timer(max(0.001, deadline - now), settle)

    def _settle(self, deadline: float) -> None:
        self._obey(self._key.settle(deadline), deadline)
