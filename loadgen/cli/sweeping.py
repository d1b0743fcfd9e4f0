"""`session-loadgen sweep`: the most sessions that hold the service level, and the curves around that knee."""

from __future__ import annotations

import argparse

from rich.console import Console

from loadgen.candidates import candidate, check_turns, spec_of
from loadgen.cli.laboratory import check_folders, range_of, seeds_of, setting_of
from loadgen.cli.searching import Figures, Search, SearchProgress, carry_out, runs_of_search
from loadgen.plots import sweep_plot
from loadgen.points import Laboratory
from loadgen.sweep import Sweep, interrupted, report, sweep
from loadgen.tables import print_sweep


def run(options: argparse.Namespace, console: Console) -> int:
    check_folders(options, "report", "plot")
    setting = setting_of(options, options.profile, options.workload)
    one = candidate(options.policy, options.chunking)
    wanted, seeds = range_of(options), seeds_of(options)
    spec = spec_of(setting, one, max(wanted.start, options.replicas), options.seed)
    check_turns(spec)
    ended: list[Sweep] = []

    def work(laboratory: Laboratory, progress: SearchProgress) -> None:
        ended.append(sweep(laboratory, spec, seeds, wanted))

    def figures(laboratory: Laboratory, complete: bool) -> Figures:
        if complete:
            return report(ended[0], one.name)
        return interrupted(laboratory, spec, seeds, one.name)

    def plot(found: Figures) -> bytes | None:
        return sweep_plot([found]) if found["points"] else None

    runs = runs_of_search(wanted, len(seeds))
    search = Search(one.name, runs, work, figures, print_sweep, plot)
    return carry_out(search, options, console)
