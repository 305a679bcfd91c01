"""Paints one widget at once, where Textual would wait for its next tick and paint everything."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from textual.widget import Widget


def paint_now(widget: Widget) -> None:
    """Paint what has changed of `widget` and nothing else, if its screen is in view.

    Other changes stay marked and are painted with the next tick. Relies on private parts of Textual
    8.2, which pyproject.toml pins: the screen's compositor and dirty widgets, and `App._display`.
    """
    screen = widget.screen
    if widget.app.screen is screen and not widget.app._batch_count:
        compositor = screen._compositor
        compositor.update_widgets({widget})
        widget.app._display(screen, compositor.render_update())
        screen._dirty_widgets.discard(widget)
