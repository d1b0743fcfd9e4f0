"""Sessions at the service level: the knee of one candidate over several seeds.

Owns the search for the knee, the most sessions that hold, with few trials, and what was measured on
the way. The search is pure: what a trial is, the caller says. `search` takes it that what holds at
N holds below N. That is only nearly true of a real system near its limit, so `settle` does not
trust it across seeds: it says for which N every seed was seen to hold, and for N + 1 that one was
seen to fail.

A seed holds at N if, by itself, turn end -> first audible sample has P90 <= 500 ms and P99 <= 2 s,
waits without end counted as failed, C100 >= 0.99, and no session was refused. `sessions_at_slo` is
the largest N at which every seed was measured and holds; at N + 1 (or up to `within` farther) one
was measured and does not. Points far beyond are given up early; none at the knee is.

`sessions_at_slo_pooled`, when asked for, takes the answers of all seeds as one sample. It is the
kinder reading: a candidate whose continuity is nearly good enough at every load has no answer to
spare in a single seed of few sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from loadgen.lab.points import KEPT, Laboratory, SweepPoint, hold_together, pooled
from session_server.simulation.spec import SimulationSpec

Holds = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Knee:
    """`sessions`: holds there, 0 if it never did. `limited`: the search ended at its limit, not at a failure; else
    at most `within` sessions more failed."""

    sessions: int
    limited: bool = False


def search(holds: Holds, guess: int, step: int, most: int, within: int = 1) -> Knee:
    """Away from `guess` in steps that double until the answer changes, then by halves, to `within` sessions.

    A good guess with a small step takes three or four trials; a poor one costs a logarithm.
    """
    low, high = 0, most + 1
    at = min(max(guess, 1), most)
    upward = holds(at)
    while True:
        if upward:
            low = at
            if at == most:
                return Knee(most, limited=True)
            at = min(at + step, most)
        else:
            high = at
            if at == 1:
                return Knee(0)
            at = max(at - step, 1)
        step *= 2
        if holds(at) != upward:
            break
    if upward:
        high = at
    else:
        low = at
    return Knee(_bisect(holds, low, high, within))


def _bisect(holds: Holds, low: int, high: int, within: int) -> int:
    """`low` holds and `high` does not; both stay true until they are near enough."""
    while high - low > within:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def settle(knees: Mapping[int, Knee], holds: Callable[[int, int], bool]) -> int:
    """The largest N up to the smallest of the seeds' knees at which every seed was tried and held; 0 for none.

    `holds(sessions, seed)`. A seed whose own knee is higher may still fail below it; then N goes down by one.
    """
    sessions = min(knee.sessions for knee in knees.values())
    while sessions > 0 and not all(holds(sessions, seed) for seed in knees):
        sessions -= 1
    return sessions


SCHEMA = 1
BARS = {"p90_ms": 500.0, "p99_ms": 2000.0, "c100": 0.99}


@dataclass(frozen=True, slots=True)
class Range:
    """Where to look: `start` sessions first, never more than `most`, the first move `step` (0: half of `start`), until knees
    are known to `within` sessions; then at multiples `around` the knee; and `pooled`: for the knee of all seeds' answers at
    once. `common`: only for the knee of all seeds, not for each one's own."""

    start: int = 32
    step: int = 0
    within: int = 1
    most: int = 4096
    around: Sequence[float] = ()
    pooled: bool = False
    common: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """`by_seed`: each seed's own knee, unless only the common one was looked for. `pooled`: that of all seeds' answers at once, if it was looked for. `points`: of all
    seeds, by sessions and seed."""

    spec: SimulationSpec
    seeds: Sequence[int]
    sessions_at_slo: int
    limited: bool
    by_seed: dict[int, int]
    pooled: int | None
    points: list[SweepPoint]


def sweep(
    laboratory: Laboratory, spec: SimulationSpec, seeds: Sequence[int], wanted: Range
) -> Sweep:
    """`spec`: its sessions and seed are not looked at."""
    looking = _Search(laboratory, spec, seeds, wanted)
    if wanted.common:
        knees, common = {}, looking.common_knee()
        found, limited, middle = common.sessions, common.limited, common.sessions
    else:
        knees = looking.own_knees()
        found = settle(knees, looking.holds)
        limited = all(one.limited for one in knees.values())
        middle = int(median(one.sessions for one in knees.values()))
    pooled_knee = looking.pooled_knee(middle) if wanted.pooled else None
    for factor in wanted.around:
        looking.ended(max(spec.replicas, round(found * factor)))
    by_seed = {seed: one.sessions for seed, one in knees.items()}
    points = points_of(laboratory, spec)
    return Sweep(spec, seeds, found, limited, by_seed, pooled_knee, points)


class _Search:
    """Questions that a sweep asks of its laboratory."""

    def __init__(
        self, laboratory: Laboratory, spec: SimulationSpec, seeds: Sequence[int], wanted: Range
    ) -> None:
        self._laboratory = laboratory
        self._spec = spec
        self._seeds = list(seeds)
        self._most = wanted.most
        self._start = max(wanted.start, spec.replicas)
        self._step = wanted.step or max(1, self._start // 2)
        self._within = wanted.within

    def holds(self, sessions: int, seed: int) -> bool:
        if sessions < self._spec.replicas:
            return False
        return self._laboratory.point(replace(self._spec, sessions=sessions, seed=seed)).holds

    def own_knees(self) -> dict[int, Knee]:
        """Each seed's; the first one's is where the others begin."""
        first, *rest = self._seeds
        found = self._own_knee(first, self._start, self._step)
        guess, step = max(found.sessions, 1), self._near(found.sessions)
        tasks = [partial(self._own_knee, seed, guess, step) for seed in rest]
        others = self._laboratory.each(tasks)
        return {first: found, **dict(zip(rest, others, strict=True))}

    def _own_knee(self, seed: int, guess: int, step: int) -> Knee:
        return self._search(lambda sessions: self.holds(sessions, seed), guess, step)

    def _search(self, holds: Holds, guess: int, step: int) -> Knee:
        return search(holds, guess, step, self._most, self._within)

    def _near(self, sessions: int) -> int:
        """A first step, where the guess is good."""
        return max(self._within, sessions // 32)

    def common_knee(self) -> Knee:
        """Of all seeds, one after the other until one fails; whichever failed last is tried first."""
        order = list(self._seeds)

        def all_hold(sessions: int) -> bool:
            for seed in order:
                if not self.holds(sessions, seed):
                    order.remove(seed)
                    order.insert(0, seed)
                    return False
            return True

        first = self._own_knee(order[0], self._start, self._step)
        return self._search(all_hold, max(first.sessions, 1), self._near(first.sessions))

    def pooled_knee(self, guess: int) -> int:
        def hold(sessions: int) -> bool:
            return sessions >= self._spec.replicas and hold_together(self.ended(sessions))

        return self._search(hold, max(guess, 1), self._near(guess)).sessions

    def ended(self, sessions: int) -> list[SweepPoint]:
        """Every seed, run to its end."""
        specs = [replace(self._spec, sessions=sessions, seed=seed) for seed in self._seeds]
        laboratory = self._laboratory
        return laboratory.each([partial(laboratory.point, one, give_up=False) for one in specs])


def points_of(laboratory: Laboratory, spec: SimulationSpec) -> list[SweepPoint]:
    """What was measured of a candidate, at any number of sessions and with any seed."""
    ours = [
        point
        for one, point in laboratory.points()
        if replace(one, sessions=spec.sessions, seed=spec.seed) == spec
    ]
    return sorted(ours, key=lambda point: (point.sessions, point.seed))


def summary(points: Sequence[SweepPoint]) -> dict[str, Any]:
    """Points of several seeds at one number of sessions: mean, least and most of each figure."""
    out: dict[str, Any] = {"sessions": points[0].sessions, "seeds": len(points)}
    for name, _ in KEPT:
        if name == "given_up_at_s":
            out["given_up"] = sum(point.figures[name] is not None for point in points)
            continue
        spread = pooled(points, name)
        out[name] = None if spread is None else [round(value, 4) for value in spread]
    out["holds"] = sum(point.holds for point in points)
    out["judged"] = sum(point.judged for point in points)
    return out


def by_sessions(points: Sequence[SweepPoint]) -> dict[int, list[SweepPoint]]:
    grouped: dict[int, list[SweepPoint]] = {}
    for point in points:
        grouped.setdefault(point.sessions, []).append(point)
    return dict(sorted(grouped.items()))


def report(found: Sweep, name: str) -> dict[str, Any]:
    """The JSON of a sweep. `complete` false: it was interrupted, and there is no knee."""
    return {
        **head(found.spec, "sweep", found.seeds),
        "candidate": name,
        "sessions_at_slo": found.sessions_at_slo,
        "search_ended_at_limit": found.limited,
        "sessions_at_slo_pooled": found.pooled,
        "sessions_at_slo_by_seed": {str(seed): n for seed, n in sorted(found.by_seed.items())},
        "complete": True,
        **curves(found.points),
    }


def interrupted(
    laboratory: Laboratory, spec: SimulationSpec, seeds: Sequence[int], name: str
) -> dict[str, Any]:
    """What there is when somebody pressed Ctrl-C."""
    return {
        **head(spec, "sweep", seeds),
        "candidate": name,
        "sessions_at_slo": None,
        "complete": False,
        **curves(points_of(laboratory, spec)),
    }


def curves(points: Sequence[SweepPoint]) -> dict[str, Any]:
    return {
        "by_sessions": [summary(group) for group in by_sessions(points).values()],
        "points": [point.plain() for point in points],
    }


def head(spec: SimulationSpec, kind: str, seeds: Sequence[int]) -> dict[str, Any]:
    """What is needed to repeat it."""
    workload = asdict(replace(spec.workload, trace=None))  # a trace is a file of its own
    if spec.barge_in is not None:
        workload["barge_in"] = spec.barge_in
    return {
        "schema": SCHEMA,
        "kind": kind,
        "measurement_origin": "simulation",
        "bars": BARS,
        "policy": spec.policy,
        "chunking": spec.chunking,
        "profile": spec.profile,
        "workload_name": spec.workload.name,
        "workload": workload,
        "network": asdict(spec.network),
        "overrides": dict(spec.overrides),
        "seeds": list(seeds),
        "seconds": spec.seconds,
        "warm_up_s": spec.warm_up_s,
        "admission": spec.admission,
        "replicas": spec.replicas,
        "turn_mode": spec.turn_mode,
    }
