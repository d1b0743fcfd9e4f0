"""`replay`: do fresh cores take the decisions again that a record says were taken?

Exit code 0: all of them; 1: not all, and the first other one of each session is named.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from loadgen.recorded import lines_of
from session_server.runtime.simulation.trace_of_record import replay
from session_server.types.audio import NS_PER_S

_SHOWN = 10


def run(options: argparse.Namespace, console: Console) -> int:
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
