"""`profile`: measure the engines of a configuration, one step at a time, and write what simulations of them need."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from session_server.config import load
from session_server.errors import ConfigError
from session_server.runtime.simulation.engine_profile import EngineProfile, measure_engines


def run(options: argparse.Namespace, console: Console) -> int:
    target: Path = options.output
    if not target.parent.is_dir() or target.is_dir():
        raise ConfigError(f"--output {target}: no such folder, or no file")
    config = load(options.config, os.environ).config
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), console=console
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


def _show(profile: EngineProfile, console: Console) -> None:
    for stage, error in profile.residuals.items():
        entry = profile.content["stages"][stage]
        costs = {key: entry[key] for key in ("linear", "step_ms", "prefill") if key in entry}
        console.print(f"{stage:8} {costs}, fit off by {error:.1%} in the median", markup=False)
    sharing = profile.content["devices"]["cpu"]["sharing"]
    console.print(f"two stages at once run at {sharing:.2f} of their speed", markup=False)
