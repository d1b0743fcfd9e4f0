"""Which session's tokens lie in which slot, and whose turn it is to give way.

Bookkeeping only: no model, no memory. Invariants: a job holds exactly one slot; a slot with a job is never taken from
it; a slot without one keeps its tokens for its session until another needs it (least recently used first).
`tokens` are those whose keys and values are in the slot, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engines.base import JobKey, NoCapacity

_WORTH_COPYING = 16
"""Tokens that another slot of the session must know more of, to be copied from."""


@dataclass(slots=True)
class Slot:
    """One slot's contents. `used`: when it was last claimed or released, as a count."""

    index: int
    session: str | None = None
    job: JobKey | None = None
    tokens: list[int] = field(default_factory=list)
    used: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A slot for a job. Its first `known` tokens are the prompt's, once they have been copied from
    `copy_from` (None: they are there already)."""

    slot: Slot
    known: int
    copy_from: Slot | None = None


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading items `a` and `b` share."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


class SlotTable:
    """The slots of one model."""

    def __init__(self, count: int) -> None:
        self.slots = [Slot(index) for index in range(count)]
        self._clock = 0

    def claim(self, key: JobKey, prompt: Sequence[int]) -> Claim:
        """A slot for the job `key`. Raises NoCapacity when every slot has a job."""
        own = [slot for slot in self.slots if slot.session == key.session and slot.tokens]
        shared = {slot.index: common_prefix(slot.tokens, prompt) for slot in own}
        best = max(own, key=lambda slot: (shared[slot.index], slot.used), default=None)
        idle = [slot for slot in own if slot.job is None]
        target = max(idle, key=lambda slot: (shared[slot.index], slot.used), default=None)
        here = shared[target.index] if target is not None else 0
        if target is None:
            target = self._give_way()
        source = None
        if best is not None and shared[best.index] - here >= _WORTH_COPYING:
            source, here = best, shared[best.index]
        self._clock += 1
        target.session, target.job, target.used = key.session, key, self._clock
        target.tokens = list(prompt[:here])
        return Claim(target, here, source)

    def place(self, session: str) -> Slot:
        """An empty slot that belongs to `session` without a job, for a state that comes from outside."""
        self.forget(session)
        slot = self._give_way()
        self._clock += 1
        slot.session, slot.tokens, slot.used = session, [], self._clock
        return slot

    def find(self, session: str) -> Slot | None:
        """The slot of the session that was used last."""
        own = [slot for slot in self.slots if slot.session == session and slot.tokens]
        return max(own, key=lambda slot: slot.used, default=None)

    def release(self, slot: Slot) -> None:
        """The slot's job is over; its tokens stay."""
        self._clock += 1
        slot.job, slot.used = None, self._clock

    def forget(self, session: str) -> None:
        """Empty the session's slots that have no job."""
        for slot in self.slots:
            if slot.session == session and slot.job is None:
                self._empty(slot)

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        jobs = [slot.job for slot in self.slots if slot.job is not None]
        assert len(jobs) == len(set(jobs)), "a job holds two slots"
        for slot in self.slots:
            assert slot.job is None or slot.job.session == slot.session, "a job in a foreign slot"
            assert slot.session is not None or not slot.tokens, "tokens that nobody owns"

    def _give_way(self) -> Slot:
        """A slot for a newcomer: an empty one, else a session's second, else the one idle longest."""
        idle = [slot for slot in self.slots if slot.job is None]
        if not idle:
            raise NoCapacity("every slot has a job")
        slot = min(idle, key=lambda s: (bool(s.tokens), not self._is_spare(s), s.used, s.index))
        self._empty(slot)
        return slot

    def _is_spare(self, slot: Slot) -> bool:
        return any(
            other.session == slot.session and other.used > slot.used
            for other in self.slots
            if other is not slot and slot.tokens
        )

    @staticmethod
    def _empty(slot: Slot) -> None:
        slot.session = slot.job = None
        slot.tokens = []
        slot.used = 0


def runs(active: Sequence[int], cheapest_gap: int = 2) -> list[list[int]]:
    """`active` slot numbers (ascending) grouped for batches over neighbouring slots. A gap of idle rows is
    carried along when that costs less than a call of its own (a row costs about a third of a call)."""
    groups: list[list[int]] = []
    for slot in active:
        if groups and slot - groups[-1][-1] - 1 <= cheapest_gap:
            groups[-1].append(slot)
        else:
            groups.append([slot])
    return groups
