"""`session-loadgen sweep`: the most sessions that hold the service level, and the curves around that knee."""

from __future__ import annotations

import argparse

from rich.console import Console

from loadgen import report as reports
from loadgen.candidates import candidate, check_turns, spec_of
from loadgen.cli.laboratory import (
    SearchProgress,
    can_plot,
    check_folders,
    range_of,
    seeds_of,
    setting_of,
)
from loadgen.plots import sweep_plot
from loadgen.points import Laboratory
from loadgen.sweep import interrupted, report, sweep
from loadgen.tables import print_sweep


def run(options: argparse.Namespace, console: Console) -> int:
    check_folders(options, "report", "plot")
    setting = setting_of(options, options.profile, options.workload)
    one = candidate(options.policy, options.chunking)
    wanted, seeds = range_of(options), seeds_of(options)
    spec = spec_of(setting, one, max(wanted.start, options.replicas), options.seed)
    check_turns(spec)
    plot = can_plot(options, console)
    with SearchProgress(console, one.name) as progress:
        laboratory = Laboratory(options.jobs, progress.done)
        try:
            with laboratory:
                found = sweep(laboratory, spec, seeds, wanted)
        except KeyboardInterrupt:
            figures = interrupted(laboratory, spec, seeds, one.name)
        else:
            figures = report(found, one.name)
    if options.report is not None:
        reports.write(figures, options.report)
    print_sweep(figures, console)
    if plot and figures["points"]:
        options.plot.write_bytes(sweep_plot([figures]))
    return 0 if figures["complete"] else 130
