"""Points measured in other processes are those measured in this one; a whole run answers for one that may be given up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from loadgen.lab.points import Laboratory, Stopped, SweepPoint, hold_together, measure_point
from session_server.simulation.spec import NetworkModel, SimulationSpec

pytestmark = pytest.mark.sim

SPEC = SimulationSpec(sessions=4, seconds=24.0, warm_up_s=4.0)
LATE = replace(SPEC, network=NetworkModel(delay_ms=400))


def test_other_processes_measure_the_same():
    specs = [SPEC, replace(SPEC, seed=1)]
    with Laboratory(2) as laboratory:
        there = laboratory.each([partial(laboratory.point, spec) for spec in specs])
    assert there == [measure_point(spec, True) for spec in specs]


def test_when_one_task_fails_the_others_stop():
    def fail() -> SweepPoint:
        raise KeyboardInterrupt

    laboratory = Laboratory(2)
    with laboratory, pytest.raises((KeyboardInterrupt, Stopped)):
        laboratory.each([fail, partial(laboratory.point, replace(SPEC, seconds=100_000.0))])
    assert laboratory.points() == []


def test_a_whole_run_answers_for_one_that_may_be_given_up():
    done: list[tuple[SimulationSpec, SweepPoint]] = []
    with Laboratory(done=lambda spec, point: done.append((spec, point))) as laboratory:
        early = laboratory.point(LATE)
        whole = laboratory.point(LATE, give_up=False)
        assert laboratory.point(LATE) is whole
        fair = laboratory.point(SPEC)
        assert laboratory.point(SPEC, give_up=False) is fair, "it had come to its end"
    assert early.figures["given_up_at_s"] is not None
    assert whole.figures["given_up_at_s"] is None
    assert not early.holds
    assert not whole.holds
    assert [spec for spec, _ in done] == [LATE, LATE, SPEC]
    assert [point for _, point in laboratory.points()] == [whole, fair]
    assert not hold_together([fair, whole])
    assert hold_together([fair, fair])
