"""`session-loadgen replay` and `trace`: commands that read records of a server's sessions.

Owns the opening of a record (`observability.record_file`), with a bar for a long one. `replay`
feeds it to fresh cores and asks whether they take the decisions again that the record says were
taken. Exit code 0: all of them; 1: not all, and the first other one of each session is named.
`trace` makes of a record of real sessions a workload that simulated users play again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.console import Console
from rich.progress import Progress

from session_server.simulation.trace import trace_mapping
from session_server.simulation.trace_of_record import replay, trace_of_record
from session_server.types.audio import NS_PER_S
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


_SHOWN = 10


def run_replay(options: argparse.Namespace, console: Console) -> int:
    with lines_of(options.file, console) as lines:
        same, differences = replay(lines)

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    say(f"{same} decisions are the same")
    for one in differences[:_SHOWN]:
        say(f"session {one.session}, at {one.at / NS_PER_S:.3f} s: {one}")
    if len(differences) > _SHOWN:
        say(f"... and {len(differences) - _SHOWN} more sessions differ")
    return 1 if differences else 0


_HEAD = """\
# What the users of {source} did: {sessions} sessions, {turns} turns. Lengths and instants only, no words.
# session-loadgen simulate --workload {name} --sessions {sessions} plays it again.
"""


def run_trace(options: argparse.Namespace, console: Console) -> int:
    target: Path | None = options.output
    if target is not None and not target.parent.is_dir():
        raise ConfigError(f"--output {target}: no such folder")
    with lines_of(options.file, console) as lines:
        trace = trace_of_record(lines)
    head = _HEAD.format(
        source=options.file.name,
        sessions=len(trace.sessions),
        turns=trace.turns,
        name=target.name if target is not None else "FILE",
    )
    name = {"name": options.name or options.file.stem}
    text = head + yaml.safe_dump(
        name | trace_mapping(trace), sort_keys=False, default_flow_style=None, width=160
    )
    if target is None:
        print(text, end="")  # noqa: T201 - the product
    else:
        target.write_text(text)
        console.print(
            f"{target}: {len(trace.sessions)} sessions, {trace.turns} turns; play it again with\n"
            f"session-loadgen simulate --workload {target} --sessions {len(trace.sessions)} --warm-up 0",
            markup=False,
            soft_wrap=True,
        )
    return 0
