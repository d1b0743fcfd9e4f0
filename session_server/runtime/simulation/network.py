"""The way between a client and the server: delay, jitter and loss, in order.

Nothing overtakes anything (as over TCP): what is late delays what follows. One direction of one session.
"""

from __future__ import annotations

import random

from session_server.media import NS_PER_MS
from session_server.runtime.simulation.spec import NetworkModel


class Path:
    """One direction. `arrives` draws from the session's random numbers."""

    __slots__ = ("_delay_ns", "_jitter_ns", "_last", "_loss", "_loss_ns", "_rng")

    def __init__(self, model: NetworkModel, rng: random.Random) -> None:
        self._delay_ns = int(model.delay_ms * NS_PER_MS)
        self._jitter_ns = model.jitter_ms * NS_PER_MS
        self._loss = model.loss
        self._loss_ns = int(model.loss_delay_ms * NS_PER_MS)
        self._rng = rng
        self._last = 0

    def arrives(self, sent: int) -> int:
        """When something that leaves at `sent` is there."""
        delay = self._delay_ns
        if self._jitter_ns:
            delay = max(0, delay + int(self._rng.gauss(0.0, self._jitter_ns)))
        if self._loss and self._rng.random() < self._loss:
            delay += self._loss_ns
        if sent + delay > self._last:
            self._last = sent + delay
        return self._last

    def delay_ns(self) -> int:
        """A delay of something that is sent on a schedule of its own, such as audio packets."""
        if not self._jitter_ns:
            return self._delay_ns
        return max(0, self._delay_ns + int(self._rng.gauss(0.0, self._jitter_ns)))

    @property
    def usual_ns(self) -> int:
        return self._delay_ns
