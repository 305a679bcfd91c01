"""Painting at once, where Textual would wait for its next tick and paint all that has changed."""

from __future__ import annotations

from textual.widget import Widget


def paint_now(widget: Widget) -> None:
    """Paint what has changed of `widget`, and nothing else, if its screen is in view.

    Good for Textual 8.2.8: leans on the compositor of its screen, and on `App._display`. What else
    has changed stays marked, and is painted with the next tick.
    """
    screen, app = widget.screen, widget.app
    if screen is not app.screen or app._batch_count:  # pyright: ignore[reportPrivateUsage]
        return
    compositor = screen._compositor  # pyright: ignore[reportPrivateUsage]
    compositor.update_widgets({widget})
    app._display(screen, compositor.render_update())  # pyright: ignore[reportPrivateUsage]
