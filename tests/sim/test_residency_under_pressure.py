"""Room for half the sessions' state: next use and preload against the baselines, on one workload."""

from __future__ import annotations

import pytest

from session_server.scheduler.residency_events import EvictionOrder
from tests.sim.residency_workload import Workload

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [0, 1])
def test_turns_hardly_ever_wait_for_their_state_and_little_is_preloaded_in_vain(seed):
    ours = Workload(EvictionOrder.NEXT_USE, True, 60, seed).run(150)
    assert len(ours.reloads_ms) > 200
    assert ours.quantile(0.95) <= 5.0
    assert ours.wasted <= 0.2


def test_each_part_is_needed():
    ours = Workload(EvictionOrder.NEXT_USE, True, 60).run(150)
    without = Workload(EvictionOrder.NEXT_USE, False, 60).run(150)
    lru = Workload(EvictionOrder.LRU, False, 60).run(150)
    assert without.quantile(0.95) > ours.quantile(0.95)
    assert lru.quantile(0.5) > without.quantile(0.5)
    assert lru.moved_bytes > without.moved_bytes


def test_the_same_seed_gives_the_same_run():
    one, two = (Workload(EvictionOrder.NEXT_USE, True, 30, seed=3).run(90) for _ in range(2))
    assert one == two
