"""Flow control: credits of an edge, leases, chunk sizes, and how far audio runs ahead.

The producer at an edge takes a credit before it makes, the consumer gives it back. The server
cannot choose the steps of an engine that schedules itself, so it lends: an answer may be at most
`LEASE` tokens beyond what was taken of it. A lease is renewed when half of it is used up, so that
an answer which may go on never stands still, and not at all while the talker has enough text: then
the engine stops by itself. A draft gets one small lease, until it is adopted. The engine is also
told how soon the next token is wanted, but not where that would change little: engines pay for each
message.

Units: counts are tokens, times nanoseconds.

Chunk sizes say how much audio the next chunk holds, the lead cap how far ahead of the listener
audio may be made. `FIXED` is what today's servers do: one small chunk, then large ones. `LEAD` takes the largest step
of the ladder whose making fits in the slack with one step's margin; the first chunk is the smallest
that lasts until a second can be there. Chunk size decides continuity.

Audio made ahead is what a barge-in throws away, so an idle host stays close to the listener: it can
refill any lead at once. A loaded one cannot, and it needs large chunks, which are cheaper a second
and ask for as much lead: there the lead cap rises to `lead_cap_s`. (Shrinking it under load instead
is a trap: less lead, smaller chunks, a vocoder that falls behind, less lead.) Load is the share of
a full batch that waits at a decision of the busiest stage. A talker that is behind all the time is
near its limit, and there a burst is paid from what listeners have: with `rush_cap_s` the cap is
that far then. Only for the talker, where nothing has been made yet of the waiting work; a slow
vocoder is helped by large chunks, and for those `lead_cap_s` is enough.

Barge-ins: what is wasted is the share of answers that are cut off times the lead. Up to `_USUAL` of
answers the cap stays; when more are cut off it shrinks by the square of that, so that rather less
is wasted. The share is a moving average over some hundred answers.

Jitter: a chunk that comes with less lead left than the way to the listener takes raises the reserve
by a step, one in time lowers it by a hundredth of that; so about one chunk in a hundred is that
late.

Invariants: the lead cap stays within `lead_idle_s`..`rush_cap_s`.

Units: sizes are nanoseconds of audio; steps come from a ladder of seconds.

Source: docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from session_server.scheduler.params import Chunking, PolicyName, SchedulerParams
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem
from session_server.types.audio import NS_PER_MS, NS_PER_S

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


MakingTime = Callable[[int], int]
"""Audio nanoseconds of a chunk -> nanoseconds until it can be at the listener."""


class ChunkSizes:
    """The rule that the parameters chose."""

    def __init__(self, params: SchedulerParams) -> None:
        self._fixed = params.chunking is Chunking.FIXED
        self._ladder = tuple(int(step * NS_PER_S) for step in params.chunk_ladder_s)
        self.longer = False
        """Under overload: half of the margin is given up for a larger chunk, which costs less for each second."""

    @property
    def fixed(self) -> bool:
        return self._fixed

    @property
    def smallest_ns(self) -> int:
        return self._ladder[0]

    def size_ns(
        self, slack_ns: int, first: bool, making: MakingTime, margin_ns: int | None = None
    ) -> int:
        """Audio to put into the next chunk of a response with this slack; `margin_ns`: what is to be left of it, the
        making of the smallest chunk when None."""
        if self._fixed:
            return self._ladder[0] if first else self._ladder[-1]
        if first:
            second = making(self._ladder[0])
            return next((size for size in self._ladder if size >= second), self._ladder[-1])
        margin_ns = making(self._ladder[0]) if margin_ns is None else margin_ns
        left_ns = slack_ns - (margin_ns // 2 if self.longer else margin_ns)
        for size in reversed(self._ladder):
            if making(size) <= left_ns:
                return size
        return self._ladder[0]


_STEP_NS = 50 * NS_PER_MS
_RARE = 100
_USUAL = 0.4
_CUT_WEIGHT = 0.01


class Crowded(Protocol):
    """A stage, or its queue."""

    @property
    def crowd(self) -> float:
        """Work that is ready at a decision, as a share of a full batch."""
        ...


class LeadCap:
    """One for all responses of a host. `talker` is among `stages`, where there is one that makes speech unit by unit."""

    def __init__(
        self, params: SchedulerParams, stages: Sequence[Crowded], talker: Crowded | None = None
    ) -> None:
        self._stages = tuple(stages)
        self._talker = talker
        self._most_ns = params.lead_cap_ns
        self._rush_ns = params.rush_cap_ns
        self._least_ns = min(params.lead_cap_ns, params.lead_idle_ns)
        self._transport_ns = params.transport_ns
        self._cut = _USUAL
        self._share = 1.0
        self.reserve_ns = 0

    @property
    def ns(self) -> int:
        """The cap as it is now."""
        load = 0.0
        for stage in self._stages:
            crowd = stage.crowd
            if crowd > load:
                load = crowd
        least, most = self._least_ns, self._most_ns
        ahead = most
        if load < 1.0:
            ahead = min(most, least + self.reserve_ns + int((most - least) * load))
        if self._talker is not None and self._rush_ns > most:
            filled = min(1.0, self._talker.crowd)
            ahead = max(ahead, least + int((self._rush_ns - least) * filled))
        return ahead if self._share >= 1.0 else max(least, int(ahead * self._share))

    def delivered(self, left_ns: int) -> None:
        """A chunk came when the listener still had `left_ns` to hear."""
        if left_ns < self._transport_ns:
            self.reserve_ns = min(self._most_ns - self._least_ns, self.reserve_ns + _STEP_NS)
        else:
            self.reserve_ns = max(0, self.reserve_ns - _STEP_NS // _RARE)

    def ended(self, cut: bool) -> None:
        """An answer that was heard is over; `cut`: before all of it had been made."""
        self._cut += _CUT_WEIGHT * (cut - self._cut)
        self._share = min(1.0, (_USUAL / self._cut) ** 2)
