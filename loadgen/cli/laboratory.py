"""What the commands of the laboratory do alike: options become a setting, files are checked before a long run, progress."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from loadgen import plots
from loadgen.candidates import Setting, parse_sets
from loadgen.points import Point
from loadgen.simulation import SimulationSpec
from loadgen.sweep import Range
from session_server.errors import ConfigError


def setting_of(options: argparse.Namespace, profile: str, workload: str) -> Setting:
    return Setting(
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
    return Range(options.start, options.most, tuple(options.around), options.pooled, options.common)


def seeds_of(options: argparse.Namespace) -> list[int]:
    return [options.seed + number for number in range(options.seeds)]


def check_folders(options: argparse.Namespace, *flags: str) -> None:
    """A folder that is not there shows before the run, not after."""
    for flag in flags:
        path: Path | None = getattr(options, flag)
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"--{flag} {path}: no such folder")


def can_plot(options: argparse.Namespace, console: Console) -> bool:
    """Is a plot wanted, and can it be drawn? Whoever wants one learns before the run that there will be none."""
    if options.plot is None:
        return False
    if not plots.available():
        console.print(
            f"--plot {options.plot}: {plots.MISSING}; the run goes on without", markup=False
        )
    return plots.available()


@dataclass
class SearchProgress:
    """A line that says what was measured last, while nobody knows how much there will be."""

    console: Console
    what: str
    measured: int = 0
    _bar: Progress = field(init=False)

    def __post_init__(self) -> None:
        self._bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
            console=self.console,
        )  # fmt: skip
        self._task = self._bar.add_task(self.what, total=None)

    def __enter__(self) -> SearchProgress:
        self._bar.start()
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

    def done(self, spec: SimulationSpec, point: Point) -> None:
        self.measured += 1
        word = "holds" if point.holds else "fails"
        text = f"{self.what}: {point.sessions} sessions, seed {point.seed} {word} ({self.measured} runs)"
        self._bar.update(self._task, description=text)
        if not self.console.is_terminal:
            self.console.print(text, markup=False)
