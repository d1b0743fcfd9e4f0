"""`deadline`: least slack first, in tiers, and how many answers may begin in a step.

Starving  first audio overdue by `starve_ns` and more: before everything, so that no answer waits
          for ever
Tier 0    playing with a low buffer: keeps overload from ruining those already served
Tier 1    all that can still be met, least slack first
Tier 2    first audio that cannot be in time any more: it must not make others late. At the talker
          one in a step: many that begin at once when there is room would leave all with a low
          buffer
Tier 3    playing with comfortable slack (longer than any first answer may take)
Below them partial recognitions by due time, then drafts by arrival.

A stage is *behind* when more is ready than a batch holds; then what goes first decides who loses.
* At the talker, where speech begins, as many answers begin as its capacity allows, those in time
  first; only answers with a low buffer go before them, and listeners share what is left, the
  lowest buffer first. As long as hardly anybody is lost and few are late (a passing burst) leads
  may be spent down to `rush_lead_s` and a late answer goes next, one in a step. Once some are, the
  policy chooses which wait: leads stay near `begin_lead_s` (for less, chunks are small and cost the
  vocoder more than it has), late answers wait until listeners are `late_lead_s` ahead, and lost
  ones (2 s late) get what is left over: each that began would make one in time late. So as long as
  there is too much some wait, `starve_s` at most, and all others are whole.
* First audio is in time while its whole way down, by the estimates, is: one that cannot be would
  only make the next one late.
* At the last stage, where work is done already, late first audio goes before comfortable listeners,
  lost answers after them.

The limit of beginnings: enough to use what a talker that is behind can make, not so many that all
run dry. A full step makes `batch` units of speech, so a talker keeps `batch x unit / step time`
listeners as far ahead as they are, some less for those who have yet to get a lead: its capacity.
Leads are what a burst is paid from: the further ahead listeners are of the floor, the more answers
than that may be under way, and when they are below it fewer. The number follows leads smoothly; a
limit that stops all beginnings at once makes every answer late that comes in the seconds until
leads are back. Nothing is counted until two steps in a row have been full.

A larger batch is a longer step for everyone in it. So while anyone is pressed (low buffer, or
awaited with hardly any slack), what can wait (comfortable slack, drafts) gets at most a share of a
batch that is not full; it is served when no answer is pressed.

Slack is `latest_ns - now`; as every item's shrinks at the same rate, the order among them stands
still.

Units: times are nanoseconds.

Source: docs/policies.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from operator import itemgetter

from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.policy import REAL_AGES, Bands, entries
from session_server.scheduler.run import Entry, SortedRun
from session_server.scheduler.work import WorkClass, WorkItem

_WEIGHT = 0.05
_SHARE = 0.95
_SPENT_NS = 5e9
"""In about so many seconds what is ahead of the floor may be spent."""


class Beginnings:
    """Of one talker."""

    __slots__ = ("_full_ns", "_step_ns")

    def __init__(self) -> None:
        self._step_ns = 0.0
        self._full_ns: int | None = None

    def decides(self, now: int, full: bool) -> None:
        """A step is chosen; `full`: from more than it can take."""
        if full and self._full_ns is not None:
            took = now - self._full_ns
            self._step_ns += _WEIGHT * (took - self._step_ns) if self._step_ns else took
        self._full_ns = now if full else None

    def places(self, batch: int, unit_ns: int, under_way: int, lead_ns: int, floor_ns: int) -> int:
        """Answers that may begin now. `under_way`: answers that speech is made of; `lead_ns`: how far ahead listeners are."""
        if not self._step_ns or not unit_ns or not under_way:
            return batch
        most = _SHARE * batch * unit_ns / self._step_ns
        left = most * (1 + (lead_ns - floor_ns) / _SPENT_NS) - under_way
        return int(left) + 1 if left > 0 else 0


_PLAYING, _FINAL, _FIRST, _PARTIAL, _DRAFT = range(5)
_KIND_PLAYING, _KIND_FINAL, _KIND_FIRST, _KIND_PARTIAL = (
    WorkClass.PLAYING, WorkClass.FINAL, WorkClass.FIRST_AUDIO, WorkClass.PARTIAL,
)  # fmt: skip
Group = SortedRun | Iterator[Entry]
_NOBODY = SortedRun()
_LATEST = itemgetter(0)
"""Of an entry of the first three bands."""
_LOST = 3
"""First audio that is overdue by so many times its objective (2 s after the turn for one of 0.5 s) waits longest."""
_RUSH = 1
"""So many lost answers may wait in a rush that passes; more are overload. They stay until it is over, so nothing flutters."""

_LATE_PART = 8
"""For each so many listeners of a talker one late answer may wait in a rush."""


class DeadlinePolicy:
    """`last`: the stage whose results are heard. `entry`: the stage that speech begins at.

    Thresholds come from the parameters: `nearly_dry_s`, `first_audio_s` (comfortable), `pressing_s`, `urgent_share`,
    `starve_s`, `late_rule`, and the leads at which answers begin. First audio has `starve_s` as its bound: it does not age,
    since in overload whoever has waited longest is the one whom it helps least."""

    def __init__(self, params: SchedulerParams, last: bool = False, entry: bool = False) -> None:
        self._nearly_dry_ns = params.pressing_ns // 4 if last else params.nearly_dry_ns
        self._last = last
        self._entry = entry
        self._comfortable_ns = max(params.nearly_dry_ns, params.first_audio_ns)
        self._pressing_ns = params.pressing_ns
        self._share = params.urgent_share
        self._starve_ns = params.starve_ns
        self._tried_ns = min(params.starve_ns, params.first_audio_ns // 2)
        self._limit_ns = min(params.starve_ns, _LOST * params.first_audio_ns + self._tried_ns)
        self._late_rule = params.late_rule
        kept = 3 * params.pressing_ns // 4 if last and params.late_rule else 0
        self._kept_ns = max(self._nearly_dry_ns, kept)
        self._leads_ns = params.rush_lead_ns, params.begin_lead_ns
        self._late_lead_ns = params.late_lead_ns
        crowds = entry and params.late_rule and params.begin_lead_ns > 0
        self._beginnings = Beginnings() if crowds else None
        self.ages = tuple(
            ages and not (kind is WorkClass.FIRST_AUDIO and params.late_rule)
            for kind, ages in zip(WorkClass, REAL_AGES, strict=True)
        )

    def place(self, item: WorkItem) -> tuple[int, int]:
        kind = item.kind
        if kind is _KIND_PLAYING:
            return (_PLAYING, item.latest_ns)
        if kind is _KIND_FIRST:
            return (_FIRST, item.latest_ns)
        if kind is _KIND_FINAL:
            return (_FINAL, item.latest_ns)
        if kind is _KIND_PARTIAL:
            return (_PARTIAL, item.due_ns)
        return (_DRAFT, item.arrived_ns)

    def walk(self, bands: Bands, now: int, room: int, behind: bool) -> Iterator[Iterable[Entry]]:
        if self._beginnings is not None:
            self._beginnings.decides(now, behind)
            if behind:
                yield from self._crowd(self._beginnings, bands, now, room)
                return
        pressed, press = False, now + self._pressing_ns
        keep = self._kept_ns if behind else self._nearly_dry_ns
        nearly_dry, comfortable = now + keep, now + max(keep, self._comfortable_ns)
        starving = now - self._starve_ns
        late_rule = self._late_rule and (behind or not self._last)
        since = starving if not late_rule else now if behind else now - self._tried_ns
        yield _of(bands, _FIRST, None, starving, room)
        dry = _Peeked(_of(bands, _PLAYING, None, nearly_dry, room))
        if dry.first is not None:
            pressed = dry.first[0] < press
            yield dry.all
        in_time = _Peeked(_of(bands, _FIRST, since, None, room))
        if in_time.first is not None:
            pressed = pressed or in_time.first[0] < press
        awaited = _merged(_of(bands, _FINAL, None, None, room), in_time.all, room)
        if self._last:
            yield awaited
            few = late_rule and _count(bands, _FIRST, starving, now - self._limit_ns) <= _RUSH
            if few:
                yield self._late(bands, now, since, room, behind)
            yield _of(bands, _PLAYING, nearly_dry, comfortable, room)
            if late_rule and not few:
                yield self._late(bands, now, since, room, behind)
        else:
            yield _merged(awaited, _of(bands, _PLAYING, nearly_dry, comfortable, room), room)
            if late_rule:
                yield self._late(bands, now, since, room, behind)
        spare = int(room * self._share) if pressed and not behind else room
        relaxed = _of(bands, _PLAYING, comfortable, None, spare)
        if type(relaxed) is SortedRun:
            spare -= len(relaxed)
            yield relaxed
        else:
            for entry in itertools.islice(relaxed, spare):
                spare -= 1
                yield (entry,)
        if late_rule and behind and self._last:
            yield _of(bands, _FIRST, starving, now - self._limit_ns, room)
        yield entries(bands, _PARTIAL)
        yield itertools.islice(entries(bands, _DRAFT), spare)

    def _late(self, bands: Bands, now: int, since: int, room: int, behind: bool) -> Iterable[Entry]:
        """Tier 2. The lost ones are among them, but at a last stage that is behind."""
        limit = now - self._limit_ns
        late: Iterable[Entry] = _of(bands, _FIRST, limit, since, room)
        if not behind or not self._last:
            lost = _of(bands, _FIRST, now - self._starve_ns, limit, room)
            late = itertools.chain(late, lost)
        return itertools.islice(late, 1) if self._entry else late

    def _crowd(
        self, beginnings: Beginnings, bands: Bands, now: int, room: int
    ) -> Iterator[Iterable[Entry]]:
        """At a talker that is behind."""
        starving, lost = now - self._starve_ns, now - self._limit_ns
        listeners = bands.get(_PLAYING)
        late = _count(bands, _FIRST, starving, now)
        overload = (
            _count(bands, _FIRST, starving, lost) > _RUSH
            or late > (len(listeners) if listeners is not None else 0) // _LATE_PART
        )
        dry = now + self._nearly_dry_ns
        yield _of(bands, _FIRST, None, starving, room)
        yield _of(bands, _PLAYING, None, dry, room)
        yield _of(bands, _FINAL, None, None, room)
        places = room
        typical = listeners.middle() if listeners is not None else None
        lead_ns = typical.latest_ns - now if typical is not None else 0
        if listeners is not None and typical is not None:
            places = beginnings.places(
                room, typical.unit_ns, len(listeners), lead_ns, self._leads_ns[overload]
            )
        for entry in itertools.islice(_of(bands, _FIRST, now, None, room), places):
            places -= 1
            yield (entry,)
        if places and (not overload or lead_ns > self._late_lead_ns):
            yield itertools.islice(_of(bands, _FIRST, lost, now, room), 1)
        yield _of(bands, _PLAYING, dry, None, room)
        yield _of(bands, _FIRST, starving, lost, room)
        yield entries(bands, _PARTIAL)
        yield entries(bands, _DRAFT)


def _count(bands: Bands, band: int, low: int, high: int) -> int:
    found = bands.get(band)
    return found.count(low, high) if found is not None else 0


def _of(bands: Bands, band: int, low: int | None, high: int | None, most: int) -> Group:
    """Entries of one kind, least slack first: no more than `most` if they need nothing that others may have taken."""
    found = bands.get(band)
    return found.between(low, high, most) if found is not None else _NOBODY


class _Peeked:
    """A group of which the first one, who has the least slack, has been looked at."""

    __slots__ = ("all", "first")

    def __init__(self, found: Group) -> None:
        self.first: Entry | None
        self.all: Group = found
        if isinstance(found, SortedRun):
            self.first = found[0] if found else None
            return
        self.first = next(found, None)
        if self.first is not None:
            self.all = itertools.chain((self.first,), found)


def _merged(one: Group, other: Group, room: int) -> Group:
    """Both by slack, `one` first where it is equal; `heapq.merge` costs three times as much for two."""
    if isinstance(one, SortedRun) and isinstance(other, SortedRun):
        if one and other:
            return SortedRun(sorted(one + other, key=_LATEST)[:room])
        return one or other
    left_ones, right_ones = iter(one), iter(other)
    left = next(left_ones, None)
    if left is None:
        return right_ones
    right = next(right_ones, None)
    if right is None:
        return itertools.chain((left,), left_ones)
    return _alternating(left, left_ones, right, right_ones)


def _alternating(
    left: Entry | None, one: Iterator[Entry], right: Entry | None, other: Iterator[Entry]
) -> Iterator[Entry]:
    while left is not None and right is not None:
        if left[0] <= right[0]:
            yield left
            left = next(one, None)
        else:
            yield right
            right = next(other, None)
    if left is not None:
        yield left
        yield from one
    elif right is not None:
        yield right
        yield from other
