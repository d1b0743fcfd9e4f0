"""One user's audio on its way to the model: cut into frames, with a margin against jitter, and what was filled or lost.

The model takes a frame each tick, whether there is one or not. Rules:

* A stream starts (and starts again after it ran dry) once a frame and `margin` are there: a packet that is a little late
  then costs nothing.
* A tick for which no whole frame is there is *filled*: the model hears silence. Counted from the first audio on, not before.
* What comes for a tick that was filled is heard later; so that one stall does not delay the model for good, audio that
  has waited through a whole window of ticks is dropped, oldest first. Beyond `bound` the oldest goes at once. Both are
  counted as *dropped*.

Lengths are bytes of s16le at the model's rate; counts are frames and samples. No clock: one `take` is one tick.
"""

from __future__ import annotations

WINDOW_TICKS = 25


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
