"""Flow control: credits of a bounded edge, and leases of an engine that schedules itself.

The producer at an edge takes a credit before it makes, the consumer gives it back. The server
cannot choose the steps of an engine that schedules itself, so it lends: an answer may be at most
`LEASE` tokens beyond what was taken of it. A lease is renewed when half of it is used up, so that
an answer which may go on never stands still, and not at all while the talker has enough text: then
the engine stops by itself. A draft gets one small lease, until it is adopted. The engine is also
told how soon the next token is wanted, but not where that would change little: engines pay for each
message.

Units: counts are tokens, times nanoseconds.
"""

from __future__ import annotations

from session_server.scheduler.params import PolicyName
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem
from session_server.types.audio import NS_PER_MS

LEASE = 16
DRAFT_LEASE = 16
"""In all, however much of a draft was taken."""
_LEAST_CHANGE_NS = 20 * NS_PER_MS
_CHANGE_SHARE = 4
"""An urgency is said again when it moved by more than one part in so many of the time that was left."""


class Lease:
    """One answer's lease, as the engine was told of it."""

    __slots__ = ("_policy", "granted", "taken", "urgency_ns")

    def __init__(self, policy: PolicyName) -> None:
        self.granted = 0
        self.urgency_ns = FOREVER_NS
        self.taken = 0
        """Tokens that came out."""
        self._policy = policy

    @property
    def used_up(self) -> bool:
        """The engine holds the answer, or soon will."""
        return self.taken >= self.granted

    def offer(self, item: WorkItem, now: int) -> bool:
        """The answer may go on: whether there is something new to say to the engine."""
        draft = item.kind is WorkClass.DRAFT
        most = DRAFT_LEASE if draft else self.taken + LEASE
        urgency_ns = self._urgency_ns(item)
        left = self.granted - self.taken
        longer = most > self.granted and (draft or left <= LEASE // 2)
        if not longer and not self._matters(urgency_ns, now):
            return False
        if longer:
            self.granted = most
        self.urgency_ns = urgency_ns
        return True

    def _urgency_ns(self, item: WorkItem) -> int:
        if item.kind is WorkClass.DRAFT:
            return FOREVER_NS
        return item.arrived_ns if self._policy is PolicyName.FCFS else item.latest_ns

    def _matters(self, urgency_ns: int, now: int) -> bool:
        left = max(0, min(urgency_ns, self.urgency_ns) - now)
        return abs(urgency_ns - self.urgency_ns) > max(_LEAST_CHANGE_NS, left // _CHANGE_SHARE)


class Credits:
    """Invariant: 0 <= `used` <= `capacity`. Taking beyond it, or giving what was not taken, is a bug."""

    __slots__ = ("capacity", "used")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("an edge needs room for at least one unit")
        self.capacity = capacity
        self.used = 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    def take(self, units: int = 1) -> None:
        if units < 0 or self.used + units > self.capacity:
            raise ValueError(f"took {units} of {self.free} free credits")
        self.used += units

    def give(self, units: int = 1) -> None:
        if units < 0 or units > self.used:
            raise ValueError(f"gave back {units} of {self.used} taken credits")
        self.used -= units
