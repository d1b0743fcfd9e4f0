"""The camera of one session: from the frames that come to those that are looked at.

Owns the frames on their way: one in the gate (in a worker thread), one waiting for it (the newest, which replaces an older one), the newest
one that the gate passed over, and the bytes of the last few that were taken. The session's core is told of taken frames by number,
fetches the bytes of those that it wants looked at, and says when they may go.

Invariants: nothing is decoded or compared on the loop. No frame is taken that was captured before one already in the gate. Every frame
comes to one end, counted under one reason: those that the core fetched as what they were taken for; those that were taken and
not fetched are the core's to count. Nothing is fed after `close`. A change that came too soon is taken when the rate allows, if it is still
there, though no later frame comes. After each look the worker is left alone for `REST` times as long as that took, its wait for the
thread included: frames that are dear, or a machine that is busy, cost frames and not more.

Instants are nanoseconds of the session's clock, positions samples of its input time line. All calls on the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from session_server.core import events
from session_server.observability.catalogue import FrameReason
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock, DeadlineTimer, Loop
from session_server.transports.base import VideoFrame
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S
from session_server.types.errors import BadPicture, TooLarge
from session_server.video.frame_gate import FrameGate, FrameVerdict
from session_server.video.picture_limits import LumaGrid

MOST_TAKEN = 4
"""Taken frames whose bytes are kept: one being looked at, one waiting, and two for a core that is behind."""
ALIKE_NS = 200 * NS_PER_MS
"""The core is told no more often that the picture is still the same."""
REST = 2

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")


class RunInThread(Protocol):
    """Does `work` in a worker thread, and calls `done` on the loop with what it returned or raised."""

    def __call__(
        self, work: Callable[[], _Found], done: Callable[[_Found | BaseException], None], /
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Came:
    frame: VideoFrame
    captured_ns: int
    at_sample: int


@dataclass(frozen=True, slots=True)
class _Judged:
    """`data`: of a frame that is taken."""

    came: _Came
    grid: LumaGrid
    verdict: FrameVerdict
    data: bytes | None


@dataclass(slots=True)
class _Taken:
    reason: FrameVerdict
    data: bytes
    fetched: bool = False


class FrameIntake:
    """Frames in, `FrameTaken`, `FrameAlike` and `FrameCame` out by `feed`. `input_end`: how long the input time line is. `numbers`: of taken
    frames, growing over all cameras that one core gets to know. `on_bad`: a frame could not be looked at; the text follows the name of
    the field."""

    on_bad: Callable[[str], None]

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        feed: Callable[[events.Event], None],
        input_end: Callable[[], int],
        run: RunInThread,
        max_fps: float,
        numbers: Iterator[int],
        *,
        loop: Loop | None = None,
    ) -> None:
        self.on_bad = lambda _: None
        self._clock = clock
        self._metrics = metrics
        self._feed = feed
        self._input_end = input_end
        self._run = run
        self._timer = DeadlineTimer(loop or asyncio.get_running_loop(), clock, self._ring)
        self._gate = FrameGate()
        self._epoch = 0
        """Grows when all frames on their way are given up."""
        self._closed = False
        self._waiting: _Came | None = None
        self._busy = False
        self._in_gate: _Came | None = None
        """None: the worker is not busy, or with a frame that has come to its end already, or with `_passed` once more."""
        self._began_ns = 0
        self._rested_ns = 0
        self._passed: _Judged | None = None
        """The newest frame that the gate saw, if that was not taken."""
        self._newest_ns: int | None = None
        self._wanted = False
        self._hurries = False
        """The next frame need not wait for the worker to have rested. One only: there may be nothing but bad ones."""
        self._gap_ns = round(NS_PER_S / max_fps)
        self._room_ns = 0
        """When the rate has room for another frame."""
        self._taken_ns: int | None = None
        self._numbers = numbers
        self._number = 0
        self._taken: dict[int, _Taken] = {}
        self._alike: _Came | None = None
        self._told_ns: int | None = None

    # -- frames

    def on_frame(self, frame: VideoFrame, captured_ns: int, at_sample: int | None = None) -> None:
        """`at_sample` None: where the input time line was at `captured_ns`. A frame of the future was taken now."""
        now = self._clock.now()
        captured_ns = min(captured_ns, now)
        if self._closed or (self._newest_ns is not None and captured_ns < self._newest_ns):
            self._count(FrameReason.STALE)
            return
        self._newest_ns = captured_ns
        if at_sample is None:
            at_sample = max(0, self._input_end() - (now - captured_ns) * INPUT_RATE // NS_PER_S)
        if self._waiting is not None:
            self._count(FrameReason.REPLACED)
        self._waiting = _Came(frame, captured_ns, at_sample)
        self._go_on()

    def clear(self, event_id: str | None = None) -> None:
        """The client takes back what it has sent."""
        if self._closed:
            return
        self._give_up()
        self._gate = FrameGate()  # the worker may still be in the old one
        self._feed(events.FramesCleared(event_id))

    def close(self) -> None:
        """The session is over. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._taken and not self._taken[self._number].fetched:
            self._count(FrameReason.STALE)
        self._give_up()
        self._timer.off()

    # -- what the core asks for

    def allow(self, fps: float) -> None:
        """So many frames a second may be taken from here on; above 0. A bucket with room for one token."""
        self._gap_ns = round(NS_PER_S / fps)
        if self._taken_ns is not None:
            self._room_ns = self._taken_ns + self._gap_ns
        self._go_on()

    def want(self) -> None:
        """Take a frame whatever it shows, and whatever the rate: the newest since the last taken one, or else the next."""
        self._wanted = True
        self._hurries = True
        self._go_on()

    def picture(self, frame: int) -> bytes | None:
        """The bytes of a taken frame, to be looked at; None: they are not kept any more."""
        taken = self._taken.get(frame)
        if taken is None:
            return None
        if not taken.fetched:
            taken.fetched = True
            self._count(FrameReason(taken.reason.value))
        return taken.data

    def forget(self, before: int) -> None:
        """Frames with a smaller number are not wanted any more."""
        for number in [number for number in self._taken if number < before]:
            del self._taken[number]

    # -- the worker

    def _go_on(self) -> None:
        """Give the worker what is due."""
        if self._closed:
            return
        if not self._busy:
            now, waiting, passed = self._clock.now(), self._waiting, self._passed
            if waiting is not None and (self._hurries or now >= self._rested_ns):
                self._waiting, self._in_gate = None, waiting
                self._judge(waiting, None, now)
            elif passed is not None and (self._wanted or self._is_due(passed, now)):
                self._judge(passed.came, passed.grid, now)
        self._arm()

    def _judge(self, came: _Came, grid: LumaGrid | None, now: int) -> None:
        self._busy, self._hurries, self._began_ns = True, False, now
        gate, epoch, forced, allowed = self._gate, self._epoch, self._wanted, now >= self._room_ns

        def work() -> _Judged:
            seen = came.frame.luma() if grid is None else grid
            verdict = gate.judge(seen, now, forced=forced, allowed=allowed)
            if not verdict.kept:
                return _Judged(came, seen, verdict, None)
            data = came.frame.encoded()
            gate.keep(seen, now)
            return _Judged(came, seen, verdict, data)

        self._run(work, lambda found: self._judged(epoch, found))

    def _judged(self, epoch: int, found: _Judged | BaseException) -> None:
        self._busy = False
        now = self._clock.now()
        self._rested_ns = max(self._rested_ns, now + REST * (now - self._began_ns))
        if epoch == self._epoch:
            self._end(found)
        self._go_on()

    def _end(self, found: _Judged | BaseException) -> None:
        """The worker is done with a frame, be it a new one or `_passed` once more."""
        is_new, self._in_gate = self._in_gate is not None, None
        if isinstance(found, BaseException):
            if not is_new:
                self._passed = None
            self._refuse(found)
            return
        if is_new and self._passed is not None:
            self._count(FrameReason(self._passed.verdict.value))
        self._passed = None if found.verdict.kept else found
        if found.data is not None:
            self._take(found, found.data)
        elif found.verdict is FrameVerdict.SIMILAR:
            self._alike = found.came
            self._tell_alike()
        elif found.verdict is FrameVerdict.RATE:
            self._alike = None
            self._tell_it_runs(found.came.captured_ns)

    def _refuse(self, fault: BaseException) -> None:
        self._count(
            FrameReason.TOO_LARGE if isinstance(fault, TooLarge) else FrameReason.UNDECODABLE
        )
        if isinstance(fault, BadPicture):
            self.on_bad(str(fault))
            return
        _log.error("a camera frame could not be looked at", exc_info=fault)
        self.on_bad("could not be looked at")

    def _take(self, found: _Judged, data: bytes) -> None:
        reason = FrameVerdict.FORCED if self._wanted else found.verdict
        self._wanted = False
        self._alike = None  # it looked like the one before
        self._taken_ns = self._clock.now()
        self._room_ns = self._taken_ns + self._gap_ns
        self._number = next(self._numbers)
        self._taken[self._number] = _Taken(reason, data)
        self.forget(self._number - MOST_TAKEN + 1)
        came = found.came
        self._feed(events.FrameTaken(self._number, came.at_sample, came.captured_ns, reason.value))

    def _is_due(self, passed: _Judged, now: int) -> bool:
        return passed.verdict is FrameVerdict.RATE and now >= self._due_ns()

    def _due_ns(self) -> int:
        """When a change may be taken."""
        return max(self._room_ns, self._gate.open_at or 0)

    def _give_up(self) -> None:
        """All frames on their way, and those that were taken."""
        self._epoch += 1
        if self._waiting is not None:
            self._count(FrameReason.STALE)
        if self._in_gate is not None:
            self._count(FrameReason.STALE)
        if self._passed is not None:
            self._count(FrameReason(self._passed.verdict.value))
        self._waiting = self._in_gate = self._passed = self._alike = None
        self._wanted = False
        self._taken.clear()

    # -- time

    def _tell_alike(self) -> None:
        """The newest state at once, or when the last one is `ALIKE_NS` old."""
        alike, now = self._alike, self._clock.now()
        if alike is not None and (self._told_ns is None or now - self._told_ns >= ALIKE_NS):
            self._alike, self._told_ns = None, now
            self._feed(events.FrameAlike(alike.captured_ns))

    def _tell_it_runs(self, captured_ns: int) -> None:
        now = self._clock.now()
        if self._told_ns is None or now - self._told_ns >= ALIKE_NS:
            self._told_ns = now
            self._feed(events.FrameCame(captured_ns))

    def _ring(self) -> None:
        self._tell_alike()
        self._go_on()

    def _arm(self) -> None:
        if self._closed:
            return
        dues: list[int] = []
        if self._alike is not None and self._told_ns is not None:
            dues.append(self._told_ns + ALIKE_NS)
        if not self._busy:
            if self._waiting is not None:
                dues.append(self._rested_ns)
            if self._passed is not None and self._passed.verdict is FrameVerdict.RATE:
                dues.append(self._due_ns())
        self._timer.set(min(dues, default=None))

    def _count(self, reason: FrameReason) -> None:
        self._metrics.video_frame(reason.value)
