"""`trace`: a record of real sessions becomes a workload that simulated users play again."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml
from rich.console import Console

from loadgen.recorded import lines_of
from session_server.runtime.simulation.trace import trace_mapping
from session_server.runtime.simulation.trace_of_record import trace_of_record
from session_server.types.errors import ConfigError

_HEAD = """\
# What the users of {source} did: {sessions} sessions, {turns} turns. Lengths and instants only, no words.
# session-loadgen simulate --workload {name} --sessions {sessions} plays it again.
"""


def run(options: argparse.Namespace, console: Console) -> int:
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
