"""Printing for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from session_server.client.models import FetchPhase

_NOT_A_TERMINAL = 10_000
"""Columns where nobody looks at a screen: a file or a pipe gets whole lines."""


def made_console() -> Console:
    """A console on stdout that breaks lines only where a screen needs it. No emoji: `:AB:` of a fingerprint is none."""
    width = None if sys.stdout.isatty() else _NOT_A_TERMINAL
    return Console(highlight=False, soft_wrap=True, width=width, emoji=False)


console = made_console()

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
    """A table; names (the first column) stay whole, the others take the room that is left."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    made.show_header = any(headings)
    for k, heading in enumerate(headings):
        made.add_column(heading, overflow="fold", no_wrap=k == 0)
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    if sys.stdout.isatty():
        console.print(made)
        return
    with console.capture() as held:
        console.print(made)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in held.get().splitlines())


class FetchBars:
    """Progress of `models fetch`: a bar for each package and graph."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, TaskID] = {}

    def __call__(self, name: str, done_bytes: int, total_bytes: int, phase: FetchPhase) -> None:
        bar = self._bars.get(name)
        if bar is None:
            bar = self._bars[name] = self._progress.add_task(
                name, total=None, phase="", sized=False
            )
        ready = phase is FetchPhase.READY
        sized = total_bytes > 0 and not (ready and done_bytes == 0)
        self._progress.update(
            bar,
            phase=phase.value,
            sized=sized,
            total=(total_bytes or 1) if ready else (total_bytes or None),
            completed=(total_bytes or 1) if ready else done_bytes,
        )


class _Sized(ProgressColumn):
    """Another column, where there are bytes to speak of: a graph that is built has none. `moving`: and only
    while they come."""

    def __init__(self, column: ProgressColumn, *, moving: bool = False) -> None:
        super().__init__()
        self._column = column
        self._moving = moving

    def render(self, task: Task) -> RenderableType:
        if not task.fields["sized"] or (self._moving and task.speed is None):
            return ""
        return self._column.render(task)


@contextmanager
def fetch_bars() -> Iterator[FetchBars]:
    """Bars while the block lasts; on stderr, so that stdout stays for results."""
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[phase]:<12}"),
        _Sized(DownloadColumn()),
        _Sized(TransferSpeedColumn(), moving=True),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield FetchBars(progress)
