"""Sets of parts are lent to one borrower at a time, and those who wait get them in turn."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.fakes import BeepVoice, LoudIsSpeech, ScriptedBrain
from voxtui import wiring
from voxtui.dialogue.fallbacks import Fallbacks
from voxtui.serve.openai_types import HttpError
from voxtui.serve.shared_models import ModelSet, Pool, warm_pool
from voxtui.serve.upload import Disconnected
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


@pytest.mark.parametrize("gives_up", [False, True])
async def test_a_set_that_comes_in_the_last_moment_is_not_lost(gives_up):
    lent, over, used = pool(1, 0.05), asyncio.Event(), []

    async def hold() -> None:
        async with lent.lend():
            await over.wait()

    async def borrow() -> None:
        async with lent.lend() as parts:
            used.append(parts)

    holding, waiting = asyncio.create_task(hold()), asyncio.create_task(borrow())
    await asyncio.sleep(0)  # the loop begins both
    over.set()
    if gives_up:
        asyncio.get_running_loop().call_soon(waiting.cancel)
    else:
        time.sleep(0.1)  # the loop is late, so the set and the end of the wait come together
    await asyncio.wait((holding, waiting))
    assert lent.busy == 0
    assert len(used) == (not gives_up)


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
    monkeypatch.setattr(wiring, "build_voice", lambda config: None)
    monkeypatch.setattr(
        wiring,
        "build_brain",
        lambda config, notify, **options: Fallbacks((lambda: made(brains, ScriptedBrain()),)),
    )
    with warm_pool(Config(serve=ServeConfig(sessions=2)), print) as loaded:
        assert (loaded.size, loaded.busy) == (2, 0)
        assert [brain.warmed for brain in brains] == [True] * 2
        assert [detector.frames > 0 for detector in detectors] == [True] * 4
    assert [brain.closed for brain in brains] == [True] * 2


class Request:
    """What the queue knows of a request."""

    def __init__(self, client: str = "a") -> None:
        self.client = client
        self.answer_headers: dict[str, str] = {}
        self.left = asyncio.get_running_loop().create_future()

    @property
    def position(self) -> int:
        return int(self.answer_headers["x-voxtui-queue-position"])


async def queued(lent: Pool, *clients: str) -> tuple[list[str], list[int]]:
    """Return whose turn it was, and at which positions they began to wait."""
    order, requests = [], [Request(client) for client in clients]

    async def borrow(request) -> None:
        async with lent.lend(request):
            order.append(request.client)

    async with asyncio.TaskGroup() as group, lent.lend():
        for request in requests:
            group.create_task(borrow(request))
            await asyncio.sleep(0)  # the loop begins it
        assert lent.waiting == len(clients)
    return order, [request.position for request in requests]


async def test_each_client_has_its_turn_however_many_requests_another_one_has():
    order, positions = await queued(pool(1, 20.0), "a", "a", "a", "b", "c", "b")
    assert order == ["a", "b", "c", "a", "b", "a"]
    assert positions == [1, 2, 3, 4, 5, 6]


async def test_a_request_that_finds_a_free_set_has_waited_for_nobody():
    lent, request = pool(2, 20.0), Request()
    async with lent.lend(Request()), lent.lend(request):
        assert request.position == 0


async def test_who_leaves_the_queue_takes_no_turn():
    lent, leaver, order = pool(1, 20.0), Request("a"), []

    async def borrow(request) -> None:
        async with lent.lend(request):
            order.append(request)

    async with lent.lend():
        waiting = asyncio.ensure_future(borrow(leaver))
        await asyncio.sleep(0)  # the loop begins it
        leaver.left.set_result(None)
        with pytest.raises(Disconnected):
            await waiting
        assert lent.waiting == 0
    assert (order, lent.busy) == ([], 0)


async def test_the_queue_is_bounded_and_one_client_has_half_of_it():
    lent = Pool([ModelSet(str, LoudIsSpeech(), BeepVoice())], most_requests=4)
    with lent.admitted("a"), lent.admitted("a"):
        with pytest.raises(HttpError, match="Your places") as refusal, lent.admitted("a"):
            pass
        assert int(refusal.value.headers["retry-after"]) >= 1
        with (
            lent.admitted("b"),
            lent.admitted("c"),
            pytest.raises(HttpError, match="All places"),
            lent.admitted("d"),
        ):
            pass
    with lent.admitted("a"):
        pass
