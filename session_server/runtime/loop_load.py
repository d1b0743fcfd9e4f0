"""How far cameras give way to the event loop: what they may take of the rate that their sessions ask for.

Sound goes over the loop. When it runs late, cameras get half, and half of that again for each `PERIOD_NS` in which it ran late once
more; for each period in which it did not, they get twice as much, up to all. Nanoseconds of the caller's clock.
"""

from __future__ import annotations

from session_server.types.audio import NS_PER_S

LATE_S = 0.020
PERIOD_NS = NS_PER_S
LEAST = 1 / 64
"""Of the fastest rate that a client may choose: less than the slowest."""


class LoopLoad:
    """`share`: 1 where nothing is late."""

    def __init__(self) -> None:
        self.share = 1.0
        self._cut_ns = self._late_ns = self._grown_ns = -PERIOD_NS

    def observe(self, lag_s: float, now: int) -> None:
        """The loop was so late, as seen at `now`."""
        if lag_s > LATE_S:
            self._late_ns = now
            if now - self._cut_ns >= PERIOD_NS:
                self._cut_ns = now
                self.share = max(LEAST, self.share / 2)
        elif self.share < 1.0 and now - max(self._late_ns, self._grown_ns) >= PERIOD_NS:
            self._grown_ns = now
            self.share = min(1.0, self.share * 2)
