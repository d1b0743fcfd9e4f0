"""What the commands of the laboratory do alike: options become a setting, files are checked before a long run.

What `sweep` and `compare` do alike: many runs in a laboratory, with a word on how long it takes; then report, tables, plot.

Ctrl-C ends the runs, and what was measured so far is written and shown all the same (exit code 130).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from loadgen.lab import plots, report
from loadgen.lab.candidates import LabSetting, parse_sets
from loadgen.lab.points import Laboratory, SweepPoint
from loadgen.lab.sweep import Range
from loadgen.measure import LEAST_EVENTS
from session_server.simulation.spec import SimulationSpec
from session_server.types.errors import ConfigError


def setting_of(options: argparse.Namespace, profile: str, workload: str) -> LabSetting:
    return LabSetting(
        profile=profile,
        workload=workload,
        seconds=options.seconds,
        warm_up_s=options.warm_up,
        barge_in=options.barge_in,
        admission=options.admission == "on",
        replicas=options.replicas,
        turn_mode=options.turn_detection,
        sets=parse_sets(options.set),
    )


def range_of(options: argparse.Namespace) -> Range:
    if options.start > options.most:
        raise ConfigError("--start is beyond --most")
    return Range(
        options.start,
        options.step,
        options.within,
        options.most,
        tuple(options.around),
        options.pooled,
        options.common,
    )


def seeds_of(options: argparse.Namespace) -> list[int]:
    return [options.seed + number for number in range(options.seeds)]


def check_folders(options: argparse.Namespace, *flags: str) -> None:
    """A place where nothing can be written shows before the run, not after."""
    for flag in flags:
        path: Path | None = getattr(options, flag)
        if path is None:
            continue
        if not path.parent.is_dir():
            raise ConfigError(f"--{flag} {path}: no such folder")
        if path.is_dir():
            raise ConfigError(f"--{flag} {path}: is a folder")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise ConfigError(f"--{flag} {path}: no permission to write there")


def can_plot(options: argparse.Namespace, console: Console) -> bool:
    """Is a plot wanted, and can it be drawn? Whoever wants one learns before the run that there will be none."""
    if options.plot is None:
        return False
    if not plots.available():
        console.print(
            f"--plot {options.plot}: {plots.MISSING}; the run goes on without", markup=False
        )
    return plots.available()


Figures = Mapping[str, Any]

_FIRST_KNEE_RUNS, _NEXT_KNEE_RUNS, _SETTLING_RUNS = 8, 4, 2
"""What a search takes as a rule: from a poor guess, from a good one, and at the end."""


def runs_of_search(wanted: Range, seeds: int) -> int:
    """About how many runs the knee of one candidate takes."""
    runs = _FIRST_KNEE_RUNS + _NEXT_KNEE_RUNS * (seeds - 1) + _SETTLING_RUNS * (seeds > 1)
    if wanted.pooled:
        runs += _NEXT_KNEE_RUNS * seeds
    return runs + len(wanted.around) * seeds


@dataclass
class SearchProgress:
    """A line that says what was measured last and about how much is left; `runs`: about how many there will be."""

    console: Console
    what: str
    runs: int
    measured: int = 0
    _began: float = field(default_factory=time.monotonic)
    _bar: Progress = field(init=False)

    def __post_init__(self) -> None:
        self._bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(),
            TextColumn("{task.completed} of about {task.total} runs"), TimeElapsedColumn(), TimeRemainingColumn(),
            console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task(self.what, total=self.runs)

    def __enter__(self) -> SearchProgress:
        self._bar.start()
        if not self.console.is_terminal:
            self._print(f"about {self.runs} simulated runs; the first will say how long one takes")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def say(self, what: str) -> None:
        self.what = what
        self._bar.update(self._task, description=what)

    def done(self, spec: SimulationSpec, point: SweepPoint) -> None:
        self.measured += 1
        self.runs = max(self.runs, self.measured)
        text = f"{self.what}: {point.sessions} sessions, seed {point.seed} {outcome(point)}"
        self._bar.update(self._task, description=text, completed=self.measured, total=self.runs)
        if not self.console.is_terminal:
            self._print(f"{text} (run {self.measured} of about {self.runs}, {self._left()})")

    def _left(self) -> str:
        each_s = (time.monotonic() - self._began) / self.measured
        return f"about {spoken(each_s * (self.runs - self.measured))} to go"

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)


def outcome(point: SweepPoint) -> str:
    """One word, or why there is none."""
    if point.judged:
        return "holds" if point.holds else "fails"
    answers = point.figures["answers"]
    return f"has too few answers to tell ({answers}, at least {LEAST_EVENTS} are needed): use more --seconds"


def spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


@dataclass(frozen=True, slots=True)
class Search:
    """`work` measures; `figures` makes the report of all that was measured, whole or not; `show` prints it; `plot` draws
    it, None where there is nothing to draw. `runs`: about how many there will be."""

    title: str
    runs: int
    work: Callable[[Laboratory, SearchProgress], None]
    figures: Callable[[Laboratory, bool], Figures]
    show: Callable[[Figures, Console], None]
    plot: Callable[[Figures], bytes | None]


def carry_out(search: Search, options: argparse.Namespace, console: Console) -> int:
    """The exit code."""
    wants_plot = can_plot(options, console)
    complete = True
    with SearchProgress(console, search.title, search.runs) as progress:
        laboratory = Laboratory(options.jobs, progress.done)
        try:
            with laboratory:
                search.work(laboratory, progress)
        except KeyboardInterrupt:
            complete = False
    found = search.figures(laboratory, complete)
    if options.report is not None:
        report.write(found, options.report)
    search.show(found, console)
    picture = search.plot(found) if wants_plot else None
    if picture is not None:
        options.plot.write_bytes(picture)
    return 0 if complete else 130
