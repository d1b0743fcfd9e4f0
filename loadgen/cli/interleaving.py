"""`ab`: two settings of a server under the same load, in turns, on this machine; what one does over the other."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from loadgen import interleave
from loadgen.cli.parser import parse
from loadgen.cli.running import users_of as check_options
from session_server.types.errors import ConfigError


def run(options: argparse.Namespace, console: Console) -> int:
    arms = {
        "A": interleave.arm_of("A", options.a),
        "B": interleave.arm_of("B", options.b),
    }
    interleave.require_settings(arms, options.config)
    blocks = interleave.plan(options.users, options.order, options.seed)
    if options.report is not None and not options.report.parent.is_dir():
        raise ConfigError(f"--report {options.report}: no such folder")
    if any(option.partition("=")[0] == "--url" for option in options.load):
        raise ConfigError("--url: `ab` starts the servers itself")
    # a wrong load option shows before the first server starts
    for arm in arms.values():
        users = f"--users={min(options.users)}"
        check_options(parse(["run", "--url=127.0.0.1:1", users, *options.load, *arm.load_options]))

    def begin(number: int, block: interleave.Block) -> None:
        console.rule(f"{number + 1} of {len(blocks)}: {block.arm}, {block.users} users", style="")

    reports = interleave.run_blocks(blocks, arms, options.config, options.load, begin)
    compared = interleave.compare(blocks, reports)
    if options.report is not None:
        interleave.write(options.report, arms, blocks, compared, reports, options.load)
    for line in interleave.heading(arms, options.load):
        console.print(line, markup=False)
    for users, figures in compared.items():
        table = Table(title=f"{users} users")
        for title in ("", "A", "B", "B / A", "pairs"):
            table.add_column(title, justify="right" if title else "left")
        for path, one in figures.items():
            pairs = ", ".join(f"{ratio:.2f}" for ratio in one["ratios"])
            table.add_row(
                path, _shown(one["a_mean"]), _shown(one["b_mean"]), _shown(one["ratio"]), pairs
            )
        console.print(table)
    return 0


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
