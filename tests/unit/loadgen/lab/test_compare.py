"""Comparisons with an invented system: cells, ratios seed by seed, and what an interruption leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from loadgen.lab.candidates import LabSetting, candidate, parse_variant
from loadgen.lab.compare import (
    ComparisonPlan,
    base_of,
    compare,
    comparison,
    figure_ratio,
    knee_ratio,
)
from loadgen.lab.points import KEPT, Laboratory, SweepPoint
from loadgen.lab.tables import comparison_markdown, comparison_tables
from session_server.simulation.spec import SimulationSpec

pytestmark = pytest.mark.unit

KNEES = {"fcfs": (10, 12), "deadline": (30, 33)}


def system(spec: SimulationSpec, give_up: bool) -> SweepPoint:
    """Holds up to its policy's and seed's knee; latency rises with the load, waste with the lead cap."""
    knee = KNEES[spec.policy][spec.seed] + (5 if spec.workload.name == "interactive" else 0)
    figures: dict[str, Any] = dict.fromkeys((name for name, _ in KEPT), 0.0)
    figures |= {
        "p90_ms": 100.0 * spec.sessions / knee,
        "c100": 1.0,
        "answers": 100,
        "given_up_at_s": None,
    }
    figures["wasted"] = dict(spec.overrides).get("lead_cap_s", 2.0)
    return SweepPoint(spec.sessions, spec.seed, spec.sessions <= knee, figures)


def plan(**more: Any) -> ComparisonPlan:
    wanted = {
        "setting": LabSetting(),
        "profiles": ["qwen3-omni-h200"],
        "workloads": ["mixed", "interactive"],
        "candidates": [candidate("fcfs", "stock"), candidate("deadline", "adaptive")],
        "base": "fcfs/stock",
        "seeds": [0, 1],
    }
    return ComparisonPlan(**(wanted | more))


def measured(wanted: ComparisonPlan) -> dict[str, Any]:
    cells: list[dict[str, Any]] = []
    with Laboratory(measure=system) as laboratory:
        compare(laboratory, wanted, lambda what: None, cells)
    found = comparison(wanted, cells, True)
    assert json.loads(json.dumps(found)) == found
    return found


def test_knees_and_their_ratios():
    found = measured(plan())
    fcfs, deadline, *others = found["cells"]
    assert [cell["sessions_at_slo"] for cell in found["cells"]] == [10, 30, 15, 35]
    assert base_of(found, deadline) is fcfs
    ratio = knee_ratio(deadline, fcfs)
    assert ratio is not None
    assert ratio == pytest.approx(((3.0 + 2.75) / 2, 2.75, 3.0))
    assert base_of(found, others[1]) is others[0], "each workload has its own base"


def test_figures_at_given_numbers_of_sessions():
    found = measured(plan(sessions=[10, 20], workloads=["mixed"]))
    fcfs, deadline = found["cells"]
    assert [row["sessions"] for row in deadline["by_sessions"]] == [10, 20]
    assert fcfs["by_sessions"][0]["p90_ms"] == pytest.approx([91.6667, 83.3333, 100.0], abs=0.001)
    assert figure_ratio(deadline, fcfs, 10, "p90_ms") == pytest.approx(
        (0.3485, 1 / 3, 12 / 33), abs=1e-3
    )
    assert figure_ratio(deadline, fcfs, 11, "p90_ms") is None
    assert figure_ratio(deadline, fcfs, 10, "given_up_at_s") is None


def test_a_wait_without_end_in_one_seed_does_not_hide_the_others():
    """Past the knee it is the most telling figure of a table; a dash for all seeds says nothing."""

    def overloaded(spec: SimulationSpec, give_up: bool) -> SweepPoint:
        point = system(spec, give_up)
        ended = spec.policy != "fcfs" or (spec.sessions < 40 and spec.seed == 0)
        return replace(point, figures={**point.figures, "p90_ms": 300.0 if ended else None})

    cells: list[dict[str, Any]] = []
    wanted = plan(workloads=["mixed"], sessions=[20, 40], base="deadline/adaptive")
    with Laboratory(measure=overloaded) as laboratory:
        compare(laboratory, wanted, lambda what: None, cells)
    (_, titles, rows), _ = comparison_tables(comparison(wanted, cells, True))
    at = list(titles).index("P90, ms")
    assert [list(row[at : at + 2]) for row in rows] == [
        ["300 to no end", "1.00 to no end"],
        ["no end", "no end"],
        ["300", "1.00"],
        ["300", "1.00"],
    ]


def test_knees_among_given_sessions_are_told_seed_by_seed():
    found = measured(plan(sessions=[9, 11, 30, 34], workloads=["mixed"]))
    title, _, rows = comparison_tables(found)[1]
    assert title == "mixed, qwen3-omni-h200: knees"
    assert rows == [
        ["fcfs/stock", "9, 11, 30, 34", "9", "9, 11", "1.00"],
        ["deadline/adaptive", "9, 11, 30, 34", "30", "30, 30", "3.03 (2.73-3.33)"],
    ]


def test_a_knee_outside_the_given_sessions_is_not_given_a_number():
    found = measured(plan(sessions=[11, 20], workloads=["mixed"]))
    rows = comparison_tables(found)[1][2]
    assert [row[2:] for row in rows] == [
        ["below 11", "below 11, 11", "-"],
        ["20 or more", "20 or more, 20 or more", "-"],
    ]


def test_variants_differ_only_in_what_they_say():
    wide = parse_variant("wide:deadline,adaptive,lead_cap_s=4")
    candidates = [candidate("deadline", "adaptive"), wide]
    found = measured(plan(candidates=candidates, base="deadline/adaptive", sessions=[8]))
    assert [cell["by_sessions"][0]["wasted"][0] for cell in found["cells"]] == [2.0, 4.0, 2.0, 4.0]
    assert found["cells"][1]["overrides"] == {"lead_cap_s": 4}


def test_tables_leave_out_columns_that_say_nothing():
    [(_, titles, rows), _] = comparison_tables(measured(plan(sessions=[10])))
    assert "P90, ms" in titles
    assert "refused" not in titles
    assert all(len(row) == len(titles) for row in rows)
    text = comparison_markdown(measured(plan()))
    assert "| deadline/adaptive | 30 | 30, 33 | 2.88 (2.75-3.00) |" in text
    assert "### interactive, qwen3-omni-h200" in text
    assert "400 simulated seconds of which 60 are left out" in text
    short = replace(LabSetting(), seconds=80.0, admission=True)
    text = comparison_markdown(measured(plan(setting=short, sessions=[10])))
    assert "80 simulated seconds of which 20 are left out" in text
    assert "A seed holds only where nobody is refused" in text


def test_an_interruption_leaves_the_cells_that_were_measured():
    def tired(spec: SimulationSpec, give_up: bool) -> SweepPoint:
        if spec.policy == "deadline":
            raise KeyboardInterrupt
        return system(spec, give_up)

    cells: list[dict[str, Any]] = []
    begun: list[str] = []
    with pytest.raises(KeyboardInterrupt), Laboratory(measure=tired) as laboratory:
        compare(laboratory, plan(), begun.append, cells)
    assert begun == [
        "qwen3-omni-h200, mixed, fcfs/stock",
        "qwen3-omni-h200, mixed, deadline/adaptive",
    ]
    found = comparison(plan(), cells, False)
    assert [cell["candidate"] for cell in found["cells"]] == ["fcfs/stock"]
    assert "Interrupted" in comparison_markdown(found)
