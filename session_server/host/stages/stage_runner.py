"""The event-loop side of one stage: collects work, decides the next step, hands results to their owners.

Invariants
* One plan is under way at a time; the next decision follows as soon as its outcome is in (continuous batching).
* Cancel only marks: `release` forgets the job at once, and the engine frees it before the next step, that is after
  the step that may be using it. A result whose key is not known any more is dropped here and counted.
* A thrown step, or one longer than the stage's limit, fails every job that the engine held; then the engine is made
  anew (`Restarts`). Jobs that had not started wait for it, unless there is a pause first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engines.base import Capabilities, JobKey, Stage, StepRequest, StepResult
from session_server.host.stages.engine_keeper import FirstLoad, Restarts
from session_server.host.stages.kv_store import OpenGate, StateCall, StateGate
from session_server.host.stages.runner import JobOwner, JobTable, RunnerState, hand_over
from session_server.host.stages.stage_worker import (
    EngineLoaded,
    LoadFailed,
    Report,
    StageWorker,
    StepOutcome,
    StepPlan,
    describe,
)
from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Clock, Loop, TimerHandle, Watchdog
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.flow_control import MakingTime
from session_server.scheduler.stage_queue import StageQueue
from session_server.scheduler.work import StepChoice, WorkItem
from session_server.types.audio import NS_PER_S
from session_server.types.errors import EngineFault

_LOG = logging.getLogger(__name__)
_IDLE = RunnerState.IDLE
_IDLE_STEPS = 256
"""Steps in a row that may bring nothing before the job counts as stuck."""

MakeWorker = Callable[[Callable[[Report], None]], StageWorker]


class StageRunner:
    """One stage. All methods are called on the event loop's thread."""

    def __init__(
        self,
        stage: Stage,
        make_worker: MakeWorker,
        queue: StageQueue,
        costs: CostModel,
        clock: Clock,
        metrics: HostMetrics,
        step_limit_s: float,
    ) -> None:
        self.stage = stage
        self.name = stage.value
        self.state = RunnerState.LOADING
        self.capabilities: Capabilities | None = None
        self.making: MakingTime = lambda _: 0
        self.last_batch = 1
        self.gate: StateGate = OpenGate()
        self._make_worker = make_worker
        self._queue = queue
        self._costs = costs
        self._clock = clock
        self._metrics = metrics
        self._step_limit_s = step_limit_s
        self._max_batch = queue.max_batch
        self._jobs = JobTable()
        self._in_flight: dict[JobKey, StepChoice] = {}
        self._generation = 0
        self._worker: StageWorker | None = None
        self._first_load = FirstLoad()
        self._restarts = Restarts()
        self._load_began = 0
        self._kicked = False
        self._wake: TimerHandle | None = None
        self._watchdog = Watchdog(self._hung)

    # -- life

    async def start(self) -> None:
        """Load the engine; raises what loading raised."""
        await self._first_load.after(self.begin)

    def begin(self, loop: Loop) -> None:
        """Load the engine, with `loop` for all that happens later."""
        self._loop = loop
        self._load()

    def stop(self) -> None:
        """No more steps; the engine is closed after the one under way."""
        self.state = RunnerState.STOPPED
        self._watchdog.stop()
        if self._wake is not None:
            self._wake.cancel()
        if self._worker is not None:
            self._worker.stop()

    async def ended(self, limit_s: float) -> None:
        """Wait until the engine is closed, or so long: one that hangs is left behind."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.join, limit_s)

    # -- work

    def submit(self, key: JobKey, job: object, owner: JobOwner) -> None:
        """Make a job known. It starts when its first item is chosen."""
        self._jobs.add(key, job, owner)
        if self.state is RunnerState.DOWN:
            self._loop.call_soon(self._fail, key, f"the {self.name} engine is down")

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        self._jobs.feed(key, payload, last)

    def is_started(self, key: JobKey) -> bool:
        return self._jobs.has_state(key)

    def in_step(self, key: JobKey) -> bool:
        """A step of this job is under way: nothing that is said about it now counts."""
        return key in self._in_flight

    def ready(self, item: WorkItem) -> None:
        """The job may be advanced; replaces what was said before. Ignored while a step of it is under way."""
        key = item.key
        if key in self._jobs and key not in self._in_flight:
            if not self._jobs.may_start(item, self.gate):
                self._queue.remove(key)
                return
            self._queue.put(item, self._clock.now())
            self.kick()

    def is_waiting(self, key: JobKey) -> bool:
        """The job may be advanced, and no step of it is under way."""
        return key in self._queue

    def hold(self, key: JobKey) -> None:
        """The job may not be advanced for now."""
        self._queue.remove(key)
        self.gate.hold(key)

    def release(self, key: JobKey) -> None:
        """Forget the job; idempotent. A step under way is not cut short, its result is dropped."""
        self._queue.remove(key)
        if self._jobs.remove(key) is not None:
            self.gate.over(key)
            self.kick()

    def carry(self, call: StateCall) -> None:
        """Move or free the state of an idle session, before the next step."""
        self._jobs.owe(call)
        self.kick()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """On the loop that the stage runs on."""
        return self._loop.call_later(delay_s, callback)

    def make_way(self) -> bool:
        """End the speculative job that began last and holds a slot, for a turn that waits for one."""
        return self._jobs.make_way(self.gate.granted)

    @property
    def max_batch(self) -> int:
        """Jobs in one step, at most."""
        return self._queue.max_batch

    @property
    def streams_text(self) -> bool:
        """A talker that speaks while its text is being written, frame by frame."""
        return self.capabilities is not None and self.capabilities.streams_text

    @property
    def depth(self) -> int:
        return len(self._queue)

    @property
    def starved(self) -> bool:
        """Work waits for a slot that another job holds."""
        return self._queue.starved or self.gate.waiting

    def check_integrity(self) -> None:
        """Nothing is left. Raises AssertionError naming what is."""
        left = {"items": len(self._queue), "in flight": len(self._in_flight), **self._jobs.left}
        found = {name: count for name, count in left.items() if count}
        if found:
            raise AssertionError(f"stage {self.name} still holds {found}")

    # -- deciding

    def kick(self) -> None:
        """Decide once all that is ready in this turn of the loop has been said."""
        if not self._kicked and self.state is _IDLE:
            self._kicked = True
            self._loop.call_soon(self._decide)

    def _decide(self) -> None:
        self._kicked = False
        if self.state is not _IDLE or self._worker is None or self.capabilities is None:
            return
        free = self._jobs.free_slots(self.capabilities.slots)
        moving = self._jobs.owes_a_move  # work waits for it: it does not wait for a step in turn
        choices = [] if moving else self._queue.choose(self._clock.now(), free, self.making)
        if self._queue.starved and not moving:
            self._metrics.starved_step(self.name)
            if self._queue.turn_waits_for_slot():
                self._loop.call_soon(self.make_way)
        self._in_flight = {self._jobs.name(choice.item): choice for choice in choices}
        calls = self._jobs.plan(self._in_flight)
        if not calls and not choices:
            self._arm_wake()
            return
        self.state = RunnerState.BUSY
        self._watchdog.watch(self._loop, self._step_limit_s)
        batch = [StepRequest(key, choice.units) for key, choice in self._in_flight.items()]
        self._worker.submit(StepPlan(calls, batch))
        self._metrics.queue_depth(self.name, len(self._queue))

    def _arm_wake(self) -> None:
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if (at := self._queue.next_wake()) is not None:
            delay = max(0, at - self._clock.now()) / NS_PER_S
            self._wake = self._loop.call_later(delay, self.kick)

    # -- reports

    def _new_worker(self) -> StageWorker:
        self._generation += 1
        generation, loop = self._generation, self._loop

        def report(outcome: Report) -> None:
            try:
                loop.call_soon_threadsafe(self._on_report, generation, outcome)
            except RuntimeError:  # the loop has ended: nobody is left to tell
                _LOG.debug("stage %s reported after the end", self.name)

        return self._make_worker(report)

    def _load(self) -> None:
        self.state = RunnerState.LOADING
        self._load_began = self._clock.now()
        self._watchdog.watch(self._loop, self._restarts.load_limit_s)
        if self._worker is None:
            self._worker = self._new_worker()
        self._worker.load()

    def _on_report(self, generation: int, report: Report) -> None:
        if generation != self._generation or self.state is RunnerState.STOPPED:
            self._metrics.stale(self.name)
            return
        self._watchdog.over()
        match report:
            case StepOutcome():
                self._on_outcome(report)
            case EngineLoaded(capabilities):
                self._on_loaded(capabilities)
            case LoadFailed(error):
                self._on_load_failed(error)

    def _on_loaded(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self._queue.max_batch = min(self._max_batch, capabilities.max_batch)
        self._restarts.loaded((self._clock.now() - self._load_began) / NS_PER_S)
        self.state = RunnerState.IDLE
        self.gate.engine_loaded(capabilities)
        self._first_load.succeeded()
        self.kick()

    def _on_load_failed(self, error: Exception) -> None:
        self.state = RunnerState.DOWN
        if self._first_load.failed(error):
            return
        self._metrics.engine_failed(self.name, "not_loaded")
        _LOG.error("stage %s cannot be restarted: %s", self.name, describe(error))
        self._load_again()

    def _load_again(self) -> None:
        """At once, or after a pause, for which nobody waits."""
        pause_s = self._restarts.pause_s()
        if not pause_s:
            self._load()
            return
        self.state = RunnerState.DOWN
        self._fail_jobs(self._jobs.keys(), f"the {self.name} engine is down")
        self._wake = self._loop.call_later(pause_s, self._load)

    def _on_outcome(self, outcome: StepOutcome) -> None:
        if outcome.fault is not None:
            self._metrics.engine_failed(self.name, "threw")
            self._lose_engine(f"the {self.name} engine failed: {outcome.fault}")
            return
        now = self._clock.now()
        flight, self._in_flight = self._in_flight, {}
        self.state = RunnerState.IDLE
        self._measure(flight, outcome)
        self._settle_starts(flight, outcome, now)
        if outcome.moved or outcome.sizes:
            self.gate.moved(outcome.moved, outcome.sizes)
        for result in outcome.results:
            flight.pop(result.key, None)
            self._hand_over(result, now)
        for key in flight:
            if key in self._jobs:
                self._fail(key, f"the {self.name} engine gave no result")
        self.kick()

    def _measure(self, flight: dict[JobKey, StepChoice], outcome: StepOutcome) -> None:
        if not (batch := len(outcome.results)):
            return
        self.last_batch = batch
        units = max((choice.units for choice in flight.values()), default=1)
        done = max((result.units for result in outcome.results), default=units)
        units, step_ns = max(1, min(units, done or units)), outcome.step_ns
        alone = self.capabilities is not None and self.capabilities.own_thread
        work_ns = outcome.thread_ns if alone else step_ns
        if self.streams_text:  # what one frame of a run of them costs
            step_ns, work_ns, units = step_ns // units, work_ns // units, 1
        self._costs.observe(self.name, batch, units, step_ns, work_ns)
        self._metrics.stage_step(self.name, outcome.step_ns / NS_PER_S, batch)

    def _settle_starts(
        self, flight: dict[JobKey, StepChoice], outcome: StepOutcome, now: int
    ) -> None:
        """Jobs that started get what was fed meanwhile; those that found no room wait for a release."""
        for key, message in outcome.refused:
            flight.pop(key, None)
            self._fail(key, message)
        for key in outcome.no_room:
            choice = flight.pop(key)
            if not self._jobs.found_no_room(key):
                self._fail(key, f"the {self.name} engine has no room for this at all")
            elif key in self._jobs:
                self._queue.put(choice.item, now)
        for key in flight:
            self._jobs.started(key)

    def _hand_over(self, result: StepResult, now: int) -> None:
        if (job := self._jobs.get(result.key)) is None:
            self._metrics.stale(self.name)
            return
        job.idle_steps = 0 if result.units or result.output is not None else job.idle_steps + 1
        if result.error is not None:
            self._fail(result.key, f"the {self.name} engine failed: {result.error}")
        elif job.idle_steps > _IDLE_STEPS:
            self._fail(result.key, f"the {self.name} engine makes no progress")
        else:
            if result.finished:
                self._restarts.worked()
                self.release(result.key)
            hand_over(self.stage, job.owner, result, now, self.release)

    # -- failures

    def _fail(self, key: JobKey, message: str) -> None:
        job = self._jobs.get(key)
        if job is not None:
            self.release(key)
            job.owner.on_job_failed(self.stage, key, message)

    def _hung(self) -> None:
        """The step or the load took too long: its worker is given up."""
        loading, worker = self.state is RunnerState.LOADING, self._worker
        assert worker is not None
        self._worker = None
        self._generation += 1  # what it has said already
        worker.abandon()
        if loading:
            limit_s = self._restarts.load_limit_s
            self._restarts.overdue()
            self._on_load_failed(EngineFault(f"it was not loaded within {limit_s:g} s"))
        else:
            self._metrics.engine_failed(self.name, "hung")
            self._lose_engine(f"the {self.name} engine hung")

    def _lose_engine(self, message: str) -> None:
        """All engine state is gone: fail whoever had some, and bring it back."""
        _LOG.error("stage %s: %s; it is restarted", self.name, message)
        self.state = RunnerState.LOADING
        self._in_flight.clear()
        self._fail_jobs(self._jobs.keys(with_state_only=True), message)
        self._jobs.lose_engine()
        self.gate.engine_lost()
        self._load_again()

    def _fail_jobs(self, keys: list[JobKey], message: str) -> None:
        for key in keys:
            self._fail(key, message)
