"""`session-loadgen compare`: policies, chunk rules and variants beside each other, on workloads and profiles."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from loadgen import report as reports
from loadgen.candidates import POLICIES, Candidate, candidate, parse_variant
from loadgen.cli.laboratory import (
    SearchProgress,
    can_plot,
    check_folders,
    range_of,
    seeds_of,
    setting_of,
)
from loadgen.compare import Plan, compare, comparison
from loadgen.plots import comparison_plot
from loadgen.points import Laboratory
from loadgen.tables import comparison_markdown, print_comparison
from session_server.errors import ConfigError


def run(options: argparse.Namespace, console: Console) -> int:
    check_folders(options, "report", "markdown", "plot")
    plan = plan_of(options)
    plan.check()
    plot = can_plot(options, console)
    cells: list[dict[str, Any]] = []
    complete = True
    with SearchProgress(console, "") as progress:
        try:
            with Laboratory(options.jobs, progress.done) as laboratory:
                compare(laboratory, plan, progress.say, cells)
        except KeyboardInterrupt:
            complete = False
    found = comparison(plan, cells, complete)
    if options.report is not None:
        reports.write(found, options.report)
    if options.markdown is not None:
        options.markdown.write_text(comparison_markdown(found))
    print_comparison(found, console)
    if plot and cells:
        options.plot.write_bytes(comparison_plot(found))
    return 0 if complete else 130


def plan_of(options: argparse.Namespace) -> Plan:
    candidates = candidates_of(options)
    known = [one.name for one in candidates]
    base = options.base or known[0]
    if base not in known:
        raise ConfigError(f"--base {base}: no such candidate; there are {', '.join(known)}")
    return Plan(
        setting=setting_of(options, options.profiles[0], options.workloads[0]),
        profiles=options.profiles,
        workloads=options.workloads,
        candidates=candidates,
        base=base,
        seeds=seeds_of(options),
        sessions=options.sessions,
        wanted=range_of(options),
    )


def candidates_of(options: argparse.Namespace) -> list[Candidate]:
    """Every policy with every chunk rule, then the variants. Raises ConfigError for a name that is there twice."""
    policies = options.policies
    if policies is None:
        policies = [] if options.variant else POLICIES
    found = [candidate(policy, rule) for rule in options.chunkings for policy in policies]
    found += [parse_variant(text) for text in options.variant]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"candidate {name} is there twice")
    return found
