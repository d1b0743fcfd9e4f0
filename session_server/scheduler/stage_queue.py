"""One stage's waiting work, and the decision who is advanced at a free step.

Invariants: at most one item per key; an item that the lead cap holds back sleeps until its instant and costs
nothing meanwhile; a batch holds at most `max_batch` items, needs no more slots than are free, and reads at most
`prefill_batch` prompts. A decision walks only as far as it fills the batch.

No session starves: every `_AGING`-th decision begins with the item that has been ready longest, drafts and partial
recognitions apart (they are dropped or adopted instead).
"""

from __future__ import annotations

import heapq

from session_server.scheduler.chunking import ChunkSizes, MakingTime
from session_server.scheduler.policy import Band, Bands, Doors, Policy
from session_server.scheduler.work import Choice, Kind, WorkItem, WorkKey

_AGING = 16


def _no_time(_: int) -> int:
    return 0


class StageQueue:
    """`chunks` sizes audio steps; None: whatever is ready goes in one step.

    `nearly_dry_ns` given: steps are kept short for those who wait. One with a listener whose slack is below it carries
    no draft and begins no prompt; a prompt with time left does not join the tokens of a more urgent answer (those are
    a few short steps, and each would last as long as the prompt's).
    """

    def __init__(
        self,
        policy: Policy,
        max_batch: int,
        *,
        prefill_batch: int = 1,
        nearly_dry_ns: int | None = None,
        chunks: ChunkSizes | None = None,
    ) -> None:
        self.max_batch = max_batch
        self.starved = False
        self._policy = policy
        self._prefill_batch = prefill_batch
        self._nearly_dry_ns = nearly_dry_ns
        self._chunks = chunks
        self._bands: Bands = {}
        self._doors = Doors()
        self._places: dict[WorkKey, tuple[int, int, int, WorkItem]] = {}
        self._asleep: dict[WorkKey, WorkItem] = {}
        self._alarms: list[tuple[int, int, WorkKey]] = []
        self._ages: dict[WorkKey, None] = {}
        self._serial = 0
        self._needing_slots = 0
        self._decisions = 0

    def __len__(self) -> int:
        return len(self._places) + len(self._asleep)

    def __contains__(self, key: WorkKey) -> bool:
        return key in self._places or key in self._asleep

    def put(self, item: WorkItem, now: int) -> None:
        """Add an item, or give it a new urgency."""
        aged = item.key in self._ages
        self._withdraw(item.key)
        if item.not_before_ns > now:
            self._ages.pop(item.key, None)
            self._asleep[item.key] = item
            self._serial += 1
            heapq.heappush(self._alarms, (item.not_before_ns, self._serial, item.key))
            if len(self._alarms) > 64 + 4 * len(self._asleep):
                self._forget_old_alarms()
            return
        self._place(item)
        if not aged and item.kind < Kind.PARTIAL:
            self._ages[item.key] = None

    def remove(self, key: WorkKey) -> WorkItem | None:
        """Take an item out; None when it was not there."""
        self._ages.pop(key, None)
        return self._withdraw(key)

    def get(self, key: WorkKey) -> WorkItem | None:
        if key in self._asleep:
            return self._asleep[key]
        place = self._places.get(key)
        return place[3] if place else None

    def turn_waits_for_slot(self) -> bool:
        """An answer that somebody awaits has no slot. To be asked when steps are starved: it looks at every item."""
        places = self._places.values()
        return any(not item.started and item.kind < Kind.PARTIAL for *_, item in places)

    def next_wake(self) -> int | None:
        """When the first sleeping item may run."""
        while self._alarms and not self._is_current(self._alarms[0]):
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def choose(
        self, now: int, free_slots: int | None = None, making: MakingTime = _no_time
    ) -> list[Choice]:
        """Take out the items of the next step. `free_slots`: starts that the engine has room for."""
        self._wake(now)
        self.starved = False
        if not self._places:
            return []
        batch = _Batch(
            self._doors, self.max_batch, self._prefill_batch, free_slots, self._nearly_dry_ns
        )
        self._decisions += 1
        if self._decisions % _AGING == 0 and self._ages:
            batch.offer(self._places[next(iter(self._ages))][3], now)
        for item in self._policy.walk(self._bands, now, self.max_batch):
            if not batch.offer(item, now) or batch.full:
                break
        self.starved = batch.short_of_slots and self._needing_slots > 0
        for item in batch.items:
            self.remove(item.key)
        return [Choice(item, self._units(item, now, making)) for item in batch.items]

    def _units(self, item: WorkItem, now: int, making: MakingTime) -> int:
        if self._chunks is None or not item.unit_ns:
            return item.units
        size = self._chunks.size_ns(item.slack_ns(now), item.first, making)
        size = min(size, now - item.cap_ns)
        return max(1, min(item.units, size // item.unit_ns))

    def _place(self, item: WorkItem) -> None:
        band, order = self._policy.place(item)
        self._serial += 1
        self._places[item.key] = (band, order, self._serial, item)
        if band not in self._bands:
            self._bands[band] = Band(self._doors)
        self._bands[band].add(order, self._serial, item)
        self._needing_slots += not item.started

    def _withdraw(self, key: WorkKey) -> WorkItem | None:
        asleep = self._asleep.pop(key, None)
        if asleep is not None:
            return asleep
        place = self._places.pop(key, None)
        if place is None:
            return None
        band, order, serial, item = place
        self._bands[band].remove(order, serial, item)
        self._needing_slots -= not item.started
        return item

    def _wake(self, now: int) -> None:
        while (at := self.next_wake()) is not None and at <= now:
            key = heapq.heappop(self._alarms)[2]
            item = self._asleep.pop(key)
            self._place(item)
            if item.kind < Kind.PARTIAL:
                self._ages[key] = None

    def _is_current(self, alarm: tuple[int, int, WorkKey]) -> bool:
        item = self._asleep.get(alarm[2])
        return item is not None and item.not_before_ns == alarm[0]

    def _forget_old_alarms(self) -> None:
        self._alarms = [alarm for alarm in self._alarms if self._is_current(alarm)]
        heapq.heapify(self._alarms)


class _Batch:
    """A step being put together. It closes the doors behind which nothing can be taken any more."""

    __slots__ = (
        "_answers_begun",
        "_doors",
        "_drafts_allowed",
        "_keys",
        "_nearly_dry_ns",
        "_prompts",
        "_room",
        "_short_steps",
        "_slots",
        "items",
    )

    def __init__(
        self, doors: Doors, room: int, prompts: int, slots: int | None, nearly_dry_ns: int | None
    ) -> None:
        self.items: list[WorkItem] = []
        self._keys: set[WorkKey] = set()
        self._doors = doors
        self._room = room
        self._prompts = prompts
        self._slots = slots
        self._nearly_dry_ns = nearly_dry_ns or 0
        self._short_steps = nearly_dry_ns is not None
        self._drafts_allowed = True
        self._answers_begun = False
        self._close_doors()

    @property
    def full(self) -> bool:
        return len(self.items) >= self._room

    @property
    def short_of_slots(self) -> bool:
        return self._slots == 0

    def offer(self, item: WorkItem, now: int) -> bool:
        """Take the item if there is room for it. False: nothing that follows can be taken. A step with a nearly
        dry listener carries no draft and begins no prompt: it must be short."""
        if item.kind is Kind.DRAFT and not self._drafts_allowed:
            return False
        if item.key in self._keys or not self._doors.open[Doors.lane(item)]:
            return True
        if item.opening and self._may_wait(item, now):
            return True
        if item.opening or not item.started:
            if not item.started and self._slots is not None:
                self._slots -= 1
            self._prompts -= item.opening
            self._close_doors()
        if self._short_steps and item.is_nearly_dry(now, self._nearly_dry_ns):
            self._drafts_allowed = False
            self._prompts = 0
            self._close_doors()
        elif item.kind <= Kind.FIRST_AUDIO and not item.opening:
            self._answers_begun = True
        self._keys.add(item.key)
        self.items.append(item)
        return True

    def _may_wait(self, prompt: WorkItem, now: int) -> bool:
        """Whether the step is better without this prompt: a more urgent answer is in it, and there is time."""
        return (
            self._short_steps
            and self._answers_begun
            and prompt.slack_ns(now) >= self._nearly_dry_ns
        )

    def _close_doors(self) -> None:
        slot, prompt = self._slots != 0, self._prompts > 0
        self._doors.open[:] = (True, slot, prompt, slot and prompt)
