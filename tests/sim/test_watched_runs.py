"""Watching a run changes nothing; giving one up only brings a verdict forward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadgen.lab.simulation import ProgressSample, hopeless, simulate
from session_server.simulation.spec import NetworkModel, SimulationSpec
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.sim

SMALL = SimulationSpec(sessions=5, seconds=40.0, warm_up_s=10.0)


def giving_up(spec: SimulationSpec):
    warm_up_ns, end_ns = int(spec.warm_up_s * NS_PER_S), int(spec.seconds * NS_PER_S)
    return lambda look: hopeless(look.records, warm_up_ns, look.now_ns, end_ns)


def test_a_watched_run_gives_the_same_bytes():
    looks: list[ProgressSample] = []

    def watch(look: ProgressSample) -> bool:
        looks.append(look)
        return False

    spec = replace(SMALL, replicas=2)
    assert simulate(spec, watch=watch).to_json() == simulate(spec).to_json()
    assert [look.now_ns // NS_PER_S for look in looks if look.replica == 1] == [*range(5, 40, 5)]


def test_a_run_that_cannot_hold_is_given_up_early():
    # so long a way that every first sound is late: 400 ms there, 400 ms back
    spec = replace(SMALL, network=NetworkModel(delay_ms=400))
    early = simulate(spec, watch=giving_up(spec)).figures
    assert early["stopped_at_s"] is not None
    assert not early["slo"]["held"]
    assert not simulate(spec).figures["slo"]["held"]


def test_a_run_that_holds_is_never_given_up():
    report = simulate(SMALL, watch=giving_up(SMALL))
    assert report.figures["stopped_at_s"] is None
    assert report.to_json() == simulate(SMALL).to_json()


def test_nobody_ends_a_run_before_its_warm_up_is_over():
    stopped = simulate(SMALL, watch=lambda look: True).figures
    assert stopped["stopped_at_s"] == 15.0
    assert stopped["seconds"] == 5.0
