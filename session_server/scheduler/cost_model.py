"""What work costs, learned while serving: steps of the stages, and the uncounted rest.

A step's cost is the P90 of its time, and its work, per (stage, batch, units). Batch and units are
put into power-of-two buckets. P90 is never below the mean, an exponential average, and tracked by
an asymmetric step (up by 9 parts when a sample lies above, down by 1 part when below). An unseen
bucket is answered by the nearest one that has been seen. *Work* is what a step takes of a processor
or device, without waiting for it: where stages share cores a step lasts longer than its work, and
the load is the work.

No stage counts hearing, recognition, the event loop and sockets. Where engines work on threads of
their own, all that the server does is processor time of one process. The part of it that is no step
of the counted stages is shared out among the sessions that were open meanwhile. Before that is
known it is guessed as a share of what a response's speech costs. The guess weighs as much as a
minute of one session, and measurements are forgotten over two minutes.

Units: times and instants are nanoseconds; uncounted work is seconds of processor per second of a
session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from session_server.types.audio import NS_PER_S

_WEIGHT = 0.1
_STEP = 0.05
"""How far one sample may move P90, as a share of the mean."""


def bucket(n: int) -> int:
    """0, 1, 2, 3, ... for 1, 2, 3-4, 5-8, ..."""
    return max(0, n - 1).bit_length()


@dataclass(slots=True)
class _Cost:
    mean: float
    p90: float
    batch: float
    work: float

    def observe(self, batch: int, ns: int, work_ns: int) -> None:
        self.work += _WEIGHT * (work_ns - self.work)
        self.batch += _WEIGHT * (batch - self.batch)
        self.mean += _WEIGHT * (ns - self.mean)
        self.p90 += _STEP * self.mean * (0.9 if ns > self.p90 else -0.1) * 2
        self.p90 = max(self.p90, self.mean)


class Average:
    """Mean of a stream of times, as exponential average."""

    __slots__ = ("_mean",)

    def __init__(self) -> None:
        self._mean = 0.0

    def observe(self, ns: int) -> None:
        self._mean += _WEIGHT * (ns - self._mean) if self._mean else ns

    @property
    def ns(self) -> int:
        """0 until something was observed."""
        return int(self._mean)


class CostModel:
    """Bounded: at most one entry per stage and pair of buckets."""

    def __init__(self) -> None:
        self._costs: dict[str, dict[tuple[int, int], _Cost]] = {}
        self.observations = 0
        """Counts what was learned, so that others know when their figures are old."""
        self._observed: dict[str, int] = {}
        self.worked_ns: dict[str, int] = {}
        """Work of all steps of a stage so far."""

    def observe(
        self, stage: str, batch: int, units: int, ns: int, work_ns: int | None = None
    ) -> None:
        """A step of `batch` jobs, the largest of `units` units, took `ns`. `work_ns` None: all of that was work."""
        work_ns = ns if work_ns is None else work_ns
        self.observations += 1
        self._observed[stage] = self.observations
        self.worked_ns[stage] = self.worked_ns.get(stage, 0) + work_ns
        costs = self._costs.setdefault(stage, {})
        place = (bucket(batch), bucket(units))
        cost = costs.get(place)
        if cost is None:
            costs[place] = _Cost(float(ns), float(ns), float(batch), float(work_ns))
        else:
            cost.observe(batch, ns, work_ns)

    def version(self, stage: str) -> int:
        """Another one whenever something was learned about the stage."""
        return self._observed.get(stage, 0)

    def per_job_ns(self, stage: str, batch: int, units: int) -> float:
        """Work of a step over its batch, at the batch size nearest to `batch` that was seen; 0: nothing was."""
        cost = self._find(stage, batch, units)
        return 0.0 if cost is None else cost.work / cost.batch

    def work_ns(self, stage: str, batch: int, units: int) -> int:
        """Work of a step; 0: nothing was seen."""
        cost = self._find(stage, batch, units)
        return 0 if cost is None else int(cost.work)

    def knows(self, stage: str, batch: int) -> bool:
        """Whether a step of about so many jobs (half to twice) was seen."""
        costs = self._costs.get(stage, {})
        return any(abs(size - bucket(batch)) <= 1 for size, _ in costs)

    def p90_ns(self, stage: str, batch: int, units: int, prior_ns: int = 0) -> int:
        cost = self._find(stage, batch, units)
        return prior_ns if cost is None else int(cost.p90)

    def _find(self, stage: str, batch: int, units: int) -> _Cost | None:
        costs = self._costs.get(stage)
        if not costs:
            return None
        want = (bucket(batch), bucket(units))
        found = costs.get(want)
        if found is not None:
            return found
        near = min(costs, key=lambda at: (abs(at[0] - want[0]) + abs(at[1] - want[1]), at))
        return costs[near]


_SHARE = 1.0
"""Of a second of a response's speech, for each second of a session: 0.09 to 0.11 core beside 0.09, as calibrated, with eight
users of the CPU engines who interrupt (docs/admission.md)."""
_LEAST = 0.4
"""The same, never less: where other programs leave little of the processors, little is done and little is measured."""
_PRIOR_S = 60.0
_MEMORY_S = 120.0


class Uncounted:
    """What a session costs beside its answers."""

    def __init__(self) -> None:
        self._work_s = 0.0
        self._open_s = 0.0
        self._seen: tuple[int, int, int] | None = None

    def look(self, processor_ns: int, counted_ns: int, sessions: int, now: int) -> None:
        """So much processor time was used by now, so much of it by counted steps; `sessions` were open since the last look.
        Time without any is nobody's."""
        before, self._seen = self._seen, (processor_ns, counted_ns, now)
        if before is None or now <= before[2] or not sessions:
            return
        seconds = (now - before[2]) / NS_PER_S
        work_ns = (processor_ns - before[0]) - (counted_ns - before[1])
        past = math.exp(-seconds / _MEMORY_S)
        self._work_s = past * self._work_s + work_ns / NS_PER_S
        self._open_s = past * self._open_s + seconds * sessions

    def per_session(self, speech: float) -> float:
        """Processors that a session takes, where a response's speech takes `speech` of one."""
        known = self._work_s + _SHARE * speech * _PRIOR_S
        return max(_LEAST * speech, known / (self._open_s + _PRIOR_S))
