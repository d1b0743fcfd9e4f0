"""What is measured of a duplex model: each tick as it is reported, and its slots and sessions at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from session_server.observability.catalogue import DuplexPlace, SlotState
from session_server.observability.metrics import Metrics
from session_server.runtime.duplex_clock import Ticked
from session_server.runtime.duplex_seating import Place
from session_server.types.audio import NS_PER_S

STAGE = "duplex"


class _Host(Protocol):
    @property
    def slots(self) -> tuple[int, int]: ...

    @property
    def saved_bytes(self) -> int: ...

    def places(self) -> Counter[Place]: ...


def count_tick(metrics: Metrics, tick: Ticked) -> None:
    metrics.stage_step_seconds.labels(STAGE).observe(tick.step_ns / NS_PER_S)
    metrics.stage_batch_size.labels(STAGE).observe(len(tick.said))
    metrics.duplex_ticks.inc()
    if tick.late:
        metrics.count("duplex_ticks_missed", "late")
    if tick.skipped:
        metrics.count("duplex_ticks_missed", "skipped", tick.skipped)
    if tick.filled:
        metrics.count("duplex_frames_filled", None, tick.filled)
    if tick.dropped_samples:
        metrics.count("duplex_input_dropped_samples", None, tick.dropped_samples)


def watch_duplex(host: _Host, metrics: Metrics) -> None:
    """What is read of the host at each scrape."""
    slots: dict[SlotState, Callable[[], float]] = {
        SlotState.TAKEN: lambda: float(host.slots[1]),
        SlotState.FREE: lambda: float(host.slots[0] - host.slots[1]),
    }
    for state, read in slots.items():
        metrics.watch("duplex_slots", read, state.value)

    def sessions_at(place: DuplexPlace) -> float:
        return float(host.places()[Place(place.value)])

    for place in DuplexPlace:
        metrics.watch("duplex_sessions", partial(sessions_at, place), place.value)
    metrics.watch("duplex_saved_bytes", lambda: float(host.saved_bytes), None)
