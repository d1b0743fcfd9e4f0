"""Printing for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from session_server.runtime.models import Phase

console = Console(highlight=False, soft_wrap=True)

_WHO = {"user": "bold cyan", "server": "bold green", "error": "bold red"}


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, default=_plain) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)


def tell(who: str, text: str) -> None:
    """A line of a conversation, or a note about it."""
    style = _WHO.get(who)
    if style is None:
        console.print(f"[dim]{escape(text)}[/dim]")
    else:
        console.print(f"[{style}]{who:>6}[/{style}]  {escape(text)}")


def table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    """A table; the last column takes the room that is left."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    console.print(made)


class FetchBars:
    """Progress of `models fetch`: a bar for each package and graph."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, name: str, done_bytes: int, total_bytes: int, phase: Phase) -> None:
        bar = self._bars.get(name)
        if bar is None:
            bar = self._bars[name] = self._progress.add_task(name, total=None, phase="")
        ready = phase is Phase.READY
        self._progress.update(
            bar,
            phase=phase.value,
            total=(total_bytes or 1) if ready else (total_bytes or None),
            completed=(total_bytes or 1) if ready else done_bytes,
        )


@contextmanager
def fetch_bars() -> Iterator[FetchBars]:
    """Bars while the block lasts; on stderr, so that stdout stays for results."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[phase]:<12}"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield FetchBars(progress)
