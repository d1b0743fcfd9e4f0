"""`simulate(spec)`: replicas one after the other, then one report.

Replicas share nothing, so the order does not matter; their users' records are put together. Profiles are found by name
in configs/profiles, or by path.
"""

from __future__ import annotations

import gc
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engines.sim.profile import Profile, load_profile
from session_server.errors import ConfigError
from session_server.media import NS_PER_S
from session_server.runtime.simulation.host_setup import scheduler_params
from session_server.runtime.simulation.lockstep import lockstep_figures
from session_server.runtime.simulation.measure import measure
from session_server.runtime.simulation.replica import Replica, StageFigures
from session_server.runtime.simulation.replica_figures import replica_figures
from session_server.runtime.simulation.spec import SimulationReport, SimulationSpec
from session_server.runtime.simulation.watch import Watch

_HERE = Path(__file__).resolve()
_PROFILE_FOLDERS = (
    _HERE.parents[3] / "configs" / "profiles",
    _HERE.parents[2] / "configs" / "profiles",
)
"""In a checkout, and in an installed package."""


def profile_names() -> list[str]:
    return sorted({p.stem for folder in _PROFILE_FOLDERS for p in folder.glob("*.yaml")})


def find_profile(name: str) -> Profile:
    """A profile by name or path. Raises ConfigError when there is none."""
    if name.endswith(".yaml"):
        return load_profile(Path(name))
    for folder in _PROFILE_FOLDERS:
        path = folder / f"{name}.yaml"
        if path.is_file():
            return load_profile(path)
    raise ConfigError(f"no profile {name}; there are {', '.join(profile_names())}")


def check(spec: SimulationSpec) -> None:
    """Raises ConfigError when the profile or a parameter of the scheduler is wrong."""
    try:
        scheduler_params(spec, find_profile(spec.profile))
    except ValueError as fault:
        raise ConfigError(str(fault)) from fault


def simulate(
    spec: SimulationSpec, profile: Profile | None = None, watch: Watch | None = None
) -> SimulationReport:
    """Run it. `profile`: one that was loaded already, instead of the spec's name. `watch` may end it early."""
    profile = profile or find_profile(spec.profile)
    if profile.kind == "duplex":
        return SimulationReport({**_head(spec), **lockstep_figures(spec, profile)})
    replicas: list[Replica] = []
    end_ns = wanted_ns = int(spec.seconds * NS_PER_S)
    thresholds = gc.get_threshold()
    gc.set_threshold(
        200_000, 20, 100
    )  # few cycles are made, and looking for them is a third of the time
    try:
        for number in range(spec.replicas):
            sessions = spec.sessions // spec.replicas + (number < spec.sessions % spec.replicas)
            replica = Replica(spec, profile, number, sessions)
            end_ns = replica.run(watch)
            replicas.append(replica)
            if end_ns < wanted_ns:
                break
    finally:
        gc.set_threshold(*thresholds)
    stopped_at_s = end_ns / NS_PER_S if end_ns < wanted_ns else None
    return SimulationReport({**_figures(spec, replicas, end_ns), "stopped_at_s": stopped_at_s})


def _figures(spec: SimulationSpec, replicas: list[Replica], end_ns: int) -> dict[str, Any]:
    warm_up_ns = int(spec.warm_up_s * NS_PER_S)
    return {
        **_head(spec),
        **measure([r.records for r in replicas], warm_up_ns, end_ns),
        "stages": _stages(replicas, end_ns),
        **replica_figures(replicas, end_ns),
        "lead": [[round(at / NS_PER_S, 1), lead] for at, lead in replicas[0].records.lead],
        "events": sum(r.loop.events for r in replicas),
    }


def _head(spec: SimulationSpec) -> dict[str, Any]:
    workload = asdict(spec.workload)
    wanted = spec.workload.barge_in if spec.barge_in is None else spec.barge_in
    return {
        "schema": 1,
        "measurement_origin": "simulation",
        "driver": {
            "kind": "sim",
            "slices_ms": spec.slices_ms,
            "tokens_run": spec.tokens_run,
            "frames_run": spec.frames_run,
        },
        "policy": spec.policy,
        "chunking": spec.chunking,
        "workload": {**workload, "barge_in": wanted},
        "workload_name": spec.workload.name,
        "profile": spec.profile,
        "seed": spec.seed,
        "sessions": spec.sessions,
        "users": spec.sessions,
        "replicas": spec.replicas,
        "admission": spec.admission,
        "max_sessions": spec.max_sessions,
        "turn_mode": spec.turn_mode,
        "speculate": spec.speculate,
        "network": asdict(spec.network),
        "overrides": dict(spec.overrides),
        "warm_up_s": spec.warm_up_s,
    }


def _stages(replicas: list[Replica], end_ns: int) -> dict[str, Any]:
    """Share of the time that each stage was busy, and its mean batch, over all replicas."""
    figures: dict[str, StageFigures] = {}
    for replica in replicas:
        for name, one in replica.stage_figures().items():
            total = figures.setdefault(name, StageFigures())
            total.busy_ns += one.busy_ns
            total.steps += one.steps
            total.jobs += one.jobs
    return {
        name: {
            "occupancy": round(one.busy_ns / (end_ns * len(replicas)), 4),
            "steps": one.steps,
            "mean_batch": round(one.jobs / one.steps, 3) if one.steps else None,
        }
        for name, one in sorted(figures.items())
    }
