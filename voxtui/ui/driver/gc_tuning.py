"""Runs the garbage collector between turns, never over the models or before the first frame."""

from __future__ import annotations

import gc

THRESHOLDS = gc.get_threshold()
SELDOM_FULL = (*THRESHOLDS[:2], 1000)
"""Full collections run between turns instead."""

YOUNG, FULL = 1, 2
FULL_TURNS = 20
"""Turns between full collections, because one takes 20 ms after 1,000 turns."""


def pause() -> None:
    """Collect nothing until `resume`: at the start nearly everything that is made stays."""
    gc.disable()


def resume() -> None:
    gc.enable()


def freeze() -> None:
    """Exempt all live objects, modules and models, from collection.

    A collection over them would stop every thread for 60 ms. That is as true now, because somebody
    may be speaking already, so only young garbage is collected. Older cyclic garbage is frozen and
    never freed; it is little, and Textual's drawings are young. Call it once.
    """
    gc.collect(YOUNG)
    gc.freeze()
    gc.set_threshold(*SELDOM_FULL)


def collect(turns: int) -> None:
    gc.collect(YOUNG if turns % FULL_TURNS else FULL)


def restore() -> None:
    gc.unfreeze()
    gc.set_threshold(*THRESHOLDS)
