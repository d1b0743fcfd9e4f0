"""A bad network on purpose: which packets are lost, and by how much the others are late.

Pure, seeded. A packet is lost with probability `loss`; one that is not comes between 0 and twice `jitter_ns` later, evenly
spread, so that it may overtake others: what `netem delay J J` does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from session_server.types.audio import NS_PER_MS


@dataclass(frozen=True, slots=True)
class BadNetwork:
    """Nothing is wrong with the default one."""

    loss: float = 0.0
    jitter_ms: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.loss or self.jitter_ms)

    def fate(self, rng: random.Random) -> int | None:
        """Nanoseconds by which the next packet is late; None: it is lost."""
        if self.loss and rng.random() < self.loss:
            return None
        if not self.jitter_ms:
            return 0
        return int(rng.random() * 2 * self.jitter_ms * NS_PER_MS)

    def told(self) -> str:
        """For the report."""
        if not self:
            return "real sockets, nothing added"
        return (
            f"real sockets; of RTP both ways {self.loss:.1%} lost, {self.jitter_ms:g} ms of jitter"
        )
