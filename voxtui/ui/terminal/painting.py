"""Paints one widget at once, where Textual would wait for its next tick and paint everything."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from textual._compositor import Compositor, LayoutUpdate
from textual.geometry import Region
from textual.widget import Widget


def paint_now(*widgets: Widget) -> None:
    """Paint what has changed of `widgets` and nothing else, if their screen is in view.

    Other changes stay marked and are painted with the next tick. For each changed line, Textual's
    compositor renders all lines of each widget around it, which takes several times as long. So it
    paints only where something lies over a widget, such as a toast. Relies on private parts of
    Textual 8.2, which pyproject.toml pins: the screen's compositor and dirty widgets, the changed
    regions of a widget, and `App._display`.
    """
    screen = widgets[0].screen
    app, compositor = screen.app, screen._compositor
    if app.screen is not screen or app._batch_count:
        return
    for widget in widgets:
        if (area := _uncovered(compositor, widget)) is None:
            compositor.update_widgets({widget})
            app._display(screen, compositor.render_update())
        elif changes := widget._exchange_repaint_regions():
            corner = compositor.visible_widgets[widget][0].offset
            changed = Region.from_union([*changes]).translate(corner).intersection(area)
            lines = widget.render_lines(changed.translate(-corner))
            app._display(screen, LayoutUpdate([[line] for line in lines], changed))
        screen._dirty_widgets.discard(widget)


def _uncovered(compositor: Compositor, widget: Widget) -> Region | None:
    """Return the area of `widget` beside its scroll bar; None if another widget covers part of it.

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
