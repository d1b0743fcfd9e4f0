"""How far ahead of the listener audio may be made: a cap that follows load and jitter.

Audio made ahead is what a barge-in throws away, so an idle host stays close to the listener: it can refill any lead at
once. A loaded one cannot, and it needs large chunks, which are cheaper a second and ask for as much lead: there the cap
rises to `lead_cap_s`. (Shrinking it under load instead is a trap: less lead, smaller chunks, a vocoder that falls behind,
less lead.) Load is the share of a full batch that waits at a decision of the busiest stage.

Jitter: a chunk that comes with less lead left than the way to the listener takes raises the reserve by a step, one in time
lowers it by a hundredth of that; so about one chunk in a hundred is that late. Bounded: `lead_idle_s`..`lead_cap_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from session_server.media import NS_PER_MS
from session_server.scheduler.params import SchedulerParams

_STEP_NS = 50 * NS_PER_MS
_RARE = 100


class Crowded(Protocol):
    """A stage, or its queue."""

    @property
    def crowd(self) -> float:
        """Work that is ready at a decision, as a share of a full batch."""
        ...


class LeadCap:
    """One for all responses of a host."""

    def __init__(self, params: SchedulerParams, stages: Sequence[Crowded]) -> None:
        self._stages = tuple(stages)
        self._most_ns = params.lead_cap_ns
        self._least_ns = min(params.lead_cap_ns, params.lead_idle_ns)
        self._transport_ns = params.transport_ns
        self.reserve_ns = 0

    @property
    def ns(self) -> int:
        """The cap as it is now."""
        load = 0.0
        for stage in self._stages:
            crowd = stage.crowd
            if crowd > load:
                load = crowd
        most, least = self._most_ns, self._least_ns
        if load >= 1.0:
            return most
        return min(most, least + self.reserve_ns + int((most - least) * load))

    def delivered(self, left_ns: int) -> None:
        """A chunk came when the listener still had `left_ns` to hear."""
        if left_ns < self._transport_ns:
            self.reserve_ns = min(self._most_ns - self._least_ns, self.reserve_ns + _STEP_NS)
        else:
            self.reserve_ns = max(0, self.reserve_ns - _STEP_NS // _RARE)
