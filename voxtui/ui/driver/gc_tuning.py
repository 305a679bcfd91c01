"""Run the garbage collector between turns, never over the models or before the first frame."""

from __future__ import annotations

import gc

THRESHOLDS = gc.get_threshold()
SELDOM_FULL = (*THRESHOLDS[:2], 1000)
"""Thresholds that leave full collections to the pauses between turns."""

YOUNG, FULL = 1, 2
FULL_TURNS = 20
"""Turns between full collections, because one takes 20 ms after 1,000 turns."""


def pause() -> None:
    """Stop collection until `resume`: nearly all objects of the start-up stay alive."""
    gc.disable()


def resume() -> None:
    gc.enable()


def freeze() -> None:
    """Exempt all live objects, such as modules and models, from collection. Call it once.

    A collection over them would stop every thread for 60 ms. Somebody may already be speaking, so
    only young garbage is collected first. Older cyclic garbage is frozen and never freed; it is
    little, and Textual's drawings are young.
    """
    gc.collect(YOUNG)
    gc.freeze()
    gc.set_threshold(*SELDOM_FULL)


def collect(turns: int) -> None:
    gc.collect(YOUNG if turns % FULL_TURNS else FULL)


def restore() -> None:
    gc.unfreeze()
    gc.set_threshold(*THRESHOLDS)
