"""Work items: what a stage could do next, as the scheduler sees it.

A *work item* stands for one job that has input and may be advanced by one step. It is immutable; when its
urgency changes the owner puts a new one in its place. All instants are absolute nanoseconds, so an item's order
among its kind does not change while time passes, and a queue needs no re-sorting.
"""

from __future__ import annotations

import enum

from session_server.types.audio import Value

WorkKey = tuple[str, str, int]
"""(session, response or recognition, part); a JobKey of the engines' contract is one."""

FOREVER_NS = 1 << 61
"""Later than any instant."""


class WorkClass(enum.IntEnum):
    """What waits for an item, most pressing first."""

    FINAL = 0
    """A recognition or judgement that decides a turn; a text answer."""
    FIRST_AUDIO = 1
    """A response of which nothing is audible yet."""
    PLAYING = 2
    """A response that the listener hears."""
    PARTIAL = 3
    """A recognition of an utterance that goes on; may be dropped."""
    DRAFT = 4
    """Speculation: below everything that is audible or awaited."""


class WorkItem(Value, frozen=True):
    """`latest_ns`: when this step must begin for its result to be in time (`slack` is that minus now).
    `due_ns`: when the result is needed at the listener. `dry_ns`: when the listener runs dry (PLAYING).
    `not_before_ns`: the lead cap holds it back until then. `cap_ns`: the instant whose distance to now is the
    audio that may still be made without exceeding the cap.
    `units`: how much input is ready; `unit_ns`: what one unit lasts, 0 where units are not audio.
    `opening`: a prompt that is still being read. `started`: the job already holds its engine state.
    """

    key: WorkKey
    kind: WorkClass
    arrived_ns: int
    due_ns: int
    latest_ns: int
    dry_ns: int = FOREVER_NS
    not_before_ns: int = 0
    cap_ns: int = -FOREVER_NS
    units: int = 1
    unit_ns: int = 0
    first: bool = False
    opening: bool = False
    started: bool = False

    def slack_ns(self, now: int) -> int:
        return self.latest_ns - now


class StepChoice(Value, frozen=True):
    """Advance this item's job by at most `units`."""

    item: WorkItem
    units: int
