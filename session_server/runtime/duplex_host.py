"""The host of a duplex model: which session sits in which slot, what the model says to whom, and its restarts.

The counterpart of `EngineHost` for a graph of `kind: duplex`, with the same surface for the server. Everything is on the
event loop's thread but the `DuplexClock`, which has its own. Invariants:

* A session is admitted when a slot is free, by one synchronous decision, and keeps it until it is closed. No two sessions
  have one slot; what was said to one that left is delivered to nobody, counted as stale.
* When the engine throws, hangs longer than `tick_limit_s` or cannot be loaded again, each session that sat gets one
  `DuplexLost`; the engine is begun again, after a pause that grows with each failure, and every session still there sits
  down anew. Until then nobody is admitted.

Messages about sessions that are not known are ignored: cancellation races with everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from engines.duplex.base import DuplexConfig, DuplexEngine
from engines.duplex.registry import duplex_factory
from engines.duplex.spec import DuplexSpec
from engines.graph_values import wrong_option
from engines.model_store import ModelStore
from session_server.clock import Clock
from session_server.errors import EngineFault, SessionServerError
from session_server.media import NS_PER_S
from session_server.observability.catalogue import SlotState
from session_server.observability.metrics import Metrics
from session_server.runtime.duplex_clock import (
    Crashed,
    DuplexClock,
    Loaded,
    LoadFailed,
    Report,
    Ticked,
)
from session_server.runtime.duplex_messages import ClearHeard, DuplexToHost, HearUser, TakeSeat
from session_server.runtime.messages import (
    CloseSession,
    DuplexFrame,
    DuplexLost,
    Fence,
    OpenSession,
    SessionOpened,
    SessionRefused,
    ToHost,
    ToSession,
)
from session_server.runtime.runner import RETRY_S
from session_server.runtime.stage_worker import describe

_LOG = logging.getLogger(__name__)
STAGE = "duplex"
_JOIN_S = 5.0
_RETRY_AFTER_S = 5
_LOOK_S = 0.25
_WELL_S = 60.0
"""An engine that has ticked for so long is well: should it fail after that, it is begun again soon."""


@dataclass(slots=True)
class _Sitter:
    """An admitted session. `config` and `serial` are there once it has taken its seat."""

    session: str
    slot: int
    config: DuplexConfig | None = None
    serial: int = 0
    epoch: int = 1


class DuplexHost:
    """Runs one duplex engine for as many sessions as it has slots. `deliver` is called on the loop's thread."""

    def __init__(
        self,
        spec: DuplexSpec,
        store: ModelStore,
        max_sessions: int,
        clock: Clock,
        deliver: Callable[[ToSession], None],
        metrics: Metrics,
    ) -> None:
        self._spec = spec
        self._create = engine_maker(spec, store)
        self._max = max_sessions
        self._clock = clock
        self._deliver = deliver
        self._metrics = metrics
        self._state = "loading"
        self._slots = 0
        self._sitters: dict[str, _Sitter] = {}
        self._by_serial: dict[int, _Sitter] = {}
        self._serials = itertools.count(1)
        self._beat: DuplexClock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first: asyncio.Future[None] | None = None
        self._failures = 0
        self._loaded_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    # -- life

    async def start(self) -> None:
        """Load the engine. Raises what its first load raised."""
        self._loop = asyncio.get_running_loop()
        self._first = self._loop.create_future()
        self._begin()
        self._look()
        await self._first

    async def stop(self) -> None:
        """Close the engine; one that hangs is left behind. Idempotent."""
        self._state = "stopped"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        beat, self._beat = self._beat, None
        if beat is not None:
            beat.stop()
            if not await asyncio.to_thread(beat.join, _JOIN_S):
                beat.abandon()

    @property
    def stage_states(self) -> dict[str, str]:
        """For readiness: loading, idle, busy, down or stopped."""
        return {STAGE: self._state}

    @property
    def slots(self) -> tuple[int, int]:
        """Slots of the model, and how many are taken."""
        return self._slots, len(self._sitters)

    def sessions_by_class(self) -> Counter[str]:
        """All of them are always playing."""
        return Counter({"playing": len(self._sitters)})

    def watch(self) -> None:
        """What is read of the host at each scrape."""
        for state, read in (
            (SlotState.TAKEN, lambda: float(self.slots[1])),
            (SlotState.FREE, lambda: float(self.slots[0] - self.slots[1])),
        ):
            self._metrics.watch("duplex_slots", read, state.value)

    def check_integrity(self) -> None:
        """When no session is open nothing may be left. Raises AssertionError."""
        if self._sitters or self._by_serial:
            raise AssertionError(f"the host still holds {', '.join(self._sitters)}")

    def _begin(self) -> None:
        """A new life of the engine."""
        loop = self._loop
        assert loop is not None
        self._state = "loading"

        def report(found: Report) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear
                loop.call_soon_threadsafe(self._reported, beat, found)

        beat = self._beat = DuplexClock(self._create, report, self._clock)
        beat.start()

    # -- messages

    def post(self, message: ToHost | DuplexToHost) -> None:
        """Carry out one message. Never raises for what a session sends."""
        if isinstance(message, OpenSession):
            self._open(message.session)
            return
        sitter = self._sitters.get(message.session)
        if sitter is None:
            return
        match message:
            case TakeSeat():
                if sitter.config is None:
                    sitter.config = DuplexConfig(message.instructions, message.voice)
                    self._sit(sitter)
            case HearUser(_, pcm):
                if self._beat is not None:
                    self._beat.hear(sitter.serial, pcm)
            case ClearHeard():
                if self._beat is not None:
                    self._beat.clear(sitter.serial)
            case Fence():
                sitter.epoch = max(sitter.epoch, message.epoch)
                if self._beat is not None:
                    self._beat.fence(sitter.serial, sitter.epoch)
            case CloseSession():
                self._close(sitter)
            case _:
                pass  # work for stages, which there are none of

    def _open(self, name: str) -> None:
        if name in self._sitters:
            self._deliver(SessionOpened(name))
            return
        reason = self._no_seat()
        if reason is not None:
            self._metrics.admission_decisions.labels("refuse", "slots").inc()
            self._deliver(SessionRefused(name, reason, _RETRY_AFTER_S))
            return
        taken = {sitter.slot for sitter in self._sitters.values()}
        free = next(slot for slot in range(self._slots) if slot not in taken)
        self._sitters[name] = _Sitter(name, free)
        self._metrics.admission_decisions.labels("admit", "session").inc()
        self._deliver(SessionOpened(name))

    def _no_seat(self) -> str | None:
        if self._state not in ("idle", "busy"):
            return f"the duplex model is {self._state}"
        limit = min(self._max, self._slots)
        if len(self._sitters) >= limit:
            return f"all {limit} slots of the duplex model are taken"
        return None

    def _sit(self, sitter: _Sitter) -> None:
        """Into its slot of the engine that is at work, if there is one."""
        if self._beat is None or self._state == "loading" or sitter.config is None:
            return
        sitter.serial = next(self._serials)
        self._by_serial[sitter.serial] = sitter
        self._state = "busy"
        self._beat.take(sitter.serial, sitter.slot, sitter.config, sitter.epoch)

    def _close(self, sitter: _Sitter) -> None:
        del self._sitters[sitter.session]
        if self._by_serial.pop(sitter.serial, None) is not None and self._beat is not None:
            self._beat.leave(sitter.serial)
        if not self._by_serial and self._state == "busy":
            self._state = "idle"

    # -- reports of the clock

    def _reported(self, beat: DuplexClock, report: Report) -> None:
        if beat is not self._beat:
            return
        match report:
            case Ticked():
                beat.read()
                self._ticked(report)
            case Loaded(slots):
                self._loaded(slots)
            case LoadFailed(error):
                self._load_failed(error)
            case Crashed(fault):
                self._failed("threw", fault)

    def _ticked(self, tick: Ticked) -> None:
        if self._failures and self._clock.now() - self._loaded_ns > _WELL_S * NS_PER_S:
            self._failures = 0
        self._count(tick)
        for serial, (epoch, frame) in tick.said.items():
            sitter = self._by_serial.get(serial)
            if sitter is None:
                self._metrics.count("stale_outputs", "host")
                continue
            actions = tuple(action.value for action in frame.actions)
            self._send(
                DuplexFrame(sitter.session, epoch, frame.pcm, frame.text, actions, frame.tokens)
            )

    def _count(self, tick: Ticked) -> None:
        metrics = self._metrics
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

    def _send(self, message: ToSession) -> None:
        try:
            self._deliver(message)
        except Exception:  # one session's fault must not stop the model that others use
            _LOG.exception("session %s could not take a message", message.session)

    # -- failures

    def _loaded(self, slots: int) -> None:
        self._slots = slots
        self._state = "idle"
        self._loaded_ns = self._clock.now()
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        for sitter in list(self._sitters.values()):
            self._sit(sitter)

    def _load_failed(self, error: Exception) -> None:
        if self._first is not None and not self._first.done():
            self._state = "down"
            if not isinstance(error, SessionServerError):
                error = EngineFault(f"{self._spec.engine}: {describe(error)}")
            self._first.set_exception(error)
            return
        self._failed("load", describe(error))

    def _failed(self, kind: str, fault: str) -> None:
        """Tell everybody who sat, once, and begin again after a pause."""
        assert self._loop is not None
        _LOG.error("the duplex model failed (%s): %s", kind, fault)
        self._metrics.stage_failures.labels(STAGE, kind).inc()
        self._state = "down"
        self._beat = None
        lost, self._by_serial = list(self._by_serial.values()), {}
        pause_s = RETRY_S[min(self._failures, len(RETRY_S) - 1)]
        self._failures += 1
        self._loop.call_later(pause_s, self._again)
        for sitter in lost:
            sitter.serial = 0
            reason = "The model failed; the conversation with it begins anew."
            self._send(DuplexLost(sitter.session, reason))

    def _again(self) -> None:
        if self._state == "down" and self._beat is None:
            self._begin()

    def _look(self) -> None:
        """Now and then: does the engine hang?"""
        assert self._loop is not None
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        beat = self._beat
        since = None if beat is None else beat.busy_since_ns
        loading = self._state == "loading"
        limit_s = self._spec.load_limit_s if loading else self._spec.tick_limit_s
        if beat is None or since is None or self._clock.now() - since < limit_s * NS_PER_S:
            return
        self._beat = None
        beat.abandon()
        if loading and self._first is not None and not self._first.done():
            self._load_failed(TimeoutError(f"loading took over {limit_s:g} s"))
        else:
            self._failed("hung", f"no end of a step within {limit_s:g} s")


def engine_maker(spec: DuplexSpec, store: ModelStore) -> Callable[[], DuplexEngine]:
    """Makes engines of the graph; the first one at once, to see that it can be. Raises ConfigError naming the key."""
    create = duplex_factory(spec.engine, "graph.engine")
    try:
        create(spec.options, store)
    except ValueError as error:
        raise wrong_option(error, "graph") from error
    return lambda: create(spec.options, store)
