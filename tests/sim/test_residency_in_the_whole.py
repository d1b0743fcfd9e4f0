"""Room for half of the state of long conversations, in the whole simulation: turns hardly wait, and it was the rule that
did it."""

from __future__ import annotations

import functools

import pytest

from loadgen.lab.simulation import simulate
from loadgen.workloads import find_workload
from session_server.simulation.spec import SimulationSpec

pytestmark = pytest.mark.sim


@functools.cache
def run(*overrides: tuple[str, str | float]) -> dict:
    scenario = find_workload("multi-turn")
    spec = SimulationSpec(
        sessions=24, seconds=75.0, warm_up_s=30.0, workload=scenario.workload, overrides=overrides
    )
    return simulate(spec).figures


LRU = (("kv_eviction", "lru"), ("kv_preload", 0))


def test_turns_hardly_wait_for_their_state() -> None:
    figures = run()
    residency = figures["residency"]
    assert residency["turns"] > 40
    assert residency["state_over_pool"] > 1.6, "memory was not short"
    assert residency["on_path_reload_ms"]["p95"] <= 5
    assert residency["wasted_preload_share"] <= 0.2
    assert residency["hidden_share"] > 0.8
    assert residency["protected_peak_bytes"] <= 0.25 * 24 * 1400 * 98_304
    assert figures["slo"]["c100"] >= 0.99


def test_the_order_and_the_preload_did_it() -> None:
    ours, lru = run()["residency"], run(*LRU)["residency"]
    assert lru["kv_eviction"] == "lru"
    assert lru["on_path_reload_ms"]["p50"] > ours["on_path_reload_ms"]["p95"]
    assert lru["reloads"] > 5 * ours["reloads"]


def test_held_state_must_not_last_as_long_as_its_speech() -> None:
    """An answer that is written at the pace of its speech keeps its state busy: then half a pool is too little."""
    slow = run(("kv_busy_share", 1.0))["residency"]
    assert slow["on_path_reload_ms"]["p95"] > 3 * run()["residency"]["on_path_reload_ms"]["p95"]


def test_an_engine_that_moves_nothing_reads_again() -> None:
    moved, forgot = run()["residency"], run(("kv_eviction", "off"))["residency"]
    assert forgot["tokens_read"] > 2 * moved["tokens_read"]
    assert forgot["moved_bytes"] == 0
