"""What the commands of the laboratory do alike: options become a setting, files are checked before a long run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rich.console import Console

from loadgen import plots
from loadgen.candidates import Setting, parse_sets
from loadgen.sweep import Range
from session_server.types.errors import ConfigError


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
