"""Drives a thinker that schedules itself, in the place of a stage's runner: the same owners, the same words, no steps.

An answer begins in the engine when its owner first says that it is ready; from then on it is lent tokens (`scheduler.flow_control`)
as often as its owner says so again, and told how urgent it is when that changed enough. A task reads each answer; nothing is
read while the answer is held, so what lies between engine and owner is bounded by the lease, or by what an engine without
leases keeps unread.

Invariants
* `release` tells the engine to abort at once, and nothing of the answer reaches its owner any more.
* One answer's failure is its own. When the engine is gone (`engine_keeper`) every answer in it fails, once; answers that had not
  begun wait for the next engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable

from engines.base import Capabilities, JobKey, Stage, StepResult, ThinkJob, TokenOutput
from engines.streaming import Pace, StreamingEngine
from session_server.host.stages.engine_keeper import EngineKeeper
from session_server.host.stages.kv_store import ForgetState, OpenGate, StateCall, StateGate
from session_server.host.stages.preemptible import GivesWay
from session_server.host.stages.runner import JobOwner, RunnerState, hand_over
from session_server.host.stages.stage_worker import describe, refusal
from session_server.host.stages.streamed_answer import StreamedAnswer, TokenTimes
from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Clock, Loop, TimerHandle
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.flow_control import Lease
from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.work import WorkClass, WorkItem
from session_server.types.audio import NS_PER_S
from session_server.types.errors import EngineFault

_LOG = logging.getLogger(__name__)


class StreamingRunner:
    """The thinker. All methods are called on the event loop's thread."""

    def __init__(
        self,
        stage: Stage,
        create: Callable[[], StreamingEngine],
        params: SchedulerParams,
        costs: CostModel,
        clock: Clock,
        metrics: HostMetrics,
        step_limit_s: float,
    ) -> None:
        self.stage = stage
        self.name = stage.value
        self.last_batch = 1
        self.gate: StateGate = OpenGate()
        self.streams_text = False
        self._policy = params.policy
        self._clock = clock
        self._metrics = metrics
        self._limit_ns = int(step_limit_s * NS_PER_S)
        self._times = TokenTimes(self.name, costs, metrics, params.prefill_tokens)
        self._answers: dict[JobKey, StreamedAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress_ns = 0
        self._keeper = EngineKeeper(self.name, create, metrics, self)

    # -- life

    async def start(self) -> None:
        await self._keeper.start()

    def begin(self, loop: Loop) -> None:
        self._keeper.begin(loop)

    def stop(self) -> None:
        self._keeper.stop()
        for task in self._tasks:
            task.cancel()

    async def ended(self, limit_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        await self._keeper.ended(limit_s)

    @property
    def state(self) -> RunnerState:
        """Busy: the engine owes somebody something."""
        state = self._keeper.state
        if state is RunnerState.IDLE and any(a.under_way for a in self._answers.values()):
            return RunnerState.BUSY
        return state

    @property
    def capabilities(self) -> Capabilities | None:
        return self._keeper.capabilities

    # -- work

    def submit(self, key: JobKey, job: object, owner: JobOwner) -> None:
        if not isinstance(job, ThinkJob):
            raise ValueError(f"the {self.name} takes ThinkJob, not {type(job).__name__}")
        if key in self._answers:
            raise ValueError(f"job {key} is there already")
        self._answers[key] = StreamedAnswer(key, job, owner, Lease(self._policy))
        if self.state is RunnerState.DOWN:
            self._keeper.loop.call_soon(self._fail, key, f"the {self.name} engine is down")

    def ready(self, item: WorkItem) -> None:
        """The answer may go on, or begin."""
        answer = self._answers.get(JobKey(*item.key))
        if answer is None:
            return
        answer.item = item
        engine = self._keeper.engine
        if engine is None:
            return
        if not answer.begun:
            self._begin(engine, answer, item)
        elif not answer.job.warm:
            self._renew(engine, answer, item)

    def hold(self, key: JobKey) -> None:
        """No more of it is read; the engine stops where its lease ends."""
        answer = self._answers.get(key)
        if answer is not None:
            answer.item = None
            answer.hold()

    def release(self, key: JobKey) -> None:
        answer = self._remove(key)
        engine = self._keeper.engine
        # of an answer whose text is over too: an engine that speaks as well may still be at it
        if engine is not None and (answer is None or answer.begun):
            try:
                engine.abort(key)
            except Exception:
                _LOG.exception("the %s engine could not abort", self.name)
        if answer is None:
            return
        if answer.task is not None and answer.task is not asyncio.current_task(self._keeper.loop):
            answer.task.cancel()

    def carry(self, call: StateCall) -> None:
        """Of all that can be said of a session's state such an engine only knows that the session is over."""
        if isinstance(call, ForgetState) and self._keeper.engine is not None:
            self._keeper.engine.forget(call.session)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        return self._keeper.loop.call_later(delay_s, callback)

    def is_started(self, key: JobKey) -> bool:
        answer = self._answers.get(key)
        return answer is not None and answer.begun

    def in_step(self, key: JobKey) -> bool:
        """There are no steps in which nothing could be said."""
        return False

    def is_waiting(self, key: JobKey) -> bool:
        answer = self._answers.get(key)
        return answer is not None and answer.begun and not answer.held

    def make_way(self) -> bool:
        for answer in reversed(self._answers.values()):
            owner = answer.owner
            if answer.begun and isinstance(owner, GivesWay) and owner.give_way(answer.key):
                return True
        return False

    @property
    def max_batch(self) -> int:
        return self.capabilities.max_batch if self.capabilities is not None else 1

    @property
    def depth(self) -> int:
        return sum(answer.opening for answer in self._answers.values())

    @property
    def starved(self) -> bool:
        """More answers than the engine has places for, where held ones keep theirs."""
        slots = self.capabilities.slots if self.capabilities is not None else None
        return slots is not None and self._places_taken > slots

    @property
    def _under_way(self) -> int:
        return sum(answer.under_way for answer in self._answers.values())

    @property
    def _places_taken(self) -> int:
        return sum(answer.begun for answer in self._answers.values())

    def check_integrity(self) -> None:
        if self._answers:
            raise AssertionError(f"stage {self.name} still holds {len(self._answers)} answers")

    # -- answers

    def _begin(self, engine: StreamingEngine, answer: StreamedAnswer, item: WorkItem) -> None:
        now, key = self._clock.now(), answer.key
        answer.lease.offer(item, now)
        answer.hindered = self._under_way >= self.max_batch
        answer.go_on()
        if answer.job.warm:
            reading = self._warm(engine, answer)
        else:
            pace = Pace(answer.lease.granted, answer.lease.urgency_ns)
            try:
                reading = self._read(answer, engine.generate(key, answer.job, pace))
            except Exception as error:
                self._keeper.loop.call_soon(self._fail, key, refusal(self.name, error))
                return
        answer.begun_ns = now
        answer.task = self._keeper.loop.create_task(reading)
        self._tasks.add(answer.task)
        answer.task.add_done_callback(self._tasks.discard)
        if self.starved and item.kind is not WorkClass.DRAFT:
            self._keeper.loop.call_soon(self.make_way)

    def _renew(self, engine: StreamingEngine, answer: StreamedAnswer, item: WorkItem) -> None:
        lease, can = answer.lease, self.capabilities
        stopped = lease.used_up
        if lease.offer(item, self._clock.now()) and can and (can.holds or can.reprioritises):
            answer.stood_still = answer.stood_still or stopped
            try:
                engine.set_pace(answer.key, Pace(lease.granted, lease.urgency_ns))
            except Exception:
                _LOG.exception("the %s engine could not change an answer's pace", self.name)
                self._keeper.loop.call_soon(
                    self._fail, answer.key, f"the {self.name} engine failed"
                )
        if not lease.used_up:
            answer.go_on()

    async def _read(self, answer: StreamedAnswer, stream: AsyncIterator[TokenOutput]) -> None:
        try:
            async for output in stream:
                if answer.over:
                    return
                self._take(answer, output)
                await answer.free()
                if answer.over:
                    return
            self._fail(answer.key, f"the {self.name} engine ended an answer without a reason")
        except EngineFault as fault:
            if not answer.over:
                self._keeper.lose("threw", f"the {self.name} engine failed: {describe(fault)}")
        except Exception as error:
            self._fail(answer.key, f"the {self.name} engine failed: {describe(error)}")
        finally:
            if inspect.isasyncgen(stream):
                with contextlib.suppress(Exception):
                    await stream.aclose()

    async def _warm(self, engine: StreamingEngine, answer: StreamedAnswer) -> None:
        try:
            await engine.warm(answer.key, answer.job)
        except EngineFault as fault:
            if not answer.over:
                self._keeper.lose("threw", f"the {self.name} engine failed: {describe(fault)}")
        except Exception as error:  # only warmth is lost
            _LOG.warning("the %s engine could not warm a prompt: %s", self.name, describe(error))
        if self._remove(answer.key) is not None:
            self._hand_over(answer, StepResult(answer.key, finished=True))

    def _take(self, answer: StreamedAnswer, output: TokenOutput) -> None:
        now = self._progress_ns = self._clock.now()
        units = 0
        if output.text is not None:
            lease = answer.lease
            units = max(0, output.output_tokens - lease.taken)
            batch = max(1, self._under_way)
            self._times.came(answer, output, units, batch, now)
            self.last_batch = batch
            lease.taken += units
        finished = output.reason is not None
        if finished:
            self._keeper.worked()
            self._remove(answer.key)
        self._hand_over(answer, StepResult(answer.key, output, units, finished))

    def _hand_over(self, answer: StreamedAnswer, result: StepResult) -> None:
        hand_over(self.stage, answer.owner, result, self._clock.now(), self.release)

    def _remove(self, key: JobKey) -> StreamedAnswer | None:
        answer = self._answers.pop(key, None)
        if answer is not None:
            answer.over = True
            answer.go_on()
        return answer

    def _fail(self, key: JobKey, message: str) -> None:
        answer = self._answers.get(key)
        if answer is not None:
            self.release(key)
            answer.owner.on_job_failed(self.stage, key, message)

    # -- the engine

    def engine_loaded(self) -> None:
        self._progress_ns = self._clock.now()
        for answer in list(self._answers.values()):
            if answer.item is not None and not answer.over:
                self.ready(answer.item)

    def engine_lost(self, message: str) -> None:
        for answer in list(self._answers.values()):
            if answer.begun:
                self._fail(answer.key, message)

    def engine_down(self, message: str) -> None:
        for key in list(self._answers):
            self._fail(key, message)

    def stalled(self) -> bool:
        now = self._clock.now()
        owed = any(a.under_way and not a.job.warm for a in self._answers.values())
        if not owed:
            self._progress_ns = now
        return now - self._progress_ns > self._limit_ns
