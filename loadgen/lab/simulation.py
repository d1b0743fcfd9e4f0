"""`simulate(spec)`: a whole run on a virtual clock, virtual users in simulated hosts' seats.

Replicas run one after the other; they share nothing, so the order does not matter, and their users'
records are put together. What commands need to ask for a run is importable from here.

A watcher looks at a run from outside and may give it up: for progress bars, and for searches that
need only a yes or no. It is asked every 5 s of simulated time; when it says True after the warm-up
the run ends there, and its report says when (`stopped_at_s`) and covers what was until then.

Invariants: the same spec gives the same bytes. A watcher changes nothing by looking.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from engines.sim.cost_profile import Profile
from loadgen.drivers.simulated import SimulatedUsers, workload_of
from loadgen.measure import SLO_C100, SLO_P90_MS, SLO_P99_MS, measure, spread, waits_ms
from loadgen.records import UserRecord
from loadgen.video_figures import camera_figures, groups
from session_server.simulation.host_setup import find_profile
from session_server.simulation.kv_link import Outgrown
from session_server.simulation.lockstep import run_lockstep
from session_server.simulation.replica import Replica, StageFigures
from session_server.simulation.replica_figures import replica_figures
from session_server.simulation.spec import SimulationReport, SimulationSpec
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE
from session_server.types.errors import ConfigError

_MORE = 1.5
"""A run may yet bring this many times the turns that its pace so far promises."""
_WORST_GAP = OUTPUT_RATE // 10


@dataclass(frozen=True, slots=True)
class ProgressSample:
    """`replica`: which one runs; `now_ns`: its simulated time; `records`: of its users, to be read only."""

    replica: int
    now_ns: int
    records: Sequence[UserRecord]


Watch = Callable[[ProgressSample], bool]


def hopeless(records: Sequence[UserRecord], warm_up_ns: int, now_ns: int, end_ns: int) -> bool:
    """Have so many answers failed that the SLO is missed even if every answer still to come is good?

    How many will come is not known: `_MORE` times the number that the pace so far gives. An answer that has failed
    stays failed, so this only brings a verdict forward.
    """
    measured_ns = now_ns - warm_up_ns
    if measured_ns <= 0:
        return False
    turns = [t for record in records for t in record.turns if warm_up_ns <= t.u1 <= now_ns]
    growth = _MORE * max(1.0, (end_ns - warm_up_ns) / measured_ns)
    waits = waits_ms(turns, now_ns, SLO_P90_MS)
    late = sum(wait > SLO_P90_MS for wait in waits)
    starved = sum(wait > SLO_P99_MS for wait in waits_ms(turns, now_ns, SLO_P99_MS))
    heard = [turn for turn in turns if turn.gaps or turn.played]
    broken = sum(any(gap > _WORST_GAP for gap in turn.gaps) for turn in heard)
    return (
        late > 0.1 * growth * len(waits) + 1
        or starved > 0.01 * growth * len(waits) + 1
        or broken > (1.0 - SLO_C100) * growth * len(heard) + 1
    )


def simulate(
    spec: SimulationSpec, profile: Profile | None = None, watch: Watch | None = None
) -> SimulationReport:
    """Run it. `profile`: one that was loaded already, instead of the spec's name. `watch` may end it early."""
    profile = profile or find_profile(spec.profile)
    if profile.kind == "duplex":
        return SimulationReport({**_head(spec), **_lockstep(spec, profile)})
    replicas: list[Replica] = []
    records: list[UserRecord] = []
    end_ns = wanted_ns = int(spec.seconds * NS_PER_S)
    with _rare_collections():
        for number in range(spec.replicas):
            sessions = _share(spec, number)
            users = SimulatedUsers(spec, profile)
            replica = Replica(spec, profile, number, sessions, new_occupant=users)
            try:
                end_ns = replica.run(_looking(watch, number, users) if watch is not None else None)
            except Outgrown as fault:
                raise ConfigError(
                    f"kv_pool_tokens, workload.kv_tokens_per_session: too small for this workload: {fault}"
                ) from fault
            records += users.finish(end_ns)
            replicas.append(replica)
            if end_ns < wanted_ns:
                break
    stopped_at_s = end_ns / NS_PER_S if end_ns < wanted_ns else None
    figures = _figures(spec, replicas, records, end_ns)
    return SimulationReport({**_head(spec), **figures, "stopped_at_s": stopped_at_s})


def _looking(watch: Watch, number: int, users: SimulatedUsers) -> Callable[[int], bool]:
    return lambda now_ns: watch(ProgressSample(number, now_ns, users.records()))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Few cycles are made, and looking for them is a third of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _figures(
    spec: SimulationSpec, replicas: Sequence[Replica], records: Sequence[UserRecord], end_ns: int
) -> dict[str, Any]:
    warm_up_ns = int(spec.warm_up_s * NS_PER_S)
    counts: Counter[str] = sum((r.records.counts for r in replicas), Counter())
    made = sum(replica.records.generated_samples for replica in replicas)
    wasted = sum(replica.records.wasted_samples for replica in replicas)
    return {
        **measure(records, (end_ns - warm_up_ns) / NS_PER_S, (warm_up_ns, end_ns)),
        "wasted_audio_ratio": round(wasted / made, 4) if made else None,
        "wasted_audio_origin": "simulation",
        "generated_audio_s": round(made / OUTPUT_RATE, 1),
        "counts": dict(sorted(counts.items())),
        "stages": _stages(replicas, end_ns),
        **replica_figures(replicas, end_ns),
        **_cameras(spec, replicas, records, end_ns),
        "lead": [[round(at / NS_PER_S, 1), lead] for at, lead in replicas[0].records.lead],
        "events": sum(r.loop.events for r in replicas),
    }


def _cameras(
    spec: SimulationSpec, replicas: Sequence[Replica], records: Sequence[UserRecord], end_ns: int
) -> dict[str, Any]:
    """Nothing where nobody has one."""
    use = spec.workload.camera
    if use is None:
        return {}
    warm_up_ns = int(spec.warm_up_s * NS_PER_S)
    span = (warm_up_ns, end_ns)
    slots = [slot for r in range(spec.replicas) for slot in range(_share(spec, r))]
    return {
        "video": {
            "users": sum(use.belongs_to(slot) for slot in slots),
            "camera": asdict(use),
            "server": camera_figures([replica.cameras for replica in replicas]),
        },
        **groups(records, (end_ns - warm_up_ns) / NS_PER_S, span),
    }


def _share(spec: SimulationSpec, replica: int) -> int:
    """Sessions of that replica."""
    return spec.sessions // spec.replicas + (replica < spec.sessions % spec.replicas)


def _lockstep(spec: SimulationSpec, profile: Profile) -> dict[str, Any]:
    ticks = run_lockstep(spec, profile)
    missed = ticks.due - ticks.answered
    return {
        "frames_due": ticks.due,
        "frames_answered": ticks.answered,
        "frame_deficit_per_min": round(missed / (spec.seconds / 60), 2),
        "tick_lateness_ms": spread(ms * NS_PER_MS for ms in ticks.late_ms),
    }


def _head(spec: SimulationSpec) -> dict[str, Any]:
    trace = spec.workload.trace
    workload = asdict(replace(workload_of(spec), trace=None))
    workload["trace"] = (
        None if trace is None else {"sessions": len(trace.sessions), "turns": trace.turns}
    )
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
        "workload": workload,
        "workload_name": spec.workload.name,
        "profile": spec.profile,
        "seed": spec.seed,
        "sessions": spec.sessions,
        "users": spec.sessions,
        "replicas": spec.replicas,
        "admission_on": spec.admission,
        "max_sessions": spec.max_sessions,
        "turn_mode": spec.turn_mode,
        "silence_ms": spec.silence_ms,
        "release_ms": spec.release_ms,
        "speculate": spec.speculate,
        "network": asdict(spec.network),
        "overrides": dict(spec.overrides),
        "warm_up_s": spec.warm_up_s,
    }


def _stages(replicas: Sequence[Replica], end_ns: int) -> dict[str, Any]:
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
