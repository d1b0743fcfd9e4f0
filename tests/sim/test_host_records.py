"""What a simulated host says about itself adds up."""

from __future__ import annotations

from collections import Counter

import pytest

from session_server.process.clock import VirtualClock
from session_server.scheduler.params import KvEviction
from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import ResidencyParams, StartWork, StateWanted
from session_server.simulation.host_records import HostRecords, KvRecords
from session_server.simulation.host_setup import find_profile, scheduler_params
from session_server.simulation.replica_figures import percentiles
from session_server.simulation.spec import SimulationSpec
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.sim


def test_seconds_on_the_ladder_are_those_of_the_run():
    clock = VirtualClock(0)
    said = HostRecords(Counter(), clock)
    for seconds, step in ((3, "longer_chunks"), (2, "defer"), (5, "none")):
        clock.advance(seconds * NS_PER_S)
        said.overload_step(step)
    assert said.ladder_s(20 * NS_PER_S) == {"none": 13.0, "longer_chunks": 2.0, "defer": 5.0}


def test_decisions_are_kept_with_their_reasons():
    said = HostRecords(Counter(), VirtualClock(0))
    said.admission("refuse", "talker")
    said.admission("refuse", "talker")
    assert said.decisions == {("refuse", "talker"): 2}


def test_turns_of_the_warm_up_do_not_count():
    machine = Residency(ResidencyParams(10_000, 1, 1e9, 10**9))
    kv = KvRecords(since_ns=100)
    for now in (50, 150):
        event = StateWanted(f"s{now}", "turn", 10)
        actions = machine.handle(event, now)
        assert any(isinstance(action, StartWork) for action in actions)
        kv(machine, actions, now)
    assert kv.waits_ns == [0]
    assert kv.reloads_ns == []


def test_percentiles_are_values_that_occurred():
    assert percentiles([]) == {"p50": None, "p95": None, "p99": None}
    assert percentiles(range(100)) == {"p50": 50, "p95": 95, "p99": 99}


def test_eviction_can_be_switched_off_as_yaml_spells_it():
    for value in ("off", False):
        spec = SimulationSpec(overrides=(("kv_eviction", value),))
        params = scheduler_params(spec, find_profile(spec.profile))
        assert params.kv_eviction is KvEviction.OFF
