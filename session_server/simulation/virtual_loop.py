"""Virtual time: a heap of callbacks, and devices on which steps take time.

Owns the clock. What is due at one instant runs in the order in which it was asked for, so a run depends on nothing but
its inputs. Instants are integer nanoseconds; `call_later` takes seconds, as an event loop does.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable

from engines.base import NoCapacity, Stage
from engines.sim.cost_profile import Device, Profile
from engines.sim.scripted_stages import ScriptedEngine, ScriptedThinker
from session_server.host.stages.kv_store import ForgetState
from session_server.host.stages.stage_worker import (
    EngineLoaded,
    Feed,
    Release,
    Report,
    StartJob,
    StepOutcome,
    StepPlan,
)
from session_server.types.audio import NS_PER_S


class Alarm:
    """A callback at an instant; `cancel` calls it off."""

    __slots__ = ("at", "off")

    def __init__(self, at: int) -> None:
        self.at = at
        self.off = False

    def cancel(self) -> None:
        self.off = True


Entry = tuple[int, int, Alarm | None, Callable[..., object], tuple[object, ...]]
"""Instant and serial number, which decide the order; then what is called, unless its alarm is off."""


class VirtualLoop:
    """An event loop whose time moves from one alarm to the next."""

    def __init__(self) -> None:
        self.time = 0
        self.events = 0
        self._heap: list[Entry] = []
        self._soon: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._serial = 0

    def now(self) -> int:
        """As `clock.Clock`."""
        return self.time

    def call_soon(self, callback: Callable[..., object], /, *args: object) -> None:
        self._soon.append((callback, args))

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: object) -> None:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: object) -> Alarm:
        return self.at(self.time + max(0, round(delay * NS_PER_S)), callback, *args)

    def at(self, instant: int, callback: Callable[..., object], /, *args: object) -> Alarm:
        """Call at `instant`, or now when that has passed, unless the alarm is called off."""
        if instant < self.time:
            instant = self.time
        self._serial += 1
        alarm = Alarm(instant)
        heapq.heappush(self._heap, (instant, self._serial, alarm, callback, args))
        return alarm

    def post(self, instant: int, callback: Callable[..., object], /, *args: object) -> None:
        """As `at`, for what is never called off."""
        if instant < self.time:
            instant = self.time
        self._serial += 1
        heapq.heappush(self._heap, (instant, self._serial, None, callback, args))

    def run_until(self, end: int) -> None:
        """Everything up to and including `end`."""
        heap, soon = self._heap, self._soon
        while True:
            while soon:
                callback, args = soon.popleft()
                callback(*args)
            if not heap or heap[0][0] > end:
                self.time = max(self.time, end)
                return
            self.time, _, alarm, callback, args = heapq.heappop(heap)
            if alarm is None or not alarm.off:
                self.events += 1
                callback(*args)


class _Spare:
    """Work that idle time is spent on, and of busy time a share."""

    __slots__ = ("asked", "done", "left", "rate", "run", "since")

    def __init__(self, left: int, asked: int, done: Callable[[int], object]) -> None:
        self.left = float(left)
        self.asked = asked
        self.done = done
        self.since = asked
        self.rate = 0.0
        """How fast it has gone on since `since`, 1: as if alone."""
        self.run = 0
        """Which rate that is: an end that was foreseen at another one is none."""


class SharedDevice:
    """Where stages run: at most `concurrent` steps at once, first come, first served; slower while others run. Beside them
    `spare` work, one piece at a time, which has only a share of a place while all are taken, as a thread of low priority does, and
    slows by that much what begins meanwhile. `sessions`: how many the host serves now."""

    def __init__(
        self, loop: VirtualLoop, limits: Device, sessions: Callable[[], int] = lambda: 0
    ) -> None:
        self._loop = loop
        self._limits = limits
        self.sessions = sessions
        self._running = 0
        self._waiting: deque[tuple[int, Callable[[int], object]]] = deque()
        self._spare: deque[_Spare] = deque()
        self._busy_share = 0.0

    def run(self, work_ns: int, done: Callable[[int], object]) -> None:
        """`done` is told how long the step took on the device, waiting not counted."""
        if self._limits.concurrent and self._running >= self._limits.concurrent:
            self._waiting.append((work_ns, done))
            return
        if self._running and self._limits.sharing != 1.0:
            work_ns = int(work_ns / self._limits.sharing)
        self._running += 1
        if self._spare and self._is_full:
            self._go_on()
            work_ns = int(work_ns / (1.0 - self._busy_share / self._limits.concurrent))
        self._loop.post(self._loop.time + work_ns, self._over, work_ns, done)

    def _over(self, took_ns: int, done: Callable[[int], object]) -> None:
        self._running -= 1
        if self._waiting:
            self.run(*self._waiting.popleft())
        elif self._spare:
            self._go_on()
        done(took_ns)

    # -- what gives way

    @property
    def _is_full(self) -> bool:
        return 0 < self._limits.concurrent <= self._running

    def spare(self, work_ns: int, busy_share: float, done: Callable[[int], object]) -> None:
        """`busy_share`: of a place, 0 to less than 1, while all are taken. `done` is told how long the step took from its beginning:
        a clock in its thread would say the same."""
        self._busy_share = busy_share
        self._spare.append(_Spare(work_ns, self._loop.time, done))
        if len(self._spare) == 1:
            self._go_on()

    def _go_on(self) -> None:
        """At the rate that there is room for now."""
        piece, now = self._spare[0], self._loop.time
        rate = self._busy_share if self._is_full else 1.0
        if rate == piece.rate:
            return
        piece.left = max(0.0, piece.left - (now - piece.since) * piece.rate)
        piece.since, piece.rate = now, rate
        piece.run += 1
        if rate:
            self._loop.post(now + math.ceil(piece.left / rate), self._spared, piece, piece.run)

    def _spared(self, piece: _Spare, run: int) -> None:
        if piece.run != run:
            return
        self._spare.popleft()
        if self._spare:
            following = self._spare[0]
            following.asked = following.since = self._loop.time
            self._go_on()
        piece.done(self._loop.time - piece.asked)


class ModelWorker:
    """A stage's worker in virtual time: the step's result is there when its price has passed."""

    def __init__(
        self,
        stage: Stage,
        engine: ScriptedEngine,
        profile: Profile,
        device: SharedDevice,
        loop: VirtualLoop,
        rng: random.Random,
        report: Callable[[Report], None],
    ) -> None:
        self.stage = stage
        self.engine = engine
        self.busy_ns = 0
        self.steps = 0
        self.jobs_stepped = 0
        self._profile = profile
        self._device = device
        self._loop = loop
        self._rng = rng
        self._report = report

    def load(self) -> None:
        self._loop.call_soon(self._report, EngineLoaded(self.engine.capabilities))

    def submit(self, plan: StepPlan) -> None:
        outcome = StepOutcome()
        failed = set()
        engine = self.engine
        for call in plan.calls:
            if isinstance(call, Feed):
                if call.key not in failed:
                    engine.feed(call.key, call.payload, call.last)
            elif isinstance(call, Release):
                engine.release(call.key)
            elif isinstance(call, StartJob):
                try:
                    engine.start(call.key, call.job)
                except NoCapacity:
                    outcome.no_room.append(call.key)
                    failed.add(call.key)
            elif isinstance(call, ForgetState) and isinstance(engine, ScriptedThinker):
                engine.forget(call.session)
        batch = plan.batch
        if failed:
            batch = [request for request in batch if request.key not in failed]
        if not batch:
            self._loop.call_soon(self._report, outcome)
            return
        outcome.results = engine.step(batch)
        self.steps += 1
        self.jobs_stepped += len(batch)
        cost_ns = engine.cost_ns
        if engine.cost.per_session:
            cost_ns = int(cost_ns * (1.0 + engine.cost.per_session * self._device.sessions()))
        cost_ns, busy_share = self._with_jitter(cost_ns), engine.cost.busy_share
        if busy_share is None:
            self._device.run(cost_ns, lambda ns: self._done(outcome, ns))
        else:
            self._device.spare(cost_ns, busy_share, lambda ns: self._done(outcome, ns))

    def stop(self) -> None:
        """Nothing to close."""

    def abandon(self) -> None:
        """A simulated step never hangs."""

    def join(self, timeout_s: float) -> bool:
        """Nothing to wait for."""
        return True

    def _done(self, outcome: StepOutcome, took_ns: int) -> None:
        outcome.step_ns = took_ns
        self.busy_ns += took_ns
        self._report(outcome)

    def _with_jitter(self, ns: int) -> int:
        profile, rng = self._profile, self._rng
        factor = 1.0
        if profile.jitter_sigma:
            factor = rng.lognormvariate(0.0, profile.jitter_sigma)
        if profile.spike_every and rng.random() * profile.spike_every < 1.0:
            factor *= profile.spike_factor
        return int(ns * factor)
