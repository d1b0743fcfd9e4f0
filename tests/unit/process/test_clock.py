"""A session's one timer rings when it has to, and once."""

from __future__ import annotations

import pytest

from session_server.process.clock import DeadlineTimer
from session_server.simulation.virtual_loop import VirtualLoop

pytestmark = pytest.mark.unit


@pytest.fixture
def loop() -> VirtualLoop:
    return VirtualLoop()


@pytest.fixture
def rung(loop: VirtualLoop) -> list[int]:
    return []


@pytest.fixture
def timer(loop: VirtualLoop, rung: list[int]) -> DeadlineTimer:
    return DeadlineTimer(loop, loop, lambda: rung.append(loop.time))


def test_it_rings_once_at_the_time_that_was_set_last(loop, timer, rung):
    timer.set(1_000_000_000)
    timer.set(300_000_000)
    timer.set(300_000_000)
    loop.run_until(2_000_000_000)
    assert rung == [300_000_000]


def test_it_can_be_set_to_the_same_time_again_after_it_rang(loop, timer, rung):
    timer.set(100_000_000)
    loop.run_until(200_000_000)
    timer.set(100_000_000)  # over by now: at once
    loop.run_until(300_000_000)
    assert rung == [100_000_000, 200_000_000]


@pytest.mark.parametrize("call_off", ["off", "none"])
def test_it_does_not_ring_when_it_was_called_off(loop, timer, rung, call_off: str):
    timer.set(100_000_000)
    if call_off == "off":
        timer.off()
        timer.off()
    else:
        timer.set(None)
    loop.run_until(500_000_000)
    assert rung == []
    timer.set(600_000_000)
    loop.run_until(700_000_000)
    assert rung == [600_000_000]
