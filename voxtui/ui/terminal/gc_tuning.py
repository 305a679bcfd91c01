"""When Python looks for garbage: between turns only, and not at what stays."""

from __future__ import annotations

import gc

THRESHOLDS = gc.get_threshold()
RARELY_ALL = (*THRESHOLDS[:2], 1000)
"""A look through everything that is not frozen comes between turns only."""

YOUNG, ALL = 1, 2
ALL_TURNS = 20
"""A look through all there is takes 20 ms after a thousand turns, so it follows every twentieth."""


def freeze() -> None:
    """What is there now stays: modules, models.

    Looking through it again and again would stop every thread for some 60 ms in the middle of an
    answer. Done once: what is frozen is never freed where it is part of a circle, as what Textual
    has drawn is.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY_ALL)


def collect(turns: int) -> None:
    """Turn number `turns` is over."""
    gc.collect(YOUNG if turns % ALL_TURNS else ALL)


def restore() -> None:
    """As it was before `keep`."""
    gc.unfreeze()
    gc.set_threshold(*THRESHOLDS)
