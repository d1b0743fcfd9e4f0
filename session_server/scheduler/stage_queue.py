"""One stage's waiting work, and the decision who is advanced at a free step.

Invariants: at most one item per key; an item that the lead cap holds back sleeps until its instant and costs
nothing meanwhile; a batch holds at most `max_batch` items, needs no more slots than are free, and reads at most
`prefill_batch` prompts. A decision walks only as far as it fills the batch.

No session starves: every `_AGING`-th decision begins with the item that has been ready longest, of those kinds for which the
policy has no bound of its own.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable

from session_server.scheduler.flow_control import ChunkSizes, MakingTime
from session_server.scheduler.policy import Band, Bands, Doors, Policy
from session_server.scheduler.run import Entry, SortedRun
from session_server.scheduler.work import StepChoice, WorkClass, WorkItem, WorkKey

_AGING = 64
_CROWD_WEIGHT = 0.05
_FINAL, _FIRST_AUDIO, _PLAYING, _DRAFT = (
    WorkClass.FINAL,
    WorkClass.FIRST_AUDIO,
    WorkClass.PLAYING,
    WorkClass.DRAFT,
)

_Place = tuple[list[Entry], Entry, bool]
"""Lane, entry, and whether it ages: the policy has no other bound for it."""


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
        self._aging = policy.ages
        self._prefill_batch = prefill_batch
        self._nearly_dry_ns = nearly_dry_ns
        self._chunks = chunks
        self._bands: Bands = {}
        self._doors = Doors()
        self._places: dict[WorkKey, _Place] = {}
        """Those that age stand in the order in which they became ready."""
        self._asleep: dict[WorkKey, WorkItem] = {}
        self._alarms: list[tuple[int, int, WorkKey]] = []
        self._serial = 0
        self._needing_slots = 0
        self._decisions = 0
        self.crowd = 0.0
        """Items that were ready at a decision, as a share of a full batch; a moving average."""

    def __len__(self) -> int:
        return len(self._places) + len(self._asleep)

    def __contains__(self, key: WorkKey) -> bool:
        return key in self._places or key in self._asleep

    def put(self, item: WorkItem, now: int) -> None:
        """Add an item, or give it a new urgency."""
        key = item.key
        place = self._places.get(key)
        if place is not None:
            self._leave(place)
        elif self._asleep:
            self._asleep.pop(key, None)
        if item.not_before_ns <= now:
            self._place(item, place)
            return
        if place is not None:
            del self._places[key]
        self._asleep[key] = item
        self._serial += 1
        heapq.heappush(self._alarms, (item.not_before_ns, self._serial, key))
        if len(self._alarms) > 64 + 4 * len(self._asleep):
            self._forget_old_alarms()

    def remove(self, key: WorkKey) -> WorkItem | None:
        """Take an item out; None when it was not there."""
        place = self._places.pop(key, None)
        if place is None:
            return self._asleep.pop(key, None)
        self._leave(place)
        return place[1][2]

    def get(self, key: WorkKey) -> WorkItem | None:
        if key in self._asleep:
            return self._asleep[key]
        place = self._places.get(key)
        return place[1][2] if place else None

    def turn_waits_for_slot(self) -> bool:
        """An answer that somebody awaits has no slot. To be asked when steps are starved: it looks at every item."""
        places = self._places.values()
        return any(not e[2].started and e[2].kind < WorkClass.PARTIAL for _, e, _ in places)

    def next_wake(self) -> int | None:
        """When the first sleeping item may run."""
        while self._alarms and not self._is_current(self._alarms[0]):
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def choose(
        self, now: int, free_slots: int | None = None, making: MakingTime = _no_time
    ) -> list[StepChoice]:
        """Take out the items of the next step. `free_slots`: starts that the engine has room for."""
        if self._alarms:
            self._wake(now)
        self.starved = False
        ready = len(self._places)
        if not ready:
            return []
        self.crowd += _CROWD_WEIGHT * (ready / self.max_batch - self.crowd)
        batch = _Batch(
            self._doors, self.max_batch, self._prefill_batch, free_slots, self._nearly_dry_ns
        )
        self._decisions += 1
        if self._decisions % _AGING == 0 and (oldest := self._oldest()) is not None:
            batch.fill(((oldest,),), now)
        behind = ready >= self.max_batch
        batch.fill(self._policy.walk(self._bands, now, self.max_batch, behind), now)
        self.starved = batch.short_of_slots and self._needing_slots > 0
        self._needing_slots -= batch.begun
        self._take_out(batch.entries)
        if self._chunks is None:
            return [StepChoice(entry[2], entry[2].units) for entry in batch.entries]
        return [StepChoice(entry[2], self._units(entry[2], now, making)) for entry in batch.entries]

    def _units(self, item: WorkItem, now: int, making: MakingTime) -> int:
        if self._chunks is None or not item.unit_ns:
            return item.units
        size = self._chunks.size_ns(item.slack_ns(now), item.first, making)
        size = min(size, now - item.cap_ns)
        return max(1, min(item.units, size // item.unit_ns))

    def _place(self, item: WorkItem, before: _Place | None = None) -> None:
        """`before`: the place that it has left."""
        band, order = self._policy.place(item)
        self._serial += 1
        entry = (order, self._serial, item)
        found = self._bands.get(band)
        if found is None:
            found = self._bands[band] = Band(self._doors)
        ages = self._aging[item.kind]
        if before is not None and before[2] is not ages:
            if ages:  # only now is it ready, as age goes
                del self._places[item.key]
            ages = True
        self._places[item.key] = (found.add(entry), entry, ages)
        self._needing_slots += not item.started

    def _leave(self, place: _Place) -> None:
        lane, entry, _ = place
        del lane[bisect_left(lane, entry)]
        self._needing_slots -= not entry[2].started

    def _take_out(self, batch: list[Entry]) -> None:
        """As `remove` for each, but for the count of slots; neighbours in a lane leave it together."""
        take = self._places.pop
        lane: list[Entry] = []
        first = last = length = 0
        for entry in batch:
            item = entry[2]
            its_lane = take(item.key)[0]
            if its_lane is lane and last < length and lane[last][2] is item:
                last += 1
                continue
            del lane[first:last]
            lane = its_lane
            first = bisect_left(lane, entry)
            last, length = first + 1, len(lane)
        del lane[first:last]

    def _oldest(self) -> Entry | None:
        """Whoever has been ready longest, of those that age."""
        return next((entry for _, entry, ages in self._places.values() if ages), None)

    def _wake(self, now: int) -> None:
        while (at := self.next_wake()) is not None and at <= now:
            key = heapq.heappop(self._alarms)[2]
            self._place(self._asleep.pop(key))

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
        "_dry",
        "_nearly_dry_ns",
        "_prompts",
        "_room",
        "_short_steps",
        "_slots",
        "begun",
        "entries",
    )

    def __init__(
        self, doors: Doors, room: int, prompts: int, slots: int | None, nearly_dry_ns: int | None
    ) -> None:
        self.entries: list[Entry] = []
        self.begun = 0
        """Of them, those that need a slot."""
        self._doors = doors
        self._room = room
        self._prompts = prompts
        self._slots = slots
        self._nearly_dry_ns = nearly_dry_ns or 0
        self._short_steps = nearly_dry_ns is not None
        self._dry = False
        self._answers_begun = False
        self._close_doors()

    @property
    def short_of_slots(self) -> bool:
        return self._slots == 0

    def fill(self, walk: Iterable[Iterable[Entry]], now: int) -> None:
        """Take what there is room for, in this order. A step with a nearly dry listener carries no draft and begins
        no prompt: it must be short."""
        taken, room = self.entries, self._room
        aged = taken[0] if taken else None
        if len(taken) >= room:
            return
        for group in walk:
            if isinstance(group, SortedRun) and (aged is None or aged not in group):
                self._take_run(group, now)
            else:
                self._take_each(group, None if aged is None else aged[2], now)
            if len(taken) >= room:
                return

    def _take_run(self, run: SortedRun, now: int) -> None:
        """As each of them, which hold their slots."""
        taken = self.entries
        taken += run[: self._room - len(taken)]
        if not self._short_steps or len(taken) >= self._room:
            return
        for _, _, item in run:  # what else may come depends on who is in
            if item.kind is not _PLAYING:
                self._answers_begun = True
            elif self._dry:
                continue
            elif item.latest_ns < now + self._nearly_dry_ns:
                self._shorten()

    def _take_each(self, group: Iterable[Entry], aged: WorkItem | None, now: int) -> None:
        taken, room, short = self.entries, self._room, self._short_steps
        dry_before = now + self._nearly_dry_ns
        take = taken.append
        for entry in group:
            item = entry[2]
            if item is aged:
                continue
            if (not item.started or item.opening) and not self._begin(item, now):
                continue
            if short:
                kind = item.kind
                if kind is _PLAYING:
                    if not self._dry and item.latest_ns < dry_before:
                        self._shorten()
                elif kind is _DRAFT:
                    if self._dry:
                        return
                elif (kind is _FIRST_AUDIO or kind is _FINAL) and not item.opening:
                    self._answers_begun = True
            take(entry)
            if len(taken) >= room:
                return

    def _begin(self, item: WorkItem, now: int) -> bool:
        """Whether this job may take a slot, or read more of its prompt, in this step."""
        if not self._doors.open[Doors.lane(item)]:
            return False
        if self._dry and item.kind is _DRAFT:
            return False
        if item.opening and self._may_wait(item, now):
            return False
        if not item.started:
            self.begun += 1
            if self._slots is not None:
                self._slots -= 1
        self._prompts -= item.opening
        self._close_doors()
        return True

    def _shorten(self) -> None:
        self._dry = True
        self._prompts = 0
        self._close_doors()

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
