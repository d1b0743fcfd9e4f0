"""Work items: what a stage could do next, as the scheduler sees it.

A *work item* stands for one job that has input and may be advanced by one step. It is immutable; when its
urgency changes the owner puts a new one in its place. All instants are absolute nanoseconds, so an item's order
among its kind does not change while time passes, and a queue needs no re-sorting.

Urgency is how pressing one response's next step is. Owns the estimate of the instant at which the listener runs dry, as far as the engine host knows.
Between two frontier reports it assumes that playback goes on; a draft and a paused response do not
play. From that, speech made below a stage and time estimates come work items.

`slack = lead + speech already made below this stage - estimated time through this stage and all
below - transport`; before first audio the deadline is the turn's end plus the first-audio
objective.

Units: positions are samples of the response's stream, times and instants nanoseconds.
"""

from __future__ import annotations

import enum

from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.types.audio import NS_PER_S, Value, samples_to_ns

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


class Playhead:
    """Invariant: `dry_ns` is FOREVER_NS while nothing plays (draft, paused, nothing generated)."""

    __slots__ = ("_dry_ns", "audible", "generated", "least_ns", "paused", "played", "rate")

    def __init__(self, rate: int, audible: bool) -> None:
        self.rate = rate
        self.audible = audible
        self.paused = False
        self.generated = 0
        self.played = 0
        self.least_ns = FOREVER_NS
        """The least that a chunk came before the listener ran dry; negative: so much after."""
        self._dry_ns = 0

    def deliver(self, samples: int, now: int) -> None:
        """`samples` more went out; a listener that had run dry begins again now."""
        if self.audible and self.generated and not self.paused:
            self.least_ns = min(self.least_ns, self._dry_ns - now)
        self.generated += samples
        if self.audible:
            self._dry_ns = max(self._dry_ns, now) + samples_to_ns(samples, self.rate)

    def report(self, played: int, rate: int, paused: bool, now: int) -> None:
        """A frontier report: the listener has heard `played` samples of a stream at `rate`."""
        here = played * self.rate // rate if rate else 0
        self.played = min(max(self.played, here), self.generated)
        self.paused = paused
        if self.audible and self.generated:
            self._dry_ns = now + samples_to_ns(self.generated - self.played, self.rate)

    def adopt(self, now: int) -> None:
        """A draft becomes audible: all of it is still to be played."""
        self.audible = True
        self._dry_ns = now + samples_to_ns(self.generated, self.rate)

    @property
    def dry_ns(self) -> int:
        """When the listener runs dry."""
        if not self.audible or self.paused or not self.generated:
            return FOREVER_NS
        return self._dry_ns

    def lead_ns(self, now: int) -> int:
        """Audio generated and not yet played; never negative."""
        if not self.audible or self.paused:
            return (self.generated - self.played) * NS_PER_S // self.rate
        return max(0, self._dry_ns - now) if self.generated else 0


_FINAL, _FIRST_AUDIO, _PLAYING, _DRAFT = (
    WorkClass.FINAL,
    WorkClass.FIRST_AUDIO,
    WorkClass.PLAYING,
    WorkClass.DRAFT,
)


class Step(Value, frozen=True):
    """The step that a stage could do next. `path_ns`: estimated time through this stage and all below;
    `below_ns`: speech already made below it; `room_ns`: what the step will at least add to the lead;
    `ahead_ns`: how far ahead of the listener it may be made (None: up to the lead cap); `by_frames`: speech is made frame by
    frame, so a first chunk is a part of what its job makes."""

    key: WorkKey
    path_ns: int
    below_ns: int = 0
    room_ns: int = 0
    ahead_ns: int | None = None
    by_frames: bool = False
    units: int = 1
    unit_ns: int = 0
    opening: bool = False
    started: bool = False


class ResponseUrgency:
    """One response's urgency. `playhead` is None for a text answer."""

    def __init__(
        self,
        params: SchedulerParams,
        arrived_ns: int,
        turn_end_ns: int | None,
        draft: bool,
        playhead: Playhead | None,
    ) -> None:
        self.playhead = playhead
        self.draft = draft
        self._first_audio_ns = params.first_audio_ns
        self._transport_ns = params.transport_ns
        self._draft_cap_ns = params.draft_cap_ns
        self._lead_cap_ns = params.lead_cap_ns
        self._arrived_ns = arrived_ns
        self._first_ns = int(params.chunk_ladder_s[0] * NS_PER_S)
        self._follows = params.policy is PolicyName.DEADLINE
        self._base_ns = turn_end_ns if turn_end_ns is not None else arrived_ns

    def adopt(self, turn_end_ns: int | None, now: int) -> None:
        """The draft became a real response."""
        self.draft = False
        self._base_ns = turn_end_ns if turn_end_ns is not None else now
        if self.playhead is not None:
            self.playhead.adopt(now)

    @property
    def kind(self) -> WorkClass:
        if self.draft:
            return _DRAFT
        if self.playhead is None:
            return _FINAL
        return _PLAYING if self.playhead.generated else _FIRST_AUDIO

    def item(self, step: Step, now: int) -> WorkItem | None:
        """The work item for `step`; None while it must wait for news (adoption, resume)."""
        kind = self.kind
        playhead = self.playhead
        due, dry, cap = FOREVER_NS, FOREVER_NS, -FOREVER_NS
        if playhead is None:
            if kind is not _DRAFT:
                due = max(self._base_ns + self._first_audio_ns, now)
        elif kind is _DRAFT:
            left = self._draft_cap_ns - playhead.lead_ns(now) - step.below_ns
            if left < step.room_ns:
                return None
            cap = now - left
        elif playhead.paused:
            return None
        elif kind is _FIRST_AUDIO:
            due = self._base_ns + self._first_audio_ns - self._transport_ns
            if step.by_frames and self._follows and step.below_ns >= self._first_ns:
                # the awaited chunk is on its way, however long it takes: this is what follows it
                kind, dry = _PLAYING, max(due, now)
                cap = dry + step.below_ns - self._ahead_ns(step)
                due = dry + step.below_ns
        else:
            dry = playhead.dry_ns
            due = max(dry, now) + step.below_ns - self._transport_ns
            cap = dry + step.below_ns - self._ahead_ns(step)
        return self._work(step, kind, due, dry, cap)

    def _ahead_ns(self, step: Step) -> int:
        return self._lead_cap_ns if step.ahead_ns is None else step.ahead_ns

    def thought(self, step: Step, now: int) -> WorkItem | None:
        """As `item`, for the thinker: its bound is the text ahead of the talker, not audio."""
        if self.playhead is not None and self.playhead.paused:
            return None
        kind, dry, due = self.kind, FOREVER_NS, FOREVER_NS
        if kind is _PLAYING and self.playhead is not None:
            dry = self.playhead.dry_ns
            due = max(dry, now) + step.below_ns - self._transport_ns
        elif kind is not _DRAFT:
            due = self._base_ns + self._first_audio_ns + step.below_ns
            if (
                step.below_ns
            ):  # what is awaited is on its way; the rest of the text is not urgent any more
                kind, dry = _PLAYING, due
        return self._work(step, kind, due, dry, -FOREVER_NS)

    def _work(self, step: Step, kind: WorkClass, due: int, dry: int, cap: int) -> WorkItem:
        latest = due - step.path_ns if due < FOREVER_NS else FOREVER_NS
        return WorkItem(
            step.key,
            kind,
            self._arrived_ns,
            due,
            latest,
            dry,
            cap + step.room_ns,
            cap,
            step.units,
            step.unit_ns,
            first=kind is _FIRST_AUDIO,
            opening=step.opening,
            started=step.started,
        )
