"""`session-loadgen report`: reports of earlier runs, one by one or beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from loadgen import report as reports
from session_server.errors import ConfigError


def run(options: argparse.Namespace, console: Console) -> int:
    files: list[Path] = options.files
    if len(files) > 2:
        raise ConfigError("report takes one or two files")
    found = [(str(path), reports.read(path)) for path in files]
    if len(found) == 1:
        reports.print_report(found[0][1], console)
    else:
        reports.print_comparison(found[0], found[1], console)
    return 0
