"""Measured points: one simulated run each, in this process or in others, and the few figures kept of it.

A point is a spec (candidate, sessions, seed). It is run once however often it is asked for, and it may be given up as
soon as its SLO cannot hold any more (`given_up_at_s`; its other figures then cover what was until there).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from threading import Lock
from typing import Any, TypeVar

from loadgen.lab.report import figure
from loadgen.lab.simulation import ProgressSample, hopeless, simulate
from session_server.simulation.spec import SimulationSpec
from session_server.types.audio import NS_PER_S

KEPT: tuple[tuple[str, str], ...] = (
    ("p50_ms", "slo.p50"),
    ("p90_ms", "slo.p90"),
    ("p99_ms", "slo.p99"),
    ("c100", "slo.c100"),
    ("goodput_per_s", "goodput.response_500_ms"),
    ("responses_per_s", "responses_per_s"),
    ("wasted", "wasted_audio_ratio"),
    ("starved", "slo.starved"),
    ("failed_waits", "slo.failed_waits"),
    ("answers", "slo.count"),
    ("late", "slo.late"),
    ("heard", "slo.heard"),
    ("broken", "slo.broken"),
    ("refused", "sessions_refused"),
    ("reload_p95_ms", "residency.on_path_reload_ms.p95"),
    ("wasted_preload", "residency.wasted_preload_share"),
    ("errors", "errors"),
    ("given_up_at_s", "stopped_at_s"),
)
"""Name here, path in a report. Latencies are from the decided end of turn to the first audible sample; null: no end."""


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """`holds`: the service level of the knee, and nobody was refused. `judged` false: too few answers to tell; such a point
    does not hold."""

    sessions: int
    seed: int
    holds: bool
    figures: Mapping[str, Any]
    judged: bool = True

    def plain(self) -> dict[str, Any]:
        known = {"sessions": self.sessions, "seed": self.seed}
        return {**known, "holds": self.holds, "judged": self.judged, **self.figures}


T = TypeVar("T")


class Stopped(Exception):
    """Somebody asked all processes to stop."""


_stop: Event | None = None
"""Of a worker process."""


def measure_point(spec: SimulationSpec, give_up: bool) -> SweepPoint:
    """Run it here."""
    warm_up_ns, end_ns = int(spec.warm_up_s * NS_PER_S), int(spec.seconds * NS_PER_S)

    def watch(look: ProgressSample) -> bool:
        if _stop is not None and _stop.is_set():
            raise Stopped
        return give_up and hopeless(look.records, warm_up_ns, look.now_ns, end_ns)

    report = simulate(spec, watch=watch).figures
    kept = {name: figure(report, path) for name, path in KEPT}
    held, given_up = figure(report, "slo.held"), kept["given_up_at_s"] is not None
    holds = bool(held) and not given_up and not kept["refused"]
    return SweepPoint(spec.sessions, spec.seed, holds, kept, judged=held is not None or given_up)


class Laboratory:
    """Runs points in `jobs` processes (1: in this one) and remembers them; safe to ask from several threads.

    `done` is told of each new point, with the spec that it came from. `measure` is what a point is.
    """

    def __init__(
        self,
        jobs: int = 1,
        done: Callable[[SimulationSpec, SweepPoint], object] | None = None,
        measure: Callable[[SimulationSpec, bool], SweepPoint] = measure_point,
    ) -> None:
        self.jobs = jobs
        self._done = done
        self._measure = measure
        self._known: dict[tuple[SimulationSpec, bool], Future[SweepPoint]] = {}
        self._lock = Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._stop: Event | None = None

    def __enter__(self) -> Laboratory:
        if self.jobs > 1:
            context = get_context("spawn")
            self._stop = context.Event()
            self._pool = ProcessPoolExecutor(self.jobs, context, _enter_worker, (self._stop,))
        return self

    def __exit__(self, *_: object) -> None:
        self._give_up_all()
        if self._pool is not None:
            self._pool.shutdown()

    def each(self, tasks: Sequence[Callable[[], T]]) -> list[T]:
        """Results of tasks that ask for points, `jobs` of them at a time; when one fails, none goes on."""
        if self._pool is None:
            return [task() for task in tasks]
        with ThreadPoolExecutor(self.jobs) as threads:
            try:
                return list(threads.map(lambda task: task(), tasks))
            except BaseException:
                self._give_up_all()
                raise

    def _give_up_all(self) -> None:
        if self._stop is not None:
            self._stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def point(self, spec: SimulationSpec, give_up: bool = True) -> SweepPoint:
        """Waits until it is measured. A run that came to its end answers for both kinds of question."""
        with self._lock:
            known = self._ended(spec) or self._known.get((spec, give_up))
            fresh = known is None
            if known is None:
                known = self._begin(spec, give_up)
        if fresh and self._pool is None:
            known.set_result(self._measure(spec, give_up))
        point = known.result()
        if fresh and self._done is not None:
            self._done(spec, point)
        return point

    def _ended(self, spec: SimulationSpec) -> Future[SweepPoint] | None:
        whole = self._known.get((spec, False))
        if whole is not None:
            return whole
        other = self._known.get((spec, True))
        if other is None or not other.done() or other.cancelled() or other.exception() is not None:
            return None
        return other if other.result().figures["given_up_at_s"] is None else None

    def _begin(self, spec: SimulationSpec, give_up: bool) -> Future[SweepPoint]:
        future: Future[SweepPoint]
        future = Future() if self._pool is None else self._pool.submit(self._measure, spec, give_up)
        self._known[spec, give_up] = future
        return future

    def points(self) -> list[tuple[SimulationSpec, SweepPoint]]:
        """All that are measured; of two runs of the same spec the whole one."""
        with self._lock:
            known = dict(self._known)
        return [
            (spec, future.result())
            for (spec, give_up), future in known.items()
            if future.done() and not (give_up and (spec, False) in known)
            if not future.cancelled() and future.exception() is None
        ]


def _enter_worker(stop: Event) -> None:
    """Ctrl-C is the parent's to handle; it sets `stop`, which a run looks at every few simulated seconds."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def hold_together(points: Iterable[SweepPoint]) -> bool:
    """The service level over the answers of all seeds at once: at most 10 % of them after 500 ms, 1 % after 2 s and 1 % of
    those heard with a gap; no run given up, nobody refused."""
    known = list(points)
    if any(one.figures["given_up_at_s"] is not None or one.figures["refused"] for one in known):
        return False
    total: dict[str, int] = {
        name: sum(one.figures[name] for one in known)
        for name in ("answers", "late", "starved", "heard", "broken")
    }
    return (
        total["heard"] > 0
        and total["late"] <= 0.1 * total["answers"]
        and total["starved"] <= 0.01 * total["answers"]
        and total["broken"] <= 0.01 * total["heard"]
    )


def pooled(points: Iterable[SweepPoint], name: str) -> tuple[float, float, float] | None:
    """Mean, least and most of a figure over seeds; None where a seed has none (a wait without end, or too few)."""
    values = [point.figures[name] for point in points]
    if not values or any(value is None for value in values):
        return None
    return sum(values) / len(values), min(values), max(values)
