"""Paint single widgets at once, while Textual would wait for its next tick and paint everything."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
from typing import Any

from textual._compositor import Compositor, LayoutUpdate
from textual.geometry import Region
from textual.screen import UPDATE_PERIOD, Screen
from textual.timer import Timer
from textual.widget import Widget

# For each changed line, Textual's compositor renders all lines of each widget around it, which
# takes several times as long as the widget itself. So it paints only where it has to: a new layout,
# a container, or a widget under another one, such as a toast. This module relies on private parts
# of Textual 8.2, which pyproject.toml pins: the screen's compositor, changed widgets and update
# timer, the changed regions of a widget, and `App._display`.


class SteppedScreen(Screen[None]):
    """A screen that paints its changed widgets one by one.

    Between two of them the event loop handles other events. A word of an answer thus waits for at
    most one widget, and never for a frame.
    """

    _timer: Timer | None = None

    @property
    def _update_timer(self) -> Timer:
        if self._timer is None:
            self._timer = self.set_interval(UPDATE_PERIOD, self._paint_in_steps, pause=True)
        return self._timer

    async def _paint_in_steps(self) -> None:
        left = set[Widget]()
        while changed := self._dirty_widgets - left:
            if self._layout_required or self._scroll_required or self._repaint_required:
                break
            widget = changed.pop()
            if _paint_alone(self, widget):
                await asyncio.sleep(0)  # lets the event loop take what waits
            else:
                left.add(widget)
        self._on_timer_update()


def paint_now(widget: Widget) -> None:
    """Paint only the changes of `widget`, if its screen is in view; the rest waits for a tick."""
    screen = widget.screen
    app, compositor = screen.app, screen._compositor
    if app.screen is not screen or app._batch_count or _paint_alone(screen, widget):
        return
    compositor.update_widgets({widget})
    app._display(screen, compositor.render_update())
    screen._dirty_widgets.discard(widget)


def _paint_alone(screen: Screen[Any], widget: Widget) -> bool:
    """Paint the changes of `widget`. Return False if only the compositor can do that."""
    app, compositor = screen.app, screen._compositor
    if app.screen is not screen or app._batch_count:
        return False
    if (area := _uncovered(compositor, widget)) is None:
        return False
    screen._dirty_widgets.discard(widget)
    if changes := widget._exchange_repaint_regions():
        corner = compositor.visible_widgets[widget][0].offset
        changed = Region.from_union([*changes]).translate(corner).intersection(area)
        if changed:
            lines = widget.render_lines(changed.translate(-corner))
            app._display(screen, LayoutUpdate([[line] for line in lines], changed))
    return True


def _uncovered(compositor: Compositor, widget: Widget) -> Region | None:
    """Return the area of `widget` without its scroll bar; None if another widget covers part of it.

    A widget that is out of view has no such area either.
    """
    area = None
    for other, (region, clip) in reversed(compositor.visible_widgets.items()):  # the front is last
        if other is widget:
            bar = widget.scrollbar_size_vertical if widget.show_vertical_scrollbar else 0
            area = region.intersection(clip).shrink((0, bar, 0, 0))
        elif area is not None and area.overlaps(region.intersection(clip)):
            return None
    return area
