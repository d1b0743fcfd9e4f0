"""What open sessions cost the stages is read off a served run, and only what is one can be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadgen.lab.engine_profile import per_session, spec_of_run
from loadgen.lab.simulation import simulate
from session_server.simulation.host_setup import find_profile
from session_server.simulation.spec import SimulationSpec, Workload, traced
from session_server.simulation.trace import Trace, TraceSession, TraceTurn
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

TURNS = tuple(TraceTurn(1.6, 17, 20, rest_s=0.8) for _ in range(6))
WORKLOAD = traced(Trace(tuple(TraceSession(0.4 * n, TURNS) for n in range(3)), 80), "three")


def report(**over: Any) -> dict[str, Any]:
    return {
        "measurement_origin": "client_clock",
        "users": 3,
        "turns": 18,
        "seconds": 60.0,
        "workload": {"turn_detection": "server_vad", "silence_ms": 320, "extensions": []},
    } | over


def test_a_run_becomes_the_simulation_of_its_users() -> None:
    spec = spec_of_run(report(), WORKLOAD, "cpu-default")
    assert (spec.sessions, spec.silence_ms, spec.turn_mode) == (3, 320, "server_vad")
    assert spec.network.ack_interval_ms == 0
    playing = report(workload={"turn_detection": "semantic_vad", "extensions": ["playback"]})
    spec = spec_of_run(playing, WORKLOAD, "cpu-default")
    assert (spec.silence_ms, spec.turn_mode, spec.network.ack_interval_ms) == (
        500,
        "semantic_vad",
        200,
    )


def test_slower_stages_are_found_again() -> None:
    profile = find_profile("cpu-default")
    slowed = {s: replace(c, per_session=0.1) for s, c in profile.stages.items()}
    spec: SimulationSpec = spec_of_run(report(), WORKLOAD, "cpu-default")
    served = simulate(spec, replace(profile, stages=slowed)).figures
    found = per_session(report(stages=served["stages"], seconds=spec.seconds), WORKLOAD, profile)
    assert set(found) == {"asr", "thinker", "talker", "codec", "vocoder"}
    # sessions come and go, and batches differ: about the tenth that it was
    assert all(0.05 < slower < 0.15 for slower in found.values()), found


def test_a_machine_as_fast_as_the_profile_costs_nothing() -> None:
    profile = find_profile("cpu-default")
    spec = spec_of_run(report(), WORKLOAD, "cpu-default")
    plain = {s: replace(c, per_session=0.0) for s, c in profile.stages.items()}
    served = simulate(spec, replace(profile, stages=plain)).figures
    found = per_session(report(stages=served["stages"], seconds=spec.seconds), WORKLOAD, profile)
    assert max(found.values()) < 0.02


@pytest.mark.parametrize(
    ("wrong", "workload", "said"),
    [
        ({"measurement_origin": "simulation"}, WORKLOAD, "--served: must be the report of"),
        ({"users": 0}, WORKLOAD, "--served: must be the report of"),
        ({}, Workload(), "--workload: must be the trace"),
        ({"stages": {}}, WORKLOAD, "says nothing about stages"),
    ],
)
def test_what_is_no_served_run_is_said(
    wrong: dict[str, Any], workload: Workload, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        per_session(report(**wrong), workload, find_profile("cpu-default"))
