"""`session-loadgen report`: reports of earlier runs, one by one, beside each other, or as a page with plots."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from loadgen.cli.laboratory import check_folders
from loadgen.lab import report
from loadgen.lab.tables import print_comparison, print_sweep
from session_server.types.errors import ConfigError

Named = list[tuple[str, dict[str, Any]]]


def run(options: argparse.Namespace, console: Console) -> int:
    check_folders(options, "html", "markdown")
    files: list[Path] = options.files
    found = list(zip(_names(files), map(report.read, files), strict=True))
    if options.html is None and options.markdown is None:
        _print(found, console)
        return 0
    from loadgen.lab.report_page import html, page_of, write_markdown

    page = page_of(found)
    if options.html is not None:
        options.html.write_text(html(page))
    if options.markdown is not None:
        write_markdown(page, options.markdown)
    for note in page.notes:
        console.print(note, markup=False)
    return 0


def _names(files: list[Path]) -> list[str]:
    """Short where that is enough to tell them apart. Raises ConfigError for a file that is named twice."""
    short = [path.stem for path in files]
    names = short if len(set(short)) == len(short) else [str(path) for path in files]
    if len(set(names)) < len(names):
        raise ConfigError("a report is named twice")
    return names


def _print(found: Named, console: Console) -> None:
    runs = [(name, one) for name, one in found if "kind" not in one]
    if len(runs) == 2:
        report.print_comparison(runs[0], runs[1], console)
    elif len(runs) > 2:
        raise ConfigError("more than two runs make a page: use --html or --markdown")
    else:
        for _, one in runs:
            simulated = one.get("measurement_origin") == "simulation"
            (report.print_simulation if simulated else report.print_report)(one, console)
    for _, one in found:
        if one.get("kind") == "sweep":
            print_sweep(one, console)
        elif one.get("kind") == "compare":
            print_comparison(one, console)
