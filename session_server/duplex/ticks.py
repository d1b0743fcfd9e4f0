"""Ticks of a duplex model: the grid of their instants, and a user's audio cut into frames.

The model takes a frame each tick, whether there is one or not. Rules of a user's audio:

* A stream starts (and starts again after it ran dry) once a frame and `margin` are there: a packet
  that is a little late then costs nothing.
* A tick for which no whole frame is there is *filled*: the model hears silence. Filled ticks are
  counted from the first audio on, not before.
* Audio that comes for a filled tick is heard later; so that one stall does not delay the model for
  good, audio that has waited through a whole window of ticks is dropped, oldest first. Beyond
  `bound` the oldest goes at once. Both are counted as *dropped*.

The grid says when the next tick is due, which were late, and how many are skipped. Nothing here
reads a clock: one `take` is one tick.

Units: lengths are bytes of s16le at the model's rate; counts are frames and samples; instants are
nanoseconds.
"""

from __future__ import annotations

import numpy as np

from session_server.types.audio import NS_PER_S

WINDOW_TICKS = 25
_FULL_SCALE = 32768.0


def is_quiet(pcm: bytes, below_dbfs: float) -> bool:
    """Whether no sample is louder than that; a piece without samples is quiet."""
    if not any(pcm):
        return True
    peak = int(np.abs(np.frombuffer(pcm, "<i2").astype(np.int32)).max())
    return peak <= _FULL_SCALE * 10 ** (below_dbfs / 20)


class UserFrames:
    """Not thread-safe: its owner holds a lock."""

    def __init__(self, frame_bytes: int, margin_bytes: int, bound_bytes: int) -> None:
        self._frame = frame_bytes
        self._margin = margin_bytes & ~1
        self._bound = max(bound_bytes & ~1, frame_bytes + self._margin)
        self._waiting = bytearray()
        self._running = False
        self._began = False
        self._least = 0
        self._ticks = 0
        self.filled = 0
        self.dropped_samples = 0

    @property
    def waiting_bytes(self) -> int:
        return len(self._waiting)

    def push(self, pcm: bytes) -> None:
        """More audio: whole samples."""
        self._began = True
        self._waiting += pcm
        self._drop(len(self._waiting) - self._bound)

    def take(self) -> bytes | None:
        """The frame of one tick; None: silence."""
        enough = self._frame if self._running else self._frame + self._margin
        if len(self._waiting) < enough:
            self._running = False
            self._restart_window()
            self.filled += self._began
            return None
        self._running = True
        frame = bytes(self._waiting[: self._frame])
        del self._waiting[: self._frame]
        self._watch()
        return frame

    def clear(self) -> None:
        """The client takes back what was not heard yet."""
        self._waiting.clear()
        self._running = False
        self._restart_window()

    def rest(self) -> None:
        """No ticks for a while: what waits stays, and a margin is gathered anew."""
        self._running = False
        self._restart_window()

    def news(self) -> tuple[int, int]:
        """Frames filled and samples dropped since this was last asked."""
        found = self.filled, self.dropped_samples
        self.filled = self.dropped_samples = 0
        return found

    def _watch(self) -> None:
        left = len(self._waiting)
        self._least = left if self._ticks == 0 else min(self._least, left)
        self._ticks += 1
        if self._ticks >= WINDOW_TICKS:
            self._drop(self._least - self._margin - self._frame)
            self._restart_window()

    def _restart_window(self) -> None:
        self._ticks = self._least = 0

    def _drop(self, surplus: int) -> None:
        surplus -= surplus % 2
        if surplus > 0:
            del self._waiting[:surplus]
            self.dropped_samples += surplus // 2


MAX_BEHIND = 4
"""Ticks: a model that is further behind does not make up for them all."""


class TickSchedule:
    """`due`: when the next tick begins."""

    def __init__(self, tick_ns: int) -> None:
        self._tick_ns = tick_ns
        self.due: int | None = None

    def begin(self, now: int) -> None:
        """The first tick is due at once; no effect while ticks go on."""
        if self.due is None:
            self.due = now

    def stop(self) -> None:
        self.due = None

    def left_s(self, now: int) -> float:
        """Seconds until the next tick, which begins the grid if there is none."""
        self.begin(now)
        assert self.due is not None
        return (self.due - now) / NS_PER_S

    def done(self, now: int) -> tuple[bool, int]:
        """A tick has ended: whether it was late, and how many are skipped."""
        assert self.due is not None
        self.due += self._tick_ns
        return now > self.due, self._catch_up(now)

    def skip(self, now: int) -> int:
        """The tick that is due does not take place, nor do those whose time is over: how many."""
        assert self.due is not None
        skipped = 1 + max(0, now - self.due) // self._tick_ns
        self.due += skipped * self._tick_ns
        return skipped

    def _catch_up(self, now: int) -> int:
        assert self.due is not None
        behind = max(0, now - self.due) // self._tick_ns
        if behind <= MAX_BEHIND:
            return 0
        self.due += behind * self._tick_ns
        return behind
