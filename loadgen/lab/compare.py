"""Candidates beside each other: sessions at the service level for each workload and profile, or figures at given numbers
of sessions; each with its range over seeds and its ratio to a base.

A ratio is taken seed by seed (both under the same seed) and given as mean, least and most. "Beyond the seeds' spread"
means that least and most are on the same side of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from loadgen.lab.candidates import Candidate, LabSetting, check_turns, spec_of
from loadgen.lab.points import Laboratory
from loadgen.lab.sweep import SCHEMA, Range, report, summary, sweep
from session_server.simulation.spec import SimulationSpec

Spread = Sequence[float]


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """`sessions` empty: look for the knees. `base`: the name of the candidate that ratios refer to."""

    setting: LabSetting
    profiles: Sequence[str]
    workloads: Sequence[str]
    candidates: Sequence[Candidate]
    base: str
    seeds: Sequence[int]
    sessions: Sequence[int] = ()
    wanted: Range = field(default_factory=Range)

    def places(self) -> list[tuple[str, str]]:
        """Profile and workload of each group of rows."""
        return [(profile, workload) for profile in self.profiles for workload in self.workloads]

    def check(self) -> None:
        """Raises ConfigError before anything is run."""
        for profile, workload in self.places():
            for one in self.candidates:
                check_turns(self.spec(profile, workload, one))

    def spec(self, profile: str, workload: str, one: Candidate) -> SimulationSpec:
        setting = replace(self.setting, profile=profile, workload=workload)
        return spec_of(setting, one, max(self.wanted.start, setting.replicas), self.seeds[0])


def compare(
    laboratory: Laboratory,
    plan: ComparisonPlan,
    begun: Callable[[str], object],
    cells: list[dict[str, Any]],
) -> None:
    """Fills `cells`, so that what was measured is there when somebody interrupts. `begun` is told what comes next."""
    for profile, workload in plan.places():
        guess = plan.wanted.start
        for one in plan.candidates:
            begun(f"{profile}, {workload}, {one.name}")
            spec = plan.spec(profile, workload, one)
            if plan.sessions:
                cell = _at(laboratory, plan, one, spec)
            else:
                found = sweep(laboratory, spec, plan.seeds, replace(plan.wanted, start=guess))
                guess = max(found.sessions_at_slo, 1)
                cell = report(found, one.name)
            cells.append({"place": [profile, workload], **cell})


def _at(
    laboratory: Laboratory, plan: ComparisonPlan, one: Candidate, spec: SimulationSpec
) -> dict[str, Any]:
    """Every seed at every number of sessions, run to the end."""
    specs = [replace(spec, sessions=n, seed=seed) for n in plan.sessions for seed in plan.seeds]
    points = laboratory.each([partial(laboratory.point, wanted, give_up=False) for wanted in specs])
    groups = [points[i : i + len(plan.seeds)] for i in range(0, len(points), len(plan.seeds))]
    return {
        "candidate": one.name, "policy": spec.policy, "chunking": spec.chunking, "profile": spec.profile,
        "workload_name": spec.workload.name, "overrides": dict(spec.overrides),
        "by_sessions": [summary(group) for group in groups],
        "points": [point.plain() for point in points],
    }  # fmt: skip


def comparison(
    plan: ComparisonPlan, cells: Sequence[Mapping[str, Any]], complete: bool
) -> dict[str, Any]:
    """The JSON."""
    setting = plan.setting
    return {
        "schema": SCHEMA,
        "kind": "compare",
        "measurement_origin": "simulation",
        "base": plan.base,
        "candidates": [one.name for one in plan.candidates],
        "profiles": list(plan.profiles),
        "workloads": list(plan.workloads),
        "sessions": list(plan.sessions),
        "seeds": list(plan.seeds),
        "seconds": setting.seconds,
        "warm_up_s": setting.left_out_s(),
        "barge_in": setting.barge_in,
        "admission": setting.admission,
        "replicas": setting.replicas,
        "turn_mode": setting.turn_mode,
        "sets": dict(setting.sets),
        "complete": complete,
        "cells": list(cells),
    }


def joined(sweeps: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any] | None:
    """Finished sweeps of several files as one comparison, whose base is the first one's candidate; None for fewer than two.

    A candidate that one place has twice goes by its file's name, which is the first of each pair.
    """
    whole = [(name, one) for name, one in sweeps if one["complete"]]
    if len(whole) < 2:
        return None
    places = [(one["profile"], one["workload_name"]) for _, one in whole]
    keys = [(place, one["candidate"]) for place, (_, one) in zip(places, whole, strict=True)]
    cells = [
        {**one, "place": list(place), "candidate": name if keys.count(key) > 1 else key[1]}
        for key, place, (name, one) in zip(keys, places, whole, strict=True)
    ]
    return {
        "kind": "compare",
        "base": cells[0]["candidate"],
        "candidates": list(dict.fromkeys(cell["candidate"] for cell in cells)),
        "profiles": list(dict.fromkeys(profile for profile, _ in places)),
        "workloads": list(dict.fromkeys(workload for _, workload in places)),
        "sessions": [],
        "cells": cells,
    }


_SHARED = (
    "seeds",
    "seconds",
    "warm_up_s",
    "barge_in",
    "admission",
    "replicas",
    "turn_mode",
    "sets",
)
"""What comparisons must have in common to be put into one table."""


def gathered(
    comparisons: Sequence[tuple[str, Mapping[str, Any]]],
) -> list[tuple[str, Mapping[str, Any]]]:
    """Comparisons at given sessions of several files, those of the same setting as one; others as they are. The base is the
    first one's, names are joined by a plus. A cell that was measured in pieces, some sessions here and some there, is whole."""
    groups: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for name, one in comparisons:
        shared = repr([one.get(key) for key in _SHARED]) if one["sessions"] else name
        groups.setdefault(shared, []).append((name, one))
    return [group[0] if len(group) == 1 else _as_one(group) for group in groups.values()]


def _as_one(group: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, Mapping[str, Any]]:
    cells: dict[tuple[str, ...], dict[str, Any]] = {}
    for _, one in group:
        for cell in one["cells"]:
            key = (*cell["place"], cell["candidate"], repr(cell["overrides"]))
            known = cells.setdefault(key, {**cell, "by_sessions": [], "points": []})
            there = {row["sessions"] for row in known["by_sessions"]}
            rows = [row for row in cell["by_sessions"] if row["sessions"] not in there]
            points = [point for point in cell["points"] if point["sessions"] not in there]
            known["by_sessions"] = sorted(
                [*known["by_sessions"], *rows], key=lambda row: row["sessions"]
            )
            known["points"] = [*known["points"], *points]
    first = group[0][1]
    unions = {
        key: list(dict.fromkeys(value for _, one in group for value in one[key]))
        for key in ("candidates", "profiles", "workloads", "sessions")
    }
    unions["sessions"].sort()
    complete = all(one["complete"] for _, one in group)
    whole = {**first, **unions, "complete": complete, "cells": list(cells.values())}
    return " + ".join(name for name, _ in group), whole


@dataclass(frozen=True, slots=True)
class SeenKnee:
    """Of one seed, among the numbers of sessions that were measured: it holds at `sessions` and at all below; 0: not at the
    least. `bounded`: at the next one it was seen not to hold."""

    sessions: int
    bounded: bool


def seen_knees(cell: Mapping[str, Any]) -> dict[int, SeenKnee]:
    """By seed, of a cell that was measured at given sessions."""
    held: dict[int, dict[int, bool]] = {}
    for point in cell["points"]:
        held.setdefault(point["seed"], {})[point["sessions"]] = point["holds"]
    found = {}
    for seed, by_sessions in sorted(held.items()):
        first = min((n for n, holds in by_sessions.items() if not holds), default=None)
        below = [n for n in by_sessions if first is None or n < first]
        found[seed] = SeenKnee(max(below, default=0), first is not None)
    return found


def seen_knee_ratio(cell: Mapping[str, Any], base: Mapping[str, Any]) -> Spread | None:
    """Over the base's, seed by seed; None where the numbers measured do not enclose a seed's knee."""
    ours, theirs = seen_knees(cell), seen_knees(base)
    if ours.keys() != theirs.keys():
        return None
    if not all(one.bounded and one.sessions for one in (*ours.values(), *theirs.values())):
        return None
    return spread_of(one.sessions / theirs[seed].sessions for seed, one in ours.items())


def spread_of(values: Iterable[float]) -> Spread | None:
    known = list(values)
    return (sum(known) / len(known), min(known), max(known)) if known else None


def knee_ratio(cell: Mapping[str, Any], base: Mapping[str, Any]) -> Spread | None:
    """Sessions at the service level over the base's: mean of the seeds' ratios, least, most; of the common knees where only
    those are known."""
    ours, theirs = cell["sessions_at_slo_by_seed"], base["sessions_at_slo_by_seed"]
    if not ours or not theirs:
        ours, theirs = {"": cell["sessions_at_slo"]}, {"": base["sessions_at_slo"]}
    if any(not theirs.get(seed) for seed in ours):
        return None
    return spread_of(n / theirs[seed] for seed, n in ours.items())


def figure_ratio(
    cell: Mapping[str, Any], base: Mapping[str, Any], sessions: int, name: str
) -> Spread | None:
    """A figure at so many sessions over the base's; None where a seed of either has none."""
    ours, theirs = (figures_by_seed(one, sessions, name) for one in (cell, base))
    if not ours or any(value is None for value in ours.values()):
        return None
    if any(not theirs.get(seed) for seed in ours):
        return None
    return spread_of(value / theirs[seed] for seed, value in ours.items())


def figures_by_seed(cell: Mapping[str, Any], sessions: int, name: str) -> dict[int, Any]:
    """Of every seed that was measured at so many sessions; None: a percentile that falls on a wait without end."""
    return {one["seed"]: one[name] for one in cell["points"] if one["sessions"] == sessions}


def base_of(found: Mapping[str, Any], cell: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The base's cell of the same profile and workload, once it is measured."""
    cells: Sequence[Mapping[str, Any]] = found["cells"]
    for other in cells:
        if other["place"] == cell["place"] and other["candidate"] == found["base"]:
            return other
    return None
