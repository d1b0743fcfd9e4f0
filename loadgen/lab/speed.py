"""`python -m loadgen.lab.speed`: what a simulation costs, in CPU time for each session and simulated second.

Runs the same spec with several numbers of sessions on one replica, in turns, and prints the median of each. The cost
must not grow with the sessions: no decision looks at all of them. CPU time of this process, so a busy machine disturbs it
little; compare only figures of one run. Nothing of this enters a report.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from loadgen.lab.simulation import simulate
from session_server.simulation.spec import SimulationSpec

_TARGET_SESSION_SECONDS = 1000 * 600
"""1,000 sessions for 10 minutes."""


def cpu_ms(spec: SimulationSpec) -> float:
    """Milliseconds of CPU for each session and simulated second of one run."""
    before = time.process_time()
    simulate(spec)
    took_s = time.process_time() - before
    return 1000 * took_s / (spec.sessions * spec.seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    progress = Console(stderr=True, highlight=False, emoji=False)
    costs: dict[int, list[float]] = {sessions: [] for sessions in options.sessions}
    for number in range(options.repeats):
        for sessions, found in costs.items():
            found.append(cpu_ms(_spec(options, sessions)))
            progress.print(f"run {number + 1}: {sessions} sessions, {found[-1]:.3f} ms")
    out = Console(highlight=False, emoji=False)
    out.print("sessions  CPU ms a session and second  1,000 sessions x 10 min")
    for sessions, found in costs.items():
        median = statistics.median(found)
        whole_s = median * _TARGET_SESSION_SECONDS / 1000
        out.print(f"{sessions:8d}  {median:27.3f}  {whole_s:19.0f} s")
    return 0


def _spec(options: argparse.Namespace, sessions: int) -> SimulationSpec:
    return SimulationSpec(
        profile=options.profile,
        policy=options.policy,
        chunking=options.chunking,
        sessions=sessions,
        seconds=options.seconds,
        warm_up_s=options.seconds / 4,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadgen.lab.speed", description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=[20, 60, 120])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", default="qwen3-omni-h200")
    parser.add_argument("--policy", default="deadline")
    parser.add_argument("--chunking", default="adaptive")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
