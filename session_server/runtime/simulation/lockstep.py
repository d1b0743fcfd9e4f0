"""Ticks of a lockstep duplex model: one batched step for all sessions every tick, and the tick is the deadline.

Models one thing: how many frames are answered in time for so many sessions. A step that is longer than the tick
delays the following ones; a session whose frame is not ready when its tick ends has missed it. Times are milliseconds.
"""

from __future__ import annotations

import random
from typing import Any

from engines.sim.profile import Profile, Table
from session_server.runtime.simulation.measure import spread
from session_server.runtime.simulation.spec import SimulationSpec


def lockstep_figures(spec: SimulationSpec, profile: Profile) -> dict[str, Any]:
    """Frames due and answered, over all replicas."""
    tick_ms = float(profile.duplex["tick_ms"])
    table = Table(
        tuple(sorted((float(b), float(ms)) for b, ms in profile.duplex["step_ms"].items()))
    )
    rng = random.Random(f"{spec.seed}/lockstep")
    due = answered = 0
    late: list[float] = []
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
            due += batch
            answered += batch * (lateness <= 0)
            late.append(lateness)
    minutes = spec.seconds / 60
    return {
        "frames_due": due,
        "frames_answered": answered,
        "frame_deficit_per_min": round((due - answered) / minutes, 2),
        "tick_lateness_ms": spread(late),
    }
