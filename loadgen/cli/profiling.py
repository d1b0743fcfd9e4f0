"""`profile`: measure the engines of a configuration, one step at a time, and write what simulations of them need.

With `--served` (and no measuring) a profile learns from a real run what open sessions cost its stages.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from loadgen.lab.engine_profile import EngineProfile, measure_engines, per_session
from loadgen.lab.report import read as read_report
from loadgen.workloads import find_workload
from session_server.config import load
from session_server.simulation.host_setup import find_profile
from session_server.types.errors import ConfigError


def run(options: argparse.Namespace, console: Console) -> int:
    target: Path = options.output
    if not target.parent.is_dir() or target.is_dir():
        raise ConfigError(f"--output {target}: no such folder, or no file")
    if options.served is not None:
        return _learn(options, console)
    config = load(options.config, os.environ).config
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), console=console,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=1.0)
        profile = measure_engines(
            config,
            options.name or target.stem,
            options.repeats,
            options.time,
            progress=lambda what, share: bar.update(task, description=what, completed=share),
        )
    target.write_text(profile.to_yaml())
    _show(profile, console)
    console.print(f"written to {target}", markup=False)
    return 0


def _learn(options: argparse.Namespace, console: Console) -> int:
    if options.base is None or options.workload is None:
        raise ConfigError("--served goes with --base PROFILE and --workload TRACE")
    base = find_profile(str(options.base))
    report = read_report(options.served)
    found = per_session(report, find_workload(str(options.workload)).workload, base)
    text = options.base.read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    content = yaml.safe_load(text)
    for stage, slower in found.items():
        content["stages"][stage]["per_session"] = slower
        console.print(f"{stage:8} +{slower:.1%} for every open session", markup=False)
    head.append(
        f"# per_session: mean steps of a real run of {report['users']} users ({report['turns']} turns, load generator on the"
        " same machine) over those of its simulation."
    )
    body = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=120)
    options.output.write_text("\n".join([*head, body]))
    console.print(f"written to {options.output}", markup=False)
    return 0


def _show(profile: EngineProfile, console: Console) -> None:
    for stage, error in profile.residuals.items():
        entry = profile.content["stages"][stage]
        costs = {key: entry[key] for key in ("linear", "step_ms", "prefill") if key in entry}
        console.print(f"{stage:8} {costs}, fit off by {error:.1%} in the median", markup=False)
    sharing = profile.content["devices"]["cpu"]["sharing"]
    console.print(f"two stages at once run at {sharing:.2f} of their speed", markup=False)
