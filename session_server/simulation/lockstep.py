"""Ticks of a lockstep duplex model: one batched step for all sessions every tick, and the tick is the deadline.

Models one thing: how many frames are answered in time for so many sessions. A step that is longer than the tick
delays the following ones; a session whose frame is not ready when its tick ends has missed it. Times are milliseconds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from engines.sim.cost_profile import Profile, Table
from session_server.simulation.spec import SimulationSpec


@dataclass(slots=True)
class Ticks:
    """Frames due and answered, and how late each tick's were, over all replicas."""

    due: int = 0
    answered: int = 0
    late_ms: list[float] = field(default_factory=list)


def run_lockstep(spec: SimulationSpec, profile: Profile) -> Ticks:
    tick_ms = float(profile.duplex["tick_ms"])
    table = Table(
        tuple(sorted((float(b), float(ms)) for b, ms in profile.duplex["step_ms"].items()))
    )
    rng = random.Random(f"{spec.seed}/lockstep")
    ticks = Ticks()
    for number in range(spec.replicas):
        batch = spec.sessions // spec.replicas + (number < spec.sessions % spec.replicas)
        free_at = 0.0
        for tick in range(int(spec.seconds * 1000 / tick_ms)):
            begin = max(free_at, tick * tick_ms)
            step = table.at(batch) * rng.lognormvariate(0.0, profile.jitter_sigma)
            if profile.spike_every and rng.random() * profile.spike_every < 1.0:
                step *= profile.spike_factor
            free_at = begin + step
            lateness = free_at - (tick + 1) * tick_ms
            ticks.due += batch
            ticks.answered += batch * (lateness <= 0)
            ticks.late_ms.append(lateness)
    return ticks
