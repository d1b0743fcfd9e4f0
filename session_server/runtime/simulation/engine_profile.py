"""Measures the engines of a configuration, each by itself, and makes a profile of them.

Owns the engines while it measures: it loads them, times them and closes them, in one process where nothing else runs. What
is written says under which conditions it was measured and how far the fit is off; it names no machine.
"""

from __future__ import annotations

import math
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from engines.base import Stage, SteppedEngine
from session_server.config import Config
from session_server.host.stage_assembly import registered_engine
from session_server.http.server import model_store
from session_server.http.session_factory import vad_maker
from session_server.process.clock import Clock, MonotonicClock
from session_server.process.lifecycle import SWITCH_INTERVAL_S
from session_server.process.threads import usable_cpus
from session_server.runtime.simulation.fitting import fit_profile
from session_server.runtime.simulation.host_load import Listeners
from session_server.runtime.simulation.sharing import Shared, measure_sessions, measure_sharing
from session_server.runtime.simulation.stopwatch import Stopwatch

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
