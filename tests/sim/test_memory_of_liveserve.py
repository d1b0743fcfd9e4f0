"""`liveserve` sees the memory that sessions hold, as its rule needs: the weight of memory changes who is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadgen.lab.simulation import simulate
from loadgen.workloads import find_workload
from session_server.simulation.spec import SimulationSpec
from tests.sim.small_machine import small_machine

pytestmark = pytest.mark.sim

_TOKENS = 2000
"""Room for each session: full before a long conversation ends."""


def figures(memory_weight: float, **overrides: float | str) -> dict[str, Any]:
    workload = replace(find_workload("multi-turn").workload, kv_tokens_per_session=_TOKENS)
    spec = SimulationSpec(
        policy="liveserve",
        sessions=10,
        seconds=25.0,
        warm_up_s=5.0,
        workload=workload,
        overrides=(("memory_weight", memory_weight), *overrides.items()),
    )
    report = simulate(spec, small_machine()).figures
    del report["overrides"]
    return report


def test_memory_that_sessions_hold_changes_who_is_served() -> None:
    without, weighed = figures(0.0), figures(1000.0)
    assert without["residency"]["occupancy"] > 0.3
    assert weighed["stages"] != without["stages"]


def test_where_nobody_counts_memory_its_weight_changes_nothing() -> None:
    assert figures(1000.0, kv_eviction="off") == figures(0.0, kv_eviction="off")
