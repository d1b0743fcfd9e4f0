"""What one scheduling decision costs: `python -m loadgen.lab.decision_cost`.

A queue of so many sessions' work, most of it playing; a decision chooses a batch, and each item of it comes back with a
new urgency, as after a step. Times are this process's CPU time, the least of several rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policies import make_policy
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import WorkClass, WorkItem
from session_server.types.audio import NS_PER_MS

_ROUNDS = 5
_DECISIONS = 400
_STEP_NS = 20 * NS_PER_MS


def _item(number: int, kind: WorkClass, now: int, lead_ns: int) -> WorkItem:
    at = now + lead_ns
    return WorkItem((f"s{number}", "r", 0), kind, now, at, at, at, started=True)


def decision_us(
    policy: PolicyName, sessions: int, batch: int, seed: int = 0
) -> tuple[float, float]:
    """(choosing alone, choosing and putting the batch back), microseconds of CPU a decision."""
    best = (float("inf"), float("inf"))
    for round_ in range(_ROUNDS):
        rng = random.Random(f"{seed}/{round_}")
        queue = StageQueue(make_policy(SchedulerParams(policy=policy)), batch, nearly_dry_ns=0)
        now = 0
        for number in range(sessions):
            kind = WorkClass.FIRST_AUDIO if number % 20 == 0 else WorkClass.PLAYING
            queue.put(_item(number, kind, now, rng.randrange(2000) * NS_PER_MS), now)
        choosing = putting = 0
        for _ in range(_DECISIONS):
            now += _STEP_NS
            begun = time.process_time_ns()
            choices = queue.choose(now)
            chosen = time.process_time_ns()
            later = [
                _item(int(c.item.key[0][1:]), c.item.kind, now, 2000 * NS_PER_MS) for c in choices
            ]
            ready = time.process_time_ns()
            for item in later:
                queue.put(item, now)
            putting += time.process_time_ns() - ready
            choosing += chosen - begun
        alone = choosing / _DECISIONS / 1000
        best = min(best, (alone, alone + putting / _DECISIONS / 1000))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--sessions", type=int, default=1000)
    args = parser.parse_args()
    out = sys.stdout
    out.write("| policy | batch | choose, us | choose and put back, us |\n|---|---|---|---|\n")
    for policy in PolicyName:
        for batch in (1, 8, 32):
            alone, whole = decision_us(policy, args.sessions, batch)
            out.write(f"| {policy.value} | {batch} | {alone:.1f} | {whole:.1f} |\n")


if __name__ == "__main__":
    main()
