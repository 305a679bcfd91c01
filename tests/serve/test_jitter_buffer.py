"""Packets of sound that are lost, overtaken or doubled on their way."""

from __future__ import annotations

import pytest

from voxtui.serve.realtime.jitter_buffer import FAR, JitterBuffer


@pytest.mark.parametrize(
    ("arrive", "leave"),
    [
        ([7, 8, 9], [[7], [8], [9]]),
        ([7, 9, 8, 10], [[7], [], [8, 9], [10]]),  # 9 overtook 8
        ([7, 9, 10, 11], [[7], [], [9, 10], [11]]),  # 8 is lost, and nothing else
        ([7, 10, 12, 13, 14], [[7], [], [10], [12, 13], [14]]),
        ([7, 9, 10, 8, 11], [[7], [], [9, 10], [], [11]]),  # 8 comes too late
        ([7, 7, 8, 8, 9], [[7], [], [8], [], [9]]),
        ([65534, 0, 65535, 1], [[65534], [], [65535, 0], [1]]),
        ([7, 9, 9 + FAR, 10 + FAR], [[7], [], [9, 9 + FAR], [10 + FAR]]),  # it is not waited for
        ([FAR + 7, 7, 8], [[FAR + 7], [7], [8]]),  # the sender began again
    ],
)
def test_packets_leave_in_their_order_and_a_lost_one_costs_only_itself(arrive, leave):
    order = JitterBuffer[int]()
    assert [order.add(number, number) for number in arrive] == leave
