"""Sets of parts are lent to one borrower at a time, and those who wait get them in turn."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes import BeepVoice, LoudIsSpeech, ScriptedBrain
from voxtui import wiring
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.serve.openai_types import HttpError
from voxtui.serve.shared_models import ModelSet, Pool, warm_pool
from voxtui.settings.schema import Config, ServeConfig


def pool(sets: int, hand_over_s: float) -> Pool:
    made = [ModelSet(str, LoudIsSpeech(), BeepVoice()) for _ in range(sets)]
    return Pool(made, hand_over_s)


async def test_a_set_that_is_given_back_goes_to_who_has_waited_longest():
    lent, order = pool(1, 20.0), []

    async def borrow(name: str) -> None:
        async with lent.lend():
            order.append(name)

    async with asyncio.TaskGroup() as group, lent.lend():
        for name in ("first", "second"):
            group.create_task(borrow(name))
            await asyncio.sleep(0)  # the loop begins it
    assert order == ["first", "second"]
    assert lent.busy == 0


async def test_who_gives_up_takes_no_set_away():
    lent = pool(1, 20.0)
    async with lent.lend():
        waiting = asyncio.ensure_future(lent.lend().__aenter__())
        await asyncio.sleep(0)  # the loop begins it
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(20.0), lent.lend():
        assert lent.busy == 1


async def test_all_sets_lent_is_a_refusal():
    lent = pool(2, 0.0)
    async with lent.lend(), lent.lend():
        with pytest.raises(HttpError, match="All 2 sessions"):
            async with lent.lend():
                pass
    assert lent.busy == 0


def test_every_part_of_a_set_is_warm_before_it_is_lent(monkeypatch):
    brains, detectors = [], []

    class Detector(LoudIsSpeech):
        frames = 0

        def probability(self, frame) -> float:
            self.frames += 1
            return super().probability(frame)

    def made(parts: list, part):
        parts.append(part)
        return part

    monkeypatch.setattr(wiring, "build_detector", lambda config: made(detectors, Detector()))
    monkeypatch.setattr(wiring, "build_voice", lambda config, notify: None)
    monkeypatch.setattr(
        wiring,
        "build_brain",
        lambda config, notify: Fallbacks((lambda: made(brains, ScriptedBrain()),)),
    )
    with warm_pool(Config(serve=ServeConfig(sessions=2)), print) as loaded:
        assert (loaded.size, loaded.busy) == (2, 0)
        assert [brain.warmed for brain in brains] == [True] * 2
        assert [detector.frames > 0 for detector in detectors] == [True] * 4
    assert [brain.closed for brain in brains] == [True] * 2
