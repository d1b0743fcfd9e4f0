"""A step that hangs is noticed in time, although one timer serves many steps."""

from __future__ import annotations

import pytest

from session_server.process.clock import Watchdog
from session_server.simulation.virtual_loop import VirtualLoop
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.unit


class Bench:
    def __init__(self):
        self.loop = VirtualLoop()
        self.barks: list[float] = []
        self.dog = Watchdog(lambda: self.barks.append(self.loop.time / NS_PER_S))

    def watch(self, limit_s):
        self.dog.watch(self.loop, limit_s)

    def until(self, seconds):
        self.loop.run_until(int(seconds * NS_PER_S))


@pytest.mark.parametrize("begin", [0.0, 0.7, 1.9])
def test_what_lasts_too_long_is_noticed_within_a_quarter_of_its_limit_and_once(begin):
    bench = Bench()
    bench.watch(4.0)
    bench.dog.over()
    bench.until(begin)
    bench.watch(4.0)
    bench.until(60)
    assert len(bench.barks) == 1
    assert begin + 4.0 <= bench.barks[0] <= begin + 5.0


def test_many_short_steps_set_few_timers():
    bench = Bench()
    for step in range(1000):
        bench.watch(4.0)
        bench.until((step + 1) * 0.01)
        bench.dog.over()
    assert bench.loop.events <= 10
    bench.until(60)
    assert bench.barks == []


def test_a_shorter_limit_after_a_longer_one_is_kept():
    bench = Bench()
    bench.watch(120.0)
    bench.until(1)
    bench.dog.over()
    bench.watch(4.0)
    bench.until(60)
    assert len(bench.barks) == 1
    assert bench.barks[0] <= 6.0


def test_nothing_is_noticed_after_the_end():
    bench = Bench()
    bench.watch(4.0)
    bench.dog.stop()
    bench.dog.stop()
    bench.until(60)
    assert bench.barks == []
