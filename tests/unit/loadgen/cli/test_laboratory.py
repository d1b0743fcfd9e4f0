"""What a long search says while it runs, in a pipe as on a terminal: about how many runs, how long, and what came out."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from loadgen.cli.laboratory import (
    Search,
    SearchProgress,
    carry_out,
    outcome,
    runs_of_search,
    spoken,
)
from loadgen.lab.points import KEPT, Laboratory, SweepPoint
from loadgen.lab.sweep import Range, sweep
from session_server.simulation.spec import SimulationSpec

pytestmark = pytest.mark.unit

SPEC = SimulationSpec(sessions=1)


def point(answers: int, holds: bool, judged: bool = True) -> SweepPoint:
    figures = {**dict.fromkeys((n for n, _ in KEPT), 0.0), "answers": answers}
    return SweepPoint(4, 0, holds, figures, judged)


def piped() -> Console:
    return Console(file=io.StringIO(), width=160)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("answers", "holds", "judged", "said"),
    [
        (0, False, False, "has too few answers to tell (0, at least 10 are needed): use more --seconds"),
        (9, False, False, "has too few answers to tell (9, at least 10 are needed): use more --seconds"),
        (400, True, True, "holds"),
        (400, False, True, "fails"),
    ],
)  # fmt: skip
def test_a_run_without_data_is_not_called_a_failure(
    answers: int, holds: bool, judged: bool, said: str
):
    assert outcome(point(answers, holds, judged)) == said


def test_a_piped_search_says_how_much_is_left_and_draws_no_bar():
    console = piped()
    with SearchProgress(console, "deadline", 12) as progress:
        progress.done(SPEC, point(400, True))
    lines = shown(console).splitlines()
    assert lines[0].startswith("about 12 simulated runs")
    assert lines[1].startswith("deadline: 4 sessions, seed 0 holds (run 1 of about 12, about ")
    assert lines[1].endswith("to go)")
    assert len(lines) == 2


def test_more_runs_than_expected_are_not_a_negative_rest():
    console = piped()
    with SearchProgress(console, "deadline", 1) as progress:
        for _ in range(3):
            progress.done(SPEC, point(400, True))
    assert "run 3 of about 3, about 0 s to go" in shown(console)


@pytest.mark.parametrize("seeds", [1, 5])
@pytest.mark.parametrize("wanted", [Range(), Range(around=(0.8, 1.2)), Range(pooled=True)])
def test_the_expected_number_of_runs_is_near_the_real_one(seeds: int, wanted: Range):
    runs = 0

    def measure(spec: SimulationSpec, give_up: bool) -> SweepPoint:
        nonlocal runs
        runs += 1
        holds = spec.sessions <= 76 + spec.seed
        figures = {**dict.fromkeys((n for n, _ in KEPT), 0), "answers": 400, "heard": 400}
        figures |= {"starved": 0 if holds else 100, "given_up_at_s": None}
        return SweepPoint(spec.sessions, spec.seed, holds, figures)

    with Laboratory(measure=measure) as laboratory:
        sweep(laboratory, SPEC, list(range(seeds)), wanted)
    assert runs / 2 <= runs_of_search(wanted, seeds) <= 2 * runs


@pytest.mark.parametrize(("seconds", "said"), [(0.4, "0 s"), (61.0, "61 s"), (600.0, "10 min")])
def test_lengths_are_spoken(seconds: float, said: str):
    assert spoken(seconds) == said


def test_ctrl_c_leaves_a_report_and_a_table_of_what_there_is(tmp_path: Path):
    def work(laboratory: Laboratory, progress: SearchProgress) -> None:
        raise KeyboardInterrupt

    file, seen = tmp_path / "r.json", []
    search = Search(
        "x", 5, work, lambda _, complete: {"complete": complete}, lambda found, _: seen.append(found), lambda _: None,
    )  # fmt: skip
    options = argparse.Namespace(jobs=1, report=file, plot=None)
    assert carry_out(search, options, piped()) == 130
    assert json.loads(file.read_text()) == {"complete": False}
    assert seen == [{"complete": False}]
