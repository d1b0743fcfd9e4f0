"""What a served run says about a profile: by how much the host's own work slows each stage for every open session.

Engines that are measured alone are faster than those that serve: beside them run the event loop, other stages and, on one
machine, the load generator. The users of the run are simulated with the profile as it is; what a mean step took there over
what it takes here, less one and divided by the sessions, is the stage's `per_session`. Only stage times are looked at:
first audio and continuity stay a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engines.sim.cost_profile import Profile
from loadgen.report import figure
from loadgen.simulation import simulate
from session_server.runtime.simulation.spec import NetworkModel, SimulationSpec, Workload
from session_server.types.errors import ConfigError

RELEASE_MS = 100
"""How long the detector goes on after the end of the load generator's own sentences, in the median of its 48 questions."""
LOOPBACK = NetworkModel(delay_ms=1.0, jitter_ms=0.3, ack_interval_ms=0)
"""Client and server on one machine; a stock client."""


def spec_of_run(report: Mapping[str, Any], workload: Workload, profile: str) -> SimulationSpec:
    """The simulation of a run: its trace, its turn detection, its acknowledgements. Raises ConfigError."""
    users, seconds = report.get("users"), report.get("seconds")
    if report.get("measurement_origin") != "client_clock" or not users or not seconds:
        raise ConfigError("--served: must be the report of `session-loadgen run`")
    if workload.trace is None:
        raise ConfigError(
            "--workload: must be the trace of the served run (`session-loadgen trace`)"
        )
    playback = "playback" in (figure(report, "workload.extensions") or ())
    silence_ms = figure(report, "workload.silence_ms")
    return SimulationSpec(
        profile=profile,
        workload=workload,
        sessions=int(users),
        seconds=float(seconds) + 5.0,
        warm_up_s=0.0,
        network=replace(LOOPBACK, ack_interval_ms=200 if playback else 0),
        turn_mode=str(figure(report, "workload.turn_detection")),
        silence_ms=500 if silence_ms is None else int(silence_ms),
        release_ms=RELEASE_MS,
        speculate=True,
    )


def per_session(
    report: Mapping[str, Any], workload: Workload, profile: Profile
) -> dict[str, float]:
    """By stage, of those that did steps in both. What the profile has so far does not count."""
    alone = replace(
        profile, stages={s: replace(cost, per_session=0.0) for s, cost in profile.stages.items()}
    )
    spec = spec_of_run(report, workload, profile.name)
    simulated = simulate(spec, alone).figures
    found = {}
    for stage in profile.stages:
        here = _step_s(simulated, stage.value, spec.seconds)
        there = _step_s(report, stage.value, float(report["seconds"]))
        if here and there:
            found[stage.value] = round(max(0.0, there / here - 1) / spec.sessions, 4)
    if not found:
        raise ConfigError("--served: the report says nothing about stages: was /metrics reachable?")
    return found


def _step_s(report: Mapping[str, Any], stage: str, seconds: float) -> float | None:
    """A mean step."""
    steps = figure(report, f"stages.{stage}.steps")
    occupancy = figure(report, f"stages.{stage}.occupancy")
    return occupancy * seconds / steps if steps else None
