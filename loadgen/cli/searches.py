"""`session-loadgen compare` and `sweep`: searches for the most sessions that hold.

`compare` puts policies, chunk rules and variants beside each other, on workloads and profiles.
`sweep` finds the most sessions that hold the service level, and the curves around that knee.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from loadgen.cli.laboratory import (
    Figures,
    Search,
    SearchProgress,
    carry_out,
    check_folders,
    range_of,
    runs_of_search,
    seeds_of,
    setting_of,
)
from loadgen.lab import report as reports
from loadgen.lab.candidates import (
    POLICIES,
    Candidate,
    candidate,
    check_turns,
    parse_variant,
    spec_of,
)
from loadgen.lab.compare import ComparisonPlan, compare, comparison
from loadgen.lab.plots import comparison_plot, sweep_plot
from loadgen.lab.points import Laboratory
from loadgen.lab.sweep import Sweep, interrupted, report, sweep
from loadgen.lab.tables import comparison_markdown, print_comparison, print_sweep
from session_server.types.errors import ConfigError


def run_compare(options: argparse.Namespace, console: Console) -> int:
    check_folders(options, "report", "markdown", "plot")
    plan = plan_of(options)
    plan.check()
    cells: list[dict[str, Any]] = []

    def work(laboratory: Laboratory, progress: SearchProgress) -> None:
        def begun(what: str) -> None:
            """What there is so far is on disk, whatever ends the program."""
            if options.report is not None:
                reports.write(comparison(plan, cells, False), options.report)
            progress.say(what)

        compare(laboratory, plan, begun, cells)

    def show(found: Figures, console: Console) -> None:
        if options.markdown is not None:
            options.markdown.write_text(comparison_markdown(found))
        print_comparison(found, console)

    search = Search(
        "compare",
        runs_of(plan),
        work,
        lambda _, complete: comparison(plan, cells, complete),
        show,
        lambda found: comparison_plot(found) if cells else None,
    )
    return carry_out(search, options, console)


def runs_of(plan: ComparisonPlan) -> int:
    """How many runs there will be; about, where knees are looked for."""
    seeds = len(plan.seeds)
    each = len(plan.sessions) * seeds or runs_of_search(plan.wanted, seeds)
    return each * len(plan.places()) * len(plan.candidates)


def plan_of(options: argparse.Namespace) -> ComparisonPlan:
    candidates = candidates_of(options)
    known = [one.name for one in candidates]
    base = options.base or known[0]
    if base not in known:
        raise ConfigError(f"--base {base}: no such candidate; there are {', '.join(known)}")
    return ComparisonPlan(
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


def run_sweep(options: argparse.Namespace, console: Console) -> int:
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
