"""The way between a client and the server: delay, jitter and loss, in order.

Nothing overtakes anything (as over TCP): what is late delays what follows. One direction of one session; both draw from the
same numbers.
"""

from __future__ import annotations

import math
import random

from session_server.simulation.spec import NetworkModel
from session_server.types.audio import NS_PER_MS


class Noise:
    """One session's random numbers: those of `random.Random` with `gauss`, whose Python code costs as much as all else that a
    packet's way takes."""

    __slots__ = ("_other", "_random")

    def __init__(self, rng: random.Random) -> None:
        self._random = rng.random
        self._other: float | None = None

    def share(self) -> float:
        """Evenly in 0..1."""
        return self._random()

    def normal(self, sigma: float) -> float:
        """Around 0."""
        found, self._other = self._other, None
        if found is None:  # two at a time, by Box and Muller
            angle = self._random() * math.tau
            radius = math.sqrt(-2.0 * math.log(1.0 - self._random()))
            found = math.cos(angle) * radius
            self._other = math.sin(angle) * radius
        return found * sigma


class Path:
    """One direction. `arrives` draws from the session's noise."""

    __slots__ = ("_delay_ns", "_jitter_ns", "_last", "_loss", "_loss_ns", "_noise")

    def __init__(self, model: NetworkModel, noise: Noise) -> None:
        self._delay_ns = int(model.delay_ms * NS_PER_MS)
        self._jitter_ns = model.jitter_ms * NS_PER_MS
        self._loss = model.loss
        self._loss_ns = int(model.loss_delay_ms * NS_PER_MS)
        self._noise = noise
        self._last = 0

    def arrives(self, sent: int) -> int:
        """When something that leaves at `sent` is there."""
        delay = self._delay_ns
        if self._jitter_ns:
            delay = max(0, delay + int(self._noise.normal(self._jitter_ns)))
        if self._loss and self._noise.share() < self._loss:
            delay += self._loss_ns
        if sent + delay > self._last:
            self._last = sent + delay
        return self._last

    def delay_ns(self) -> int:
        """A delay of something that is sent on a schedule of its own, such as audio packets."""
        if not self._jitter_ns:
            return self._delay_ns
        return max(0, self._delay_ns + int(self._noise.normal(self._jitter_ns)))

    @property
    def usual_ns(self) -> int:
        return self._delay_ns
