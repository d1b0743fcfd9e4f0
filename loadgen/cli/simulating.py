"""`session-loadgen simulate`: one simulated run, its report, and whether its bars held."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from loadgen.cli.laboratory import check_folders, setting_of
from loadgen.lab import report as reports
from loadgen.lab.candidates import candidate, spec_of
from loadgen.lab.simulation import ProgressSample, simulate
from loadgen.slo import judge, read_bars
from session_server.simulation.spec import SimulationReport, SimulationSpec
from session_server.types.audio import NS_PER_S


def run(options: argparse.Namespace, console: Console) -> int:
    bars = read_bars(options.slo) if options.slo is not None else []
    check_folders(options, "report")
    setting = setting_of(options, options.profile, options.workload)
    one = candidate(options.policy, options.chunking)
    spec = spec_of(setting, one, options.sessions, options.seed)
    before = time.process_time()
    report = _run(spec, console)
    took_s = time.process_time() - before
    if options.report is not None:
        options.report.write_text(report.to_json())
    reports.print_simulation(report.figures, console)
    stopped_at_s = report.figures.get("stopped_at_s")
    share_ms = 1000 * took_s / (spec.sessions * (stopped_at_s or spec.seconds))
    console.print(f"CPU of this run: {took_s:.1f} s ({share_ms:.2f} ms a session and second)")
    verdicts = judge(bars, report.figures)
    reports.print_verdicts(verdicts, console)
    if stopped_at_s is not None:
        console.print(f"interrupted: this is a part, of {stopped_at_s:g} simulated seconds")
        return 130
    return 0 if all(verdict.held for verdict in verdicts) else 1


def _run(spec: SimulationSpec, console: Console) -> SimulationReport:
    """With a bar. Ctrl-C ends the run with a report of its part, once its warm-up is over."""
    warm_up_ns = int(spec.warm_up_s * NS_PER_S)
    with (
        Progress(
            TextColumn("simulated seconds"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(), TimeRemainingColumn(), console=console, disable=not console.is_terminal,
        ) as bar,
        _interruptions() as pressed,
    ):  # fmt: skip
        task = bar.add_task("", total=spec.seconds * spec.replicas)

        def watch(look: ProgressSample) -> bool:
            bar.update(task, completed=look.replica * spec.seconds + look.now_ns / NS_PER_S)
            if pressed and look.now_ns <= warm_up_ns:
                raise KeyboardInterrupt
            return bool(pressed)

        report = simulate(spec, watch=watch)
        if report.figures.get("stopped_at_s") is None:
            bar.update(task, completed=spec.seconds * spec.replicas)
    return report


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Ctrl-C is noted; the second one ends at once."""
    pressed: list[int] = []

    def note(number: int, frame: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
