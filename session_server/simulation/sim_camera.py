"""A simulated user's camera, from the lens to the core: the counterpart of `session.camera`.

Frames come at the camera's rate, but only those are looked at that can matter to the core: taken ones, and five a second that look
like the last taken one. What the scene does is a kind's: it changes now and then, always, or never. Rules as the real gate's: a
frame is taken if it differs from the last taken one, no sooner than the rate allows, and after `HEARTBEAT_NS` in any case; a wanted
one is taken whatever it shows. Frames that were not taken are counted without being made; taken ones when the core fetches them:
those that it does not fetch it counts itself. Instants are nanoseconds of the virtual clock.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from engines.sim.scripted_stages import picture_of
from session_server.core.events import Event, FrameAlike, FrameTaken
from session_server.simulation.spec import CameraUse
from session_server.simulation.virtual_loop import Alarm, VirtualLoop
from session_server.types.audio import NS_PER_MS, NS_PER_S

HEARTBEAT_NS = 5 * NS_PER_S
LEAST_GAP_NS = NS_PER_S // 4
ALIKE_NS = NS_PER_S // 5
MOST_KEPT = 4

CHANGES_PER_S = {"static": 0.0, "object": 2 / 12, "drift": 11 / 20, "screen": 1.0}
"""From the films of `loadgen.camera`; a drift of 0.15 fires the gate 11 times in 20 s beside its heartbeats. Kinds that are not here
move all the time."""


def _integers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class CameraRecords:
    """Of all cameras of one replica, from the start of the run. `frames`: each once, by what became of it; `ages_ms`: of the evidence of each answer; `without`: answers that were told of no current picture;
    `looks_ns`: from asking for a look to what was seen; `most_kept`: pictures held at once."""

    frames: Counter[str] = field(default_factory=Counter)
    ages_ms: array[int] = field(default_factory=_integers)
    without: int = 0
    looks_ns: array[int] = field(default_factory=_integers)
    failed_looks: Counter[str] = field(default_factory=Counter)
    most_kept: int = 0


@dataclass(slots=True)
class _Kept:
    picture: bytes
    reason: str
    fetched: bool = False


class SimCamera:
    """One camera, which films until it is stopped. `position`: of an instant on the input time line; `delay_ns`: from the lens to
    the server."""

    def __init__(
        self,
        session: str,
        use: CameraUse,
        loop: VirtualLoop,
        feed: Callable[[Event], None],
        position: Callable[[int], int],
        delay_ns: int,
        rng: random.Random,
        records: CameraRecords,
    ) -> None:
        self._session = session
        self._loop = loop
        self._feed = feed
        self._position = position
        self._delay_ns = delay_ns
        self._rng = rng
        self._records = records
        self._period_ns = int(NS_PER_S / use.fps)
        self._origin = loop.time + int(rng.random() * self._period_ns)
        self._rate = CHANGES_PER_S.get(use.kind, -1.0)
        self._gap_ns = NS_PER_S
        self._frame = -1
        """Of those on the camera's grid, the last one that was counted."""
        self._scene = self._taken_scene = 0
        self._change_at = self._next_change(self._origin)
        self._taken = 0
        self._taken_at: int | None = None
        self._told_at = 0
        self._wanted = False
        self._kept: dict[int, _Kept] = {}
        self._alarm: Alarm | None = None
        self._stopped = False
        self._wake(self._origin)

    # -- what the core wants

    def allow(self, fps: float) -> None:
        self._gap_ns = max(LEAST_GAP_NS, int(NS_PER_S / fps))
        self._look_ahead(self._loop.time)

    def want(self) -> None:
        """The newest frame that came since the last taken one, or the next."""
        self._wanted = True
        newest = (self._loop.time - self._delay_ns - self._origin) // self._period_ns
        if newest >= 0 and self._at(newest) > (-1 if self._taken_at is None else self._taken_at):
            self._loop.post(self._loop.time, self._look)
        else:
            self._wake(self._at(newest + 1))

    def picture(self, frame: int) -> bytes | None:
        """To be looked at; None: it is not kept any more."""
        kept = self._kept.get(frame)
        if kept is None:
            return None
        if not kept.fetched:
            kept.fetched = True
            self._records.frames[kept.reason] += 1
        return kept.picture

    def forget(self, before: int) -> None:
        for frame in [one for one in self._kept if one < before]:
            del self._kept[frame]

    def stop(self) -> None:
        self._stopped = True
        if self._kept and not self._kept[self._taken].fetched:
            self._records.frames["stale"] += 1
        self._kept.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    # -- frames

    def _at(self, frame: int) -> int:
        """When it is taken by the lens."""
        return self._origin + frame * self._period_ns

    def _wake(self, captured: int) -> None:
        """Look at the first frame from `captured` on, when it has arrived, if nothing is looked at sooner."""
        frame = max(0, -((self._origin - captured) // self._period_ns))
        arrives = self._at(frame) + self._delay_ns
        if self._alarm is not None:
            if (
                not self._alarm.off
                and self._alarm.at <= arrives
                and self._alarm.at > self._loop.time
            ):
                return
            self._alarm.cancel()
        self._alarm = self._loop.at(arrives, self._look)

    def _look(self) -> None:
        """The newest frame has arrived; those before it looked like what was known."""
        if self._stopped:
            return
        now = self._loop.time
        frame = (now - self._delay_ns - self._origin) // self._period_ns
        if frame < 0:
            self._wake(self._origin)
            return
        captured = self._at(frame)
        differs = self._differs(captured)
        passed = frame - self._frame - 1
        if passed > 0:
            self._records.frames["rate" if differs else "gate"] += passed
        fresh = frame > self._frame
        self._frame = max(frame, self._frame)
        reason = self._reason(captured, differs)
        if reason is not None:
            self._take(captured, reason)
        elif fresh:
            self._records.frames["rate" if differs else "gate"] += 1
            if not differs and captured - self._told_at >= ALIKE_NS:
                self._told_at = captured
                self._feed(FrameAlike(captured))
        self._look_ahead(captured)

    def _differs(self, captured: int) -> bool:
        if self._rate < 0:
            return self._taken_at is None or captured > self._taken_at
        while self._change_at <= captured:
            self._scene += 1
            self._change_at = self._next_change(self._change_at)
        return self._scene != self._taken_scene

    def _reason(self, captured: int, differs: bool) -> str | None:
        taken_at = self._taken_at
        if taken_at is None:
            return "change"
        if captured <= taken_at:
            return None
        if self._wanted:
            return "forced"
        if differs and captured - taken_at >= self._gap_ns:
            return "change"
        return "heartbeat" if captured - taken_at >= HEARTBEAT_NS else None

    def _take(self, captured: int, reason: str) -> None:
        self._taken += 1
        self._taken_at = self._told_at = captured
        if self._rate < 0:
            self._scene += 1
        self._taken_scene = self._scene
        self._wanted = False
        if len(self._kept) >= MOST_KEPT:
            del self._kept[min(self._kept)]
        picture = picture_of(self._scene, self._taken, self._session)
        self._kept[self._taken] = _Kept(picture, reason)
        self._records.most_kept = max(self._records.most_kept, len(self._kept))
        sample = max(0, self._position(captured))
        self._feed(FrameTaken(self._taken, sample, captured, reason))

    def _look_ahead(self, captured: int) -> None:
        """The next frame that can matter."""
        if self._stopped or self._taken_at is None:
            return
        allowed = self._taken_at + self._gap_ns
        waits_for_rate = self._rate < 0 or self._scene != self._taken_scene
        if self._wanted:
            due = captured + 1
        elif waits_for_rate:
            due = max(captured + 1, allowed)
        else:
            due = min(self._change_at, self._told_at + ALIKE_NS, self._taken_at + HEARTBEAT_NS)
        self._wake(max(due, captured + 1))

    def _next_change(self, after: int) -> int:
        """Exponentially apart, `_rate` a second."""
        if self._rate <= 0:
            return 1 << 62
        return after + int(self._rng.expovariate(self._rate) * NS_PER_S) + NS_PER_MS
