"""The last line: the keys and their present actions."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.style import Style
from textual.widgets import Static

from voxtui.ui.keys import ON_TURN, SELECT
from voxtui.ui.talk_screen import TalkScreen

KEY = "bold $footer-key-foreground"
LABEL = "$footer-description-foreground"


class Footer(Static):
    """Draws all keys as one line.

    Textual's footer mounts a widget for each key whenever one changes. That takes 30 ms on the UI
    loop at each press and release of the talk key, and a quarter of the start.
    """

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(markup=False)
        self._tooltips: dict[str, str] = {}

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._follow)  # pyright: ignore[reportUnknownMemberType]

    def _follow(self, screen: Screen[object]) -> None:
        bindings = [active.binding for active in screen.active_bindings.values()]
        line = Content()
        for binding in self._shown(bindings):
            key = Content.styled(f" {self.app.get_key_display(binding)} ", KEY)  # pyright: ignore[reportUnknownMemberType]
            label = Content.styled(f"{binding.description} ", LABEL)
            line += (key + label).stylize(Style.from_meta({"key": binding.key}))
        self._tooltips = {one.key: one.tooltip or one.description for one in bindings}
        if line != self.content:
            self.update(line, layout=False)

    def _shown(self, bindings: Sequence[Binding]) -> Sequence[Binding]:
        screen = self.screen
        if isinstance(screen, TalkScreen) and screen.turn_offered:
            offered = [binding for binding in bindings if binding.action in ON_TURN]
            return sorted(offered, key=lambda binding: ON_TURN.index(binding.action))
        selects = isinstance(screen, TalkScreen) and screen.offers_selection
        shown = [each for each in bindings if each.show and (selects or each.action != SELECT)]
        return sorted(shown, key=lambda binding: binding.action == SELECT)  # it comes and goes

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self.tooltip = self._tooltips.get(event.style.meta.get("key", ""))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if key := event.style.meta.get("key"):
            self.app.simulate_key(key)  # pyright: ignore[reportUnknownMemberType]
