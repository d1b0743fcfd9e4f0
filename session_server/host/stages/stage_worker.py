"""The thread of one stage: the only place where an engine's methods are called.

It takes orders one at a time (load, plan, stop) and reports each one's outcome. A plan's calls run first, in order,
then its step. It knows nothing of responses or policies. An abandoned worker (its step hung) reports nothing more;
if it ever comes back it closes its engine and ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engines.base import (
    Capabilities,
    JobKey,
    NoCapacity,
    SteppedEngine,
    StepRequest,
    StepResult,
)
from session_server.host.stages.kv_store import MovedState, StateCall, carry_out, state_bytes
from session_server.process.clock import Clock
from session_server.types.audio import Value
from session_server.types.errors import EngineFault, SessionServerError

_log = logging.getLogger(__name__)


class StartJob(Value, frozen=True):
    key: JobKey
    job: object


class Feed(Value, frozen=True):
    key: JobKey
    payload: object
    last: bool


class Release(Value, frozen=True):
    key: JobKey


Call = StartJob | Feed | Release | StateCall


class StepPlan(Value, frozen=True):
    """What to do next: bookkeeping calls, then one step over `batch` (none when it is empty)."""

    calls: list[Call]
    batch: list[StepRequest]


@dataclass(slots=True)
class StepOutcome:
    """What came of a plan. `no_room` and `refused` are jobs that did not start; `fault` names what was thrown.
    `step_ns` is the length of the step alone, `thread_ns` the processor time that its thread took. `moved`: states that were exported or imported; `sizes`: bytes that a
    session's state holds after a job of it was released."""

    results: list[StepResult] = field(default_factory=list)
    no_room: list[JobKey] = field(default_factory=list)
    refused: list[tuple[JobKey, str]] = field(default_factory=list)
    fault: str | None = None
    step_ns: int = 0
    thread_ns: int = 0
    moved: list[MovedState] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)


class EngineLoaded(Value, frozen=True):
    capabilities: Capabilities


class LoadFailed(Value, frozen=True):
    error: Exception


Report = StepOutcome | EngineLoaded | LoadFailed


class StageWorker(Protocol):
    """Carries out orders for one engine."""

    def load(self) -> None:
        """Make the engine, or close the one there is, and load it; answered by Loaded or LoadFailed."""
        ...

    def submit(self, plan: StepPlan) -> None: ...

    def stop(self) -> None:
        """Close the engine after what is under way. Idempotent."""
        ...

    def abandon(self) -> None:
        """Nothing of this worker is wanted any more."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait until it has closed its engine and ended; whether it has. Called after `stop`, on any thread."""
        ...


class EngineSeat:
    """The engine, where it is: carries out orders, and makes a report of whatever comes of them. One thread."""

    def __init__(self, name: str, create: Callable[[], SteppedEngine], clock: Clock) -> None:
        self._name = name
        self._create = create
        self._clock = clock
        self._engine: SteppedEngine | None = None

    def load(self) -> EngineLoaded | LoadFailed:
        try:
            engine = self._engine
            if engine is None:
                engine = self._engine = self._create()
            else:
                engine.close()
            engine.load()
            return EngineLoaded(engine.capabilities)
        except Exception as error:
            self.close()  # the next attempt begins with a new one
            return LoadFailed(error)

    def execute(self, plan: StepPlan) -> StepOutcome:
        outcome = StepOutcome()
        engine = self._engine
        if engine is None:
            outcome.fault = "the engine is not loaded"
            return outcome
        try:
            failed = self._call(engine, plan.calls, outcome)
            batch = [request for request in plan.batch if request.key not in failed]
            if batch:
                begun, worked = self._clock.now(), time.thread_time_ns()
                outcome.results = list(engine.step(batch))
                outcome.step_ns = self._clock.now() - begun
                outcome.thread_ns = time.thread_time_ns() - worked
        except Exception as error:
            outcome.fault = describe(error)
        return outcome

    def _call(self, engine: SteppedEngine, calls: list[Call], outcome: StepOutcome) -> set[JobKey]:
        """Carry out the bookkeeping; the keys of jobs that could not start."""
        failed: set[JobKey] = set()
        for call in calls:
            match call:
                case StartJob(key, job):
                    try:
                        engine.start(key, job)
                    except NoCapacity:
                        outcome.no_room.append(key)
                        failed.add(key)
                    except Exception as error:  # one job's fault must not end the others'
                        if not isinstance(error, ValueError):
                            with contextlib.suppress(Exception):  # whatever it held by then
                                engine.release(key)
                        outcome.refused.append((key, refusal(self._name, error)))
                        failed.add(key)
                case Feed(key, payload, last):
                    if key not in failed:
                        engine.feed(key, payload, last)
                case Release(key):
                    engine.release(key)
                    outcome.sizes |= state_bytes(engine, key.session)
                case _:
                    outcome.moved += carry_out(engine, call)
        return failed

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with contextlib.suppress(Exception):  # it is being thrown away, whatever it says
                engine.close()


class ThreadWorker:
    """A worker with a thread of its own. `report` is called on that thread."""

    def __init__(
        self,
        name: str,
        create: Callable[[], SteppedEngine],
        report: Callable[[Report], None],
        clock: Clock,
        niceness: int = 0,
    ) -> None:
        self._niceness = niceness
        self._report = report
        self._seat = EngineSeat(name, create, clock)
        self._orders: queue.SimpleQueue[StepPlan | str] = queue.SimpleQueue()
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name=f"stage-{name}", daemon=True)
        self._thread.start()

    def load(self) -> None:
        self._orders.put("load")

    def submit(self, plan: StepPlan) -> None:
        self._orders.put(plan)

    def stop(self) -> None:
        self._orders.put("stop")

    def abandon(self) -> None:
        self._abandoned = True
        self._orders.put("stop")

    def join(self, timeout_s: float) -> bool:
        """Whether the thread has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        _give_way(self._niceness)
        seat = self._seat
        while (order := self._orders.get()) != "stop" and not self._abandoned:
            report = seat.execute(order) if isinstance(order, StepPlan) else seat.load()
            if not self._abandoned:
                self._report(report)
        seat.close()


def _give_way(niceness: int) -> None:
    """Let the event loop, where everybody is heard, go before this thread on a busy machine. Linux alone has it by thread."""
    if niceness and sys.platform == "linux":
        # of this thread; a process that was started nice stays so
        own = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, own + niceness))


def refusal(name: str, error: Exception) -> str:
    """What a client may read of why its job did not start in the engine of that name."""
    if isinstance(error, ValueError) and (text := " ".join(str(error).split())):
        return text[:200]
    _log.error("the %s engine could not begin a job: %s", name, describe(error))
    return f"the {name} engine could not begin this"


def describe(error: BaseException) -> str:
    """One line about an exception, for messages."""
    text = " ".join(str(error).split())[:200]
    if isinstance(error, SessionServerError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def sendable(error: Exception) -> Exception:
    """An error that arrives in another process: ours as they are, others by what they say."""
    ours = type(error).__module__ == EngineFault.__module__ and len(error.args) == 1
    return error if ours else EngineFault(describe(error))
