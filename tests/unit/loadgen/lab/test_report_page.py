"""Pages from stored reports: what is on them, in both forms; what is missing is said."""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from loadgen.cli import main
from loadgen.lab.plots import sweep_label
from loadgen.lab.report_page import html, page_of, write_markdown

pytestmark = pytest.mark.unit

RUN = {
    "schema": 1, "measurement_origin": "client_clock", "users": 8, "turns": 88, "sessions": 8, "seed": 3,
    "ttfa_ms": {"count": 80, "p50": 820.0, "p95": 1363.0, "p99": 1552.1}, "c100": 0.98,
    "ttfa_quantiles_ms": [400.0 + 10 * n for n in range(101)], "wasted_audio_ratio": 0.07, "errors": 0,
    "stages": {"talker": {"occupancy": 0.6, "steps": 100, "mean_batch": 1.4}},
    "workload": {"barge_in": 0.3}, "driver": {"kind": "ws", "late_ms": {"p99": 4.8}},
}  # fmt: skip
SIMULATED = {
    "schema": 1, "measurement_origin": "simulation", "policy": "deadline", "chunking": "adaptive",
    "profile": "cpu-default", "sessions": 8, "turns": 90, "seed": 1, "c100": 1.0, "errors": 0,
    "ttfa_ms": {"count": 90, "p50": 410.0, "p95": 700.0, "p99": 800.0}, "wasted_audio_ratio": 0.02,
    "slo": {"p50": 140.0, "p90": 200.0, "p99": None, "c100": 1.0, "held": True},
    "lead": [[10.0, 0.2], [10.1, 0.4], [10.2, 0.3]], "workload": {"barge_in": 0.3},
    "stages": {"talker": {"occupancy": 0.5, "steps": 90, "mean_batch": None}},
}  # fmt: skip
LEAD_ONLY = {
    key: SIMULATED[key] for key in SIMULATED if key not in ("stages", "wasted_audio_ratio")
}
ROW = {
    "sessions": 38, "seeds": 2, "holds": 2, "given_up": 0, "p90_ms": [210.0, 200.0, 220.0],
    "p99_ms": [310.0, 300.0, 320.0], "c100": [1.0, 1.0, 1.0], "goodput_per_s": [3.1, 3.0, 3.2],
    "starved": [0, 0, 0], "wasted": [0.03, 0.02, 0.04],
}  # fmt: skip
SWEEP = {
    "schema": 1, "kind": "sweep", "candidate": "deadline/adaptive", "policy": "deadline", "complete": True,
    "profile": "qwen3-omni-h200", "workload_name": "mixed", "sessions_at_slo": 38,
    "search_ended_at_limit": False, "sessions_at_slo_pooled": 39, "sessions_at_slo_by_seed": {"0": 38, "1": 40},
    "bars": {"p90_ms": 500.0, "p99_ms": 2000.0, "c100": 0.99}, "seeds": [0, 1], "seconds": 400.0,
    "by_sessions": [ROW, {**ROW, "sessions": 60, "holds": 0, "given_up": 2, "p99_ms": None}],
    "points": [
        {"sessions": n, "seed": seed, "answers": 300, "p90_ms": 200.0 + 20 * seed, "p99_ms": None}
        for n in (38, 60) for seed in (0, 1)
    ],
}  # fmt: skip
COMPARE = {
    "schema": 1, "kind": "compare", "base": "fcfs/stock", "candidates": ["fcfs/stock", "deadline/adaptive"],
    "profiles": ["qwen3-omni-h200"], "workloads": ["mixed"], "sessions": [], "seeds": [0, 1], "sets": {},
    "seconds": 400.0, "barge_in": None, "admission": False, "complete": True,
    "cells": [
        {**SWEEP, "place": ["qwen3-omni-h200", "mixed"], "candidate": "fcfs/stock",
         "sessions_at_slo_by_seed": {"0": 19, "1": 16}, "sessions_at_slo": 16},
        {**SWEEP, "place": ["qwen3-omni-h200", "mixed"]},
    ],
}  # fmt: skip


def test_runs_are_put_side_by_side_with_ratios():
    page = page_of([("real", RUN), ("simulated", SIMULATED)])
    figures = page.sections[0]
    assert list(figures.titles) == ["", "real", "simulated", "simulated / real"]
    rows = {row[0]: list(row[1:]) for row in figures.rows}
    assert rows["first audio p50, ms"] == ["820", "410", "0.50"]
    assert rows["holds the service level"] == ["-", "yes", "-"]
    assert len(rows) == len(figures.rows), "no row is there twice"
    assert "different origins" in figures.text


def test_every_plot_that_there_is_data_for_is_on_the_page():
    page = page_of([("real", RUN), ("simulated", SIMULATED)])
    drawn = [section.title for section in page.sections if section.image]
    assert [title.split()[0] for title in drawn] == ["First", "Lead", "Stages", "Waste"]
    for section in page.sections:
        assert section.image is None or section.image.startswith(b"\x89PNG")
    assert page.notes == ["No report has response_quantiles_ms."]


def test_sweeps_and_comparisons_have_their_tables():
    page = page_of([("s", SWEEP), ("c", COMPARE)])
    text = html(page)
    assert (
        "sessions at the service level: 38; each seed by itself: 38, 40; all seeds as one sample: 39"
        in text
    )
    assert "210 (200-220)" in text
    assert "2.25 (2.00-2.50)" in text, "the ratio is taken seed by seed"
    assert sum(section.image is not None for section in page.sections) == 3
    for section in page.sections:
        assert all(len(row) == len(section.titles) for row in section.rows), section.title


def sweep_of(candidate: str, profile: str, knees: dict[str, int]) -> dict[str, Any]:
    least = min(knees.values())
    mine = {"candidate": candidate, "profile": profile, "sessions_at_slo": least}
    return {**SWEEP, **mine, "sessions_at_slo_by_seed": knees}


def test_sweeps_of_several_files_are_put_beside_each_other_place_by_place():
    sweeps = [
        ("a", sweep_of("fcfs/stock", "one", {"0": 10, "1": 20})),
        ("b", sweep_of("deadline/adaptive", "one", {"0": 30, "1": 40})),
        ("c", sweep_of("deadline/adaptive", "two", {"0": 50, "1": 50})),
        ("d", {**SWEEP, "profile": "two", "complete": False, "sessions_at_slo": None}),
    ]
    page = page_of(sweeps)
    tables = {s.title: s.rows for s in page.sections if s.title.startswith("Sessions") and s.rows}
    one, two = tables.values()
    assert list(tables) == [f"Sessions at the service level: mixed, {p}" for p in ("one", "two")]
    assert [row[:4] for row in one] == [
        ["fcfs/stock", "10", "10, 20", "1.00"],
        ["deadline/adaptive", "30", "30, 40", "2.50 (2.00-3.00)"],
    ]
    assert [row[:4] for row in two] == [["deadline/adaptive", "50", "50, 50", "-"]], "no base there"
    curves = [s.title for s in page.sections if s.image and s.title.startswith("Sweeps")]
    assert curves == ["Sweeps: mixed, one", "Sweeps: mixed, two"], "a plot has one profile"


def test_two_sweeps_of_the_same_candidate_go_by_their_files_names():
    knees = {"0": 10, "1": 20}
    page = page_of([(name, sweep_of("fcfs/stock", "one", knees)) for name in ("short", "long")])
    [table] = [s for s in page.sections if s.title.startswith("Sessions") and s.rows]
    assert [row[0] for row in table.rows] == ["short", "long"]


def at_sessions(
    candidate: str, sessions: list[int], p90_ms: float, **setting: Any
) -> dict[str, Any]:
    cell = {
        "place": ["one", "mixed"], "candidate": candidate, "overrides": {}, "profile": "one", "workload_name": "mixed",
        "by_sessions": [
            {**ROW, "sessions": n, "reload_p95_ms": None, "refused": [0, 0, 0], "wasted_preload": None} for n in sessions
        ],
        "points": [
            {"sessions": n, "seed": seed, "answers": 300, "p90_ms": p90_ms, "p99_ms": p90_ms, "goodput_per_s": 3.0,
             "holds": n <= 90 + 10 * seed}
            for n in sessions for seed in (0, 1)
        ],
    }  # fmt: skip
    whole = {"profiles": ["one"], "candidates": [candidate], "base": candidate, "cells": [cell]}
    return {**COMPARE, **whole, "sessions": sessions, **setting}


def test_comparisons_that_were_measured_in_pieces_are_one_table():
    page = page_of(
        [
            ("a", at_sessions("deadline/adaptive", [96], 400.0)),
            ("b", at_sessions("fcfs/adaptive", [88], 2400.0)),
            ("c", at_sessions("deadline/adaptive", [88], 300.0)),
            ("other", at_sessions("deadline/adaptive", [84], 300.0, barge_in=0.7)),
        ]
    )
    whole, knees, other = (s for s in page.sections if s.rows)
    assert knees.rows == [["deadline/adaptive", "88, 96", "88", "88, 96 or more", "-"]]
    assert whole.title == "a + b + c: mixed, one"
    at = list(whole.titles).index("P90, ms")
    assert [(*row[:2], *row[at : at + 2]) for row in whole.rows] == [
        ("deadline/adaptive", "88", "300", "1.00"),
        ("deadline/adaptive", "96", "400", "1.00"),
        ("fcfs/adaptive", "88", "2400", "8.00"),
    ]
    assert [row[1] for row in other.rows] == ["84"], "another barge-in is another table"
    curves = [s.title for s in page.sections if s.image and "curves" in s.title]
    assert curves == ["a + b + c: curves, mixed, one"]


def test_a_comparison_at_given_sessions_is_not_called_an_interrupted_sweep():
    [cell] = at_sessions("deadline/adaptive", [96], 400.0)["cells"]
    assert sweep_label(cell) == "deadline/adaptive"
    [several] = at_sessions("deadline/adaptive", [88, 96], 400.0)["cells"]
    assert sweep_label(several) == "deadline/adaptive: 88 of those measured"
    assert sweep_label({**cell, "sessions_at_slo": None}) == "deadline/adaptive: interrupted"
    assert sweep_label({**cell, "sessions_at_slo": 96}) == "deadline/adaptive: 96"


def test_candidates_at_one_number_of_sessions_are_drawn_even_where_a_wait_has_no_end():
    one = at_sessions("deadline/adaptive", [96], 400.0)
    [cell] = one["cells"]
    endless = {
        **cell,
        "candidate": "x",
        "by_sessions": [{**cell["by_sessions"][0], "p90_ms": None}],
    }
    page = page_of([("a", {**one, "cells": [cell, endless]})])
    [drawn] = [section.image for section in page.sections if section.image]
    assert drawn.startswith(b"\x89PNG")


def test_the_same_reports_give_the_same_page():
    assert html(page_of([("r", LEAD_ONLY)])) == html(page_of([("r", LEAD_ONLY)]))


def test_html_holds_everything_itself():
    text = html(page_of([("<b>", LEAD_ONLY)]))
    assert "<b>" not in text
    assert not re.search(r'(src|href)="(?!data:)', text)
    for picture in re.findall(r'base64,([^"]+)"', text):
        assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert '"profile": "cpu-default"' in text.replace("&quot;", '"')


def test_markdown_names_its_pictures(tmp_path: Path):
    file = tmp_path / "page.md"
    pictures = write_markdown(page_of([("a", SIMULATED)]), file)
    text = file.read_text()
    assert [p.name for p in pictures] == ["page-1.png", "page-2.png", "page-3.png"]
    assert all(f"({p.name})" in text and p.stat().st_size > 1000 for p in pictures)
    assert "| first audio p50, ms | 410 |" in text


def test_without_matplotlib_the_tables_are_still_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("loadgen.lab.plots.available", lambda: False)
    page = page_of([("a", RUN), ("s", SWEEP)])
    assert not any(section.image for section in page.sections)
    assert page.notes == ["plots need matplotlib: pip install '.[lab]'"]
    assert page.sections[0].rows


def test_the_command_writes_both_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, report in (("a", RUN), ("b", SIMULATED), ("s", SWEEP)):
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    files = [str(tmp_path / f"{name}.json") for name in "abs"]
    pages = ["--html", str(tmp_path / "p.html"), "--markdown", str(tmp_path / "p.md")]
    assert main(["report", *files, *pages]) == 0
    assert "Sweeps" in (tmp_path / "p.html").read_text()
    assert (tmp_path / "p-1.png").exists()
    assert main(["report", *files]) == 0
    assert "sessions at the service level: 38" in " ".join(capsys.readouterr().err.split())
    assert main(["report", files[1]]) == 0
    assert "Simulated run" in capsys.readouterr().err
    assert main(["report", files[0], files[0]]) == 2
    assert main(["report", *files[:2], "--html", "/nowhere/p.html"]) == 2


def test_drawing_needs_no_display():
    page_of([("a", LEAD_ONLY)])
    assert "matplotlib.pyplot" not in sys.modules
