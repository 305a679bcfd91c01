"""Ordered ways to get a part."""

from __future__ import annotations

import pytest

from tests.fakes import BeepVoice
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.dialogue.protocols import Progress
from voxtui.errors import ModelError


class Damaged(BeepVoice):
    def warm_up(self, progress: Progress) -> None:
        raise ModelError("Its file is damaged.", "Fetch it again.")


def impossible() -> BeepVoice:
    raise ModelError("There is no GPU.")


def warm_up(voice: BeepVoice) -> None:
    voice.warm_up(lambda step, fraction: None)


def test_the_first_part_that_can_be_made_is_used() -> None:
    first, second = BeepVoice(), BeepVoice()
    loaded = Fallbacks((lambda: first, lambda: second)).load(warm_up)
    assert loaded.part is first and loaded.passed_over is None


def test_a_part_that_cannot_be_made_is_passed_over() -> None:
    loaded = Fallbacks((impossible, BeepVoice)).load(warm_up)
    assert (loaded.number, loaded.was_made) == (1, False)
    assert str(loaded.passed_over) == "There is no GPU."


def test_a_part_that_does_not_warm_up_is_closed_and_passed_over() -> None:
    damaged = Damaged()
    loaded = Fallbacks((lambda: damaged, BeepVoice)).load(warm_up)
    assert damaged.closed and (loaded.number, loaded.was_made) == (1, True)


def test_the_last_error_is_raised_where_no_part_can_be_loaded() -> None:
    with pytest.raises(ModelError, match="damaged"):
        Fallbacks((impossible, Damaged)).load(warm_up)


def test_a_part_that_the_user_named_is_not_replaced_silently() -> None:
    with pytest.raises(ModelError, match="no GPU"):
        Fallbacks((impossible, BeepVoice), first_only=True).load(warm_up)


def test_an_aborted_load_closes_its_part() -> None:
    def abort(voice: BeepVoice) -> None:
        raise KeyboardInterrupt

    voice = BeepVoice()
    with pytest.raises(KeyboardInterrupt):
        Fallbacks((lambda: voice, BeepVoice)).load(abort)
    assert voice.closed
