"""What only the simulation itself can see of one replica's run. Instants are nanoseconds of the virtual clock, audio is samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReplicaRecords:
    """`lead`: (instant, seconds generated and not yet played) of its first session. `generated_samples`: all speech that was
    made; `wasted_samples`: what of it nobody heard, or will."""

    generated_samples: int = 0
    wasted_samples: int = 0
    lead: list[tuple[int, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
