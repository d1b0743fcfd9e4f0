"""Opens records (`observability.record_file`) for the commands that read them, with a bar for long ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from session_server.types.errors import ConfigError


def _bar(console: Console) -> Progress:
    """Nobody sees a bar that is piped, only its rests."""
    return Progress(console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def lines_of(path: Path, console: Console) -> Iterator[Iterator[bytes]]:
    """The lines of a record. Raises ConfigError naming the file for whatever is wrong with it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file, _bar(console) as bar:
            task = bar.add_task("record", total=max(1, size))

            def lines() -> Iterator[bytes]:
                for line in file:
                    bar.advance(task, len(line))
                    yield line

            yield lines()
    except OSError as fault:
        raise ConfigError(f"record {path}: {fault.strerror}") from fault
    except ConfigError as fault:
        raise ConfigError(f"{path}: {fault}") from fault
