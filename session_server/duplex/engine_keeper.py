"""Keeps a duplex engine at work, one life after the other, and measures it.

Owns each life's tick thread, what ends a life, and when the next begins. An engine that throws,
takes longer than `tick_limit_s` for a step or for loading (`load_limit_s`, less when it was loaded
before: `Restarts`), is begun again after a pause that grows with each failure. Measured are each
tick as it is reported, and slots and sessions at each scrape. Everything is on the event loop's
thread but the ticks, which have their own.

Invariants: the owner is told of a life's beginning, of its ticks, and of its end, in this order,
each once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engines.duplex_engine import DuplexEngine
from engines.graph import DuplexSpec
from session_server.duplex.core.slots import SeatState
from session_server.duplex.tick_loop import (
    Crashed,
    DuplexClock,
    DuplexLoaded,
    Report,
    Ticked,
)
from session_server.host.stages.engine_keeper import FirstLoad, Restarts
from session_server.host.stages.runner import RunnerState
from session_server.host.stages.stage_worker import LoadFailed, describe
from session_server.observability.catalogue import DuplexPlace, SlotState
from session_server.observability.metrics import Metrics
from session_server.process.clock import Clock
from session_server.types.audio import NS_PER_S
from session_server.types.errors import EngineFault, SessionServerError

STAGE = "duplex"


class _Host(Protocol):
    @property
    def slots(self) -> tuple[int, int]: ...

    @property
    def saved_bytes(self) -> int: ...

    def places(self) -> Counter[SeatState]: ...


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
        return float(host.places()[SeatState(place.value)])

    for place in DuplexPlace:
        metrics.watch("duplex_sessions", partial(sessions_at, place), place.value)
    metrics.watch("duplex_saved_bytes", lambda: float(host.saved_bytes), None)


_LOG = logging.getLogger(__name__)
_JOIN_S = 5.0
_LOOK_S = 0.25
_WELL_S = 60.0
"""An engine that has ticked for so long is well: should it fail after that, it is begun again soon."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the owner wants to know. `looked`: now and then, whatever happens."""

    loaded: Callable[[int], None]
    ticked: Callable[[Ticked], None]
    lost: Callable[[], None]
    looked: Callable[[], None]


class DuplexKeeper:
    """`state` and `beat` are for its owner to read; `beat` None: there is no engine."""

    def __init__(
        self,
        spec: DuplexSpec,
        create: Callable[[], DuplexEngine],
        clock: Clock,
        metrics: Metrics,
        told: Told,
    ) -> None:
        self._spec = spec
        self._create = create
        self._clock = clock
        self._metrics = metrics
        self._told = told
        self.state = RunnerState.LOADING
        self.beat: DuplexClock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first_load = FirstLoad()
        self._restarts = Restarts(spec.load_limit_s, at_once=False)
        self._begun_ns = 0
        self._loaded_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Load the engine. Raises what its first load raised."""
        await self._first_load.after(self._enter)

    async def stop(self) -> None:
        """Close the engine; one that hangs is left behind. Idempotent."""
        self.state = RunnerState.STOPPED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        beat, self.beat = self.beat, None
        if beat is not None:
            beat.stop()
            if not await asyncio.to_thread(beat.join, _JOIN_S):
                beat.abandon()

    @property
    def up(self) -> DuplexClock | None:
        """The clock of an engine that is loaded."""
        return self.beat if self.state in (RunnerState.IDLE, RunnerState.BUSY) else None

    def used(self, by_anybody: bool) -> None:
        """Whether it has anything to do."""
        if self.up is not None:
            self.state = RunnerState.BUSY if by_anybody else RunnerState.IDLE

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begin()
        self._look()

    def _begin(self) -> None:
        """A new life of the engine."""
        loop = self._loop
        assert loop is not None
        self.state = RunnerState.LOADING

        def report(found: Report) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear
                loop.call_soon_threadsafe(self._reported, beat, found)

        self._begun_ns = self._clock.now()
        beat = self.beat = DuplexClock(self._create, report, self._clock)
        beat.start()

    def _reported(self, beat: DuplexClock, report: Report) -> None:
        if beat is not self.beat:
            return
        match report:
            case Ticked():
                beat.read()
                if self._clock.now() - self._loaded_ns > _WELL_S * NS_PER_S:
                    self._restarts.worked()
                self._told.ticked(report)
            case DuplexLoaded(slots):
                self.state = RunnerState.IDLE
                self._loaded_ns = self._clock.now()
                self._restarts.loaded((self._loaded_ns - self._begun_ns) / NS_PER_S)
                self._first_load.succeeded()
                self._told.loaded(slots)
            case LoadFailed(error):
                self._load_failed(error)
            case Crashed(fault):
                self._failed("threw", fault)

    # -- failures

    def _load_failed(self, error: Exception) -> None:
        fault = error
        if not isinstance(error, SessionServerError):
            fault = EngineFault(f"{self._spec.engine}: {describe(error)}")
        if self._first_load.failed(fault):
            self.state = RunnerState.DOWN
        else:
            self._failed("load", describe(error))

    def _failed(self, kind: str, fault: str) -> None:
        """Begin again after a pause."""
        assert self._loop is not None
        _LOG.error("the duplex model failed (%s): %s", kind, fault)
        self._metrics.stage_failures.labels(STAGE, kind).inc()
        self.state = RunnerState.DOWN
        self.beat = None
        self._loop.call_later(self._restarts.pause_s(), self._again)
        self._told.lost()

    def _again(self) -> None:
        if self.state is RunnerState.DOWN and self.beat is None:
            self._begin()

    def _look(self) -> None:
        """Now and then: does the engine hang?"""
        assert self._loop is not None
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        self._told.looked()
        beat = self.beat
        since = None if beat is None else beat.busy_since_ns
        loading = self.state is RunnerState.LOADING
        limit_s = self._restarts.load_limit_s if loading else self._spec.tick_limit_s
        if beat is None or since is None or self._clock.now() - since < limit_s * NS_PER_S:
            return
        self.beat = None
        beat.abandon()
        if loading:
            self._restarts.overdue()
        if loading and self._first_load.waited_for:
            self._load_failed(TimeoutError(f"loading took over {limit_s:g} s"))
        else:
            self._failed("hung", f"no end of a step within {limit_s:g} s")
