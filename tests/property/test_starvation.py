"""No policy lets anybody starve: whoever stays ready is served within a bound, whatever else arrives. It is a number of
decisions; for first audio under `deadline` it is a time, `starve_s` after it was due."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.scheduler.policies import make_policy
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import WorkClass, WorkItem

pytestmark = pytest.mark.property

MS = 1_000_000
EVERY = 64
"""A decision of so many begins with whoever has been ready longest."""
STEP_MS = 20
REAL = (WorkClass.FINAL, WorkClass.FIRST_AUDIO, WorkClass.PLAYING)


def work(name: str, kind: WorkClass, now: int, due_ms: int) -> WorkItem:
    at = now + due_ms * MS
    return WorkItem((name, "r", 0), kind, now, at, at, at, started=True)


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(PolicyName),
    last=st.booleans(),
    entry=st.booleans(),
    batch=st.integers(1, 3),
    kind=st.sampled_from(REAL),
    due_ms=st.integers(-60_000, 20_000),
    rivals=st.lists(
        st.tuples(st.sampled_from(REAL), st.integers(-1_900, 5_000)), min_size=4, max_size=6
    ),
)
def test_whoever_stays_ready_is_served_within_a_bound(
    policy, last, entry, batch, kind, due_ms, rivals
):
    """The rivals come back after each step with the same urgency, as listeners do who stay nearly dry."""
    params = SchedulerParams(policy=policy, starve_s=2.0)
    stage = StageQueue(make_policy(params, last, entry), batch)
    now = 0
    for i, (other, ms) in enumerate(rivals):
        stage.put(work(f"r{i}", other, now, ms), now)
    stage.put(work("patient", kind, now, due_ms), now)
    bound = EVERY * (len(rivals) + 1)
    if policy is PolicyName.DEADLINE and kind is WorkClass.FIRST_AUDIO:
        bound += max(0, due_ms + 2000) // STEP_MS
    for _ in range(bound):
        chosen = stage.choose(now)
        if any(choice.item.key[0] == "patient" for choice in chosen):
            return
        now += STEP_MS * MS
        for choice in chosen:
            number = int(choice.item.key[0][1:])
            stage.put(work(f"r{number}", *_as(rivals[number], now)), now)
    pytest.fail("never served")


def _as(rival: tuple[WorkClass, int], now: int) -> tuple[WorkClass, int, int]:
    return rival[0], now, rival[1]
