"""Three times the capacity knocks: whoever is let in is served as if nobody else had come."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from loadgen.lab.simulation import simulate
from session_server.simulation.spec import SimulationSpec, Workload
from tests.sim.small_machine import small_machine

pytestmark = pytest.mark.sim

KNOCKING, SECONDS = 36, 60.0


@functools.cache
def run(admission: bool, ramp_s: float = 20.0) -> dict:
    workload = Workload(arrivals="ramp", ramp_s=ramp_s)
    spec = SimulationSpec(
        sessions=KNOCKING, seconds=SECONDS, warm_up_s=20.0, admission=admission, workload=workload
    )
    return simulate(spec, small_machine()).figures


def test_whoever_is_let_in_is_served_in_time() -> None:
    figures = run(True)
    slo, admission = figures["slo"], figures["admission"]
    assert slo["c100"] >= 0.99
    assert slo["p90"] <= 500
    assert slo["failed_waits"] == 0
    assert 6 <= admission["admitted"] < KNOCKING / 2
    assert admission["offered"] == admission["admitted"] + admission["refused"]["session_load"]
    assert admission["retry_after_s"]["p50"] >= 1
    assert figures["sessions_refused"] == admission["refused"]["session_load"]


def test_without_admission_the_same_crowd_ruins_it_for_all() -> None:
    """Else the test above would prove nothing."""
    slo = run(False)["slo"]
    assert slo["c100"] < 0.5 or slo["p90"] is None or slo["p90"] > 1000


def test_all_at_one_instant_are_no_more_than_what_fits() -> None:
    at_once, spread = run(True, ramp_s=0.001), run(True)
    assert at_once["slo"]["c100"] >= 0.99
    assert at_once["admission"]["admitted"] <= spread["admission"]["admitted"] + 3


def test_refusals_are_counted_by_their_reason_and_nothing_else_is_lost() -> None:
    figures = run(True)
    turns = Counter(figures["admission"]["turns"]["refused"])
    assert figures["error_kinds"].get("inference_rate_limit_exceeded", 0) == sum(turns.values())
    assert set(figures["overload"]) == {
        "none",
        "longer_chunks",
        "shorter_answers",
        "defer",
        "refuse",
    }
    assert sum(figures["overload"].values()) == pytest.approx(SECONDS, abs=0.01)
