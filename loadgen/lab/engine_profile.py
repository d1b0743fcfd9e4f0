"""Measures the engines of a configuration, each by itself, and makes a profile of them.

Owns the engines while it measures: it loads them, times them and closes them, in one process where
nothing else runs. What is written says under which conditions it was measured and how far the fit
is off; it names no machine.

Engines that are measured alone are faster than those that serve: beside them run the event loop,
other stages and, on one machine, the load generator. So a served run says by how much the host's
own work slows each stage for every open session (`per_session`). The users of the run are simulated
with the profile as it is; what a mean step took there over what it takes here, less one and divided
by the sessions, is the stage's `per_session`. Only stage times are looked at: first audio and
continuity stay a test.
"""

from __future__ import annotations

import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from engines.base import Stage, SteppedEngine
from engines.sim.cost_profile import Profile
from loadgen.lab.contention import Listeners, Shared, measure_sessions, measure_sharing
from loadgen.lab.fitting import fit_profile
from loadgen.lab.report import figure
from loadgen.lab.simulation import simulate
from loadgen.lab.stopwatch import Stopwatch
from session_server.config import Config
from session_server.host.stage_assembly import registered_engine
from session_server.http.server import model_store
from session_server.http.session_factory import vad_maker
from session_server.process.clock import Clock, MonotonicClock
from session_server.process.lifecycle import SWITCH_INTERVAL_S
from session_server.process.threads import usable_cpus
from session_server.simulation.spec import NetworkModel, SimulationSpec, Workload
from session_server.types.errors import ConfigError

Progress = Callable[[str, float], None]
"""Told what is being done, and the share of all that is done."""

SESSIONS = 8
_LOADING, _TIMING = 0.1, 0.8
_TIMES = {
    "wall": "by the wall clock",
    "cpu": "by the CPU time of their thread: what a core of its own would take, whatever else the machine did",
}
_SCHEDULER_KEYS = (
    "chunk_ladder_s", "prefill_tokens", "prefill_batch", "first_audio_s", "cores", "text_ahead_s", "draft_cap_s",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """`content` is a profile; `residuals`: the median relative error of each stage's fit."""

    content: dict[str, Any]
    residuals: dict[str, float]
    shared: tuple[Shared, ...]
    beside: dict[Stage, float]
    steps: int
    timed_by: str

    def to_yaml(self) -> str:
        head = [
            f"# Measured by `session-loadgen profile`: {self.steps} steps, one process, medians of steps of one size,",
            f"# {_TIMES[self.timed_by]}.",
            f"# Machine: {usable_cpus()} CPUs, {platform.machine()}, Python {platform.python_version()}.",
            "# Median relative error of the fit: "
            + ", ".join(f"{stage} {error:.1%}" for stage, error in self.residuals.items())
            + ".",
        ]
        if self.shared:
            head.append(
                "# Two stages at once, each one's time alone / beside the other: "
                + ", ".join(
                    f"{a.value} {x:.2f} with {b.value} {y:.2f}"
                    for (a, b), (x, y) in ((one.stages, one.factors) for one in self.shared)
                )
                + "."
            )
        if self.beside:
            head.append(
                f"# Each stage's time alone / beside {SESSIONS} sessions that are heard: "
                + ", ".join(f"{stage.value} {factor:.2f}" for stage, factor in self.beside.items())
                + "."
            )
        body = yaml.safe_dump(self.content, sort_keys=False, default_flow_style=None, width=120)
        return "\n".join(head) + "\n" + body


class ThreadClock:
    """CPU time of the calling thread."""

    def now(self) -> int:
        return time.thread_time_ns()


class UndisturbedClock:
    """The wall clock, less the time that the calling thread was ready and had no CPU: what other programs took. Waiting
    for a thread of its own process counts."""

    def now(self) -> int:
        return time.monotonic_ns() - _waited_ns()


def _waited_ns() -> int:
    """Linux knows; elsewhere 0."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def measure_engines(
    config: Config,
    name: str,
    repeats: int,
    timed_by: str = "wall",
    share_s: float = 2.0,
    progress: Progress = lambda what, share: None,
) -> EngineProfile:
    """Takes minutes. `timed_by`: wall, or cpu, for engines that run on the calling thread alone; `share_s`: for each
    measurement of steps beside others. Raises ModelsMissing, ConfigError or EngineFault with one clear line."""
    clock: Clock = ThreadClock() if timed_by == "cpu" else MonotonicClock()
    voice = config.models.voices[0]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as the server does
    engines: dict[Stage, SteppedEngine] = {}
    try:
        for number, spec in enumerate(config.graph.stages):
            progress(f"loading {spec.stage.value}", _LOADING * number / len(config.graph.stages))
            engine = registered_engine(spec, model_store(config))()
            engines[spec.stage] = engine
            engine.load()
        watch = Stopwatch(
            engines, clock, voice, repeats,
            lambda share: progress("timing steps", _LOADING + (_TIMING - _LOADING) * share),
        )  # fmt: skip
        timings = watch.run()
        progress("two stages at once", _TIMING)
        sound = max(watch.sounds, key=len)
        # waiting for each other is what is looked for: CPU time would not show it
        beside_clock: Clock = UndisturbedClock() if timed_by == "cpu" else clock
        shared = measure_sharing(engines, beside_clock, voice, sound, share_s)
        vads = [vad_maker(config, model_store(config))() for _ in range(SESSIONS)]
        listeners = Listeners(vads, max(watch.spoken, key=len))
        beside = measure_sessions(engines, beside_clock, voice, sound, listeners, share_s)
        capabilities = {stage: engine.capabilities for stage, engine in engines.items()}
    finally:
        sys.setswitchinterval(interval_s)
        for engine in engines.values():
            engine.close()
    batches = {spec.stage: spec.max_batch for spec in config.graph.stages}
    content, residuals = fit_profile(
        name,
        timings,
        capabilities,
        batches,
        usable_cpus(),
        sharing_of([factor for one in shared for factor in one.factors]),
        {stage: max(0.0, 1 / factor - 1) / SESSIONS for stage, factor in beside.items()},
    )
    content["scheduler"] = {key: _plain(getattr(config.scheduler, key)) for key in _SCHEDULER_KEYS}
    content["scheduler"]["cores"] = config.scheduler.cores or float(usable_cpus())
    progress("done", 1.0)
    return EngineProfile(content, residuals, tuple(shared), beside, len(timings.steps), timed_by)


def sharing_of(found: Sequence[float]) -> float:
    """One factor for all: their geometric mean, at most 1."""
    factors = [max(0.05, factor) for factor in found]
    return min(1.0, math.exp(statistics.fmean(map(math.log, factors)))) if factors else 1.0


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


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
