"""Textual's app with all that concerns the terminal: its driver, colours and notifications."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from rich.console import RenderableType
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.notifications import Notify, SeverityLevel
from textual.theme import Theme

from voxtui.session.notification import notification, notify_desktop
from voxtui.ui.driver.keyboard import KeyboardDriver
from voxtui.ui.themes import AVAILABLE, legible
from voxtui.ui.widgets.messages import Messages, Sentence

READ_PER_SECOND = 15
"""Reading speed in characters per second, by which a long message stays long enough."""


class TerminalApp(App[None], inherit_bindings=False):
    out_of_memory: MemoryError | None = None
    """the error that ended the app, raised again once the terminal is restored"""

    def _handle_exception(self, error: Exception) -> None:
        if isinstance(error, MemoryError):  # its traceback would tell the user nothing
            self.out_of_memory = error
            self.exit()
        else:
            super()._handle_exception(error)

    def panic(self, *renderables: RenderableType) -> None:
        self.exit(return_code=1)  # the thread that reads the keys calls this without one
        super().panic(*renderables)

    def _refresh_notifications(self) -> None:
        for messages in self.screen.query(Messages) if self.screen_stack else ():
            messages.show(self._notifications)

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return KeyboardDriver if driver is LinuxDriver else driver

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = legible(super().get_css_variables())
        return self.theme_variables

    @property
    def available_themes(self) -> dict[str, Theme]:
        return AVAILABLE

    def paint_after_suspend(self) -> None:
        """Paint all after a suspend: the terminal is empty, and Textual paints only changes."""
        self.app_resume_signal.subscribe(self, lambda _: self.refresh())  # pyright: ignore[reportUnknownMemberType, reportUnknownLambdaType]

    def when_written(self, notify: Callable[[float], object]) -> None:
        """Call `notify` with the time at which every painted frame was written to the terminal.

        Waits for that at most a frame. `notify` may be called on any thread.
        """
        if isinstance(self._driver, KeyboardDriver):
            self._driver.wait_written(notify)
        else:
            notify(time.monotonic())

    def notify_outside(self, sentence: str) -> None:
        """Notify the user by the terminal or the desktop, in case this window is not in view."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(notification("voxtui", sentence, os.environ))
            notify_desktop("voxtui", sentence, os.environ)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        for shown in [*iter(self._notifications)]:
            if shown.message == message:
                shown.raised_at = time.monotonic()
                self._refresh_notifications()
                return
        if timeout is None:
            timeout = max(self.NOTIFICATION_TIMEOUT, len(message) / READ_PER_SECOND)
        self.post_message(Notify(Sentence(message, title, severity, timeout)))
