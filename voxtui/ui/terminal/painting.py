"""Painting at once, where Textual would wait for its next tick and paint all that has changed."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from __future__ import annotations

from textual.widget import Widget


def paint_now(widget: Widget) -> None:
    """Paint what has changed of `widget`, and nothing else, if its screen is in view.

    Good for Textual 8.2.8: leans on the compositor of its screen, and on `App._display`. What else
    has changed stays marked, and is painted with the next tick.
    """
    screen = widget.screen
    if widget.app.screen is screen and not widget.app._batch_count:
        compositor = screen._compositor
        compositor.update_widgets({widget})
        widget.app._display(screen, compositor.render_update())
