"""The lag of the event loop, under a loop whose time the test moves."""

from __future__ import annotations

import asyncio

import pytest

from session_server.observability.metrics import LoopLag

pytestmark = pytest.mark.unit


class HandCrankedLoop(asyncio.SelectorEventLoop):
    """Its clock stands still unless a callback moves it, or nothing but timers is left to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.instant = 0.0
        select = self._selector.select
        self._selector.select = lambda timeout=None: self._skip(timeout) or select(0)

    def _skip(self, timeout):
        self.instant += timeout or 0.0

    def time(self) -> float:
        return self.instant


def run(coroutine_function):
    loop = HandCrankedLoop()
    try:
        return loop.run_until_complete(coroutine_function(loop))
    finally:
        loop.close()


def test_an_idle_loop_has_no_lag():
    async def idle(loop):
        seen = []
        lag = LoopLag(seen.append, interval_s=0.1)
        lag.start()
        await asyncio.sleep(1.05)
        lag.stop()
        return seen

    seen = run(idle)
    assert len(seen) == 10
    assert max(seen) < 1e-6


def test_one_block_is_one_observation_of_its_length():
    async def blocked(loop):
        seen = []
        lag = LoopLag(seen.append, interval_s=0.1)
        lag.start()
        loop.call_at(0.05, lambda: setattr(loop, "instant", 0.85))
        await asyncio.sleep(1.04)
        lag.stop()
        return seen

    seen = run(blocked)
    assert seen[0] == pytest.approx(0.75)
    assert max(seen[1:]) < 1e-6
    assert len(seen) == 3


def test_stop_is_idempotent_and_final():
    async def stopped(loop):
        seen = []
        lag = LoopLag(seen.append, interval_s=0.1)
        lag.start()
        lag.stop()
        lag.stop()
        await asyncio.sleep(0.5)
        return seen

    assert run(stopped) == []
