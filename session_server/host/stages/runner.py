"""What drives one stage, as everybody else sees it, and the table of its jobs.

A runner is a stepped engine's `StageRunner`, or a `StreamingRunner`; its calls are on the event loop's thread and
return at once. `JobTable` knows which jobs hold engine state, what was fed to those that do not yet, and the calls that the
engine is owed before its next step.

Invariants: a job's engine state is claimed by exactly one Start and given back by exactly one Release; calls keep
their order, so that a slot freed before a start is free for it; nothing fed before or during a start is lost, even
when the start finds no room.

"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from engines.base import Capabilities, JobKey, Stage, StepResult
from session_server.host.stages.kv_store import ExportState, ImportState, StateCall, StateGate
from session_server.host.stages.preemptible import GivesWay
from session_server.host.stages.stage_worker import Call, Feed, Release, StartJob
from session_server.process.clock import Loop, TimerHandle
from session_server.scheduler.work import WorkItem, WorkKey


class JobOwner(Protocol):
    """Who gets a job's results; called on the event loop's thread."""

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None: ...

    def on_job_failed(self, stage: Stage, key: JobKey, message: str) -> None: ...


class JobPhase(enum.Enum):
    NEW = enum.auto()
    STARTING = enum.auto()
    STARTED = enum.auto()


class Job:
    """`feeds` came before the engine knew the job; the first `sent` of them went with its start."""

    __slots__ = ("feeds", "idle_steps", "job", "key", "owner", "phase", "sent")

    def __init__(self, key: JobKey, owner: JobOwner, job: object) -> None:
        self.key = key
        self.owner = owner
        self.job = job
        self.phase = JobPhase.NEW
        self.feeds: list[tuple[object, bool]] = []
        self.sent = 0
        self.idle_steps = 0


class JobTable:
    """Jobs by key, and the calls that wait."""

    def __init__(self) -> None:
        self._jobs: dict[WorkKey, Job] = {}
        self._calls: list[Call] = []
        self._moves_owed = 0
        self._held = 0
        self._full = False

    def __contains__(self, key: WorkKey) -> bool:
        return key in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def held(self) -> int:
        """Jobs that hold engine state, or are about to."""
        return self._held

    @property
    def left(self) -> dict[str, int]:
        """What is still held, by name, for the check of integrity."""
        return {"jobs": len(self._jobs), "slots": self._held, "calls": len(self._calls)}

    def get(self, key: JobKey) -> Job | None:
        return self._jobs.get(key)

    def keys(self, *, with_state_only: bool = False) -> list[JobKey]:
        return [
            job.key
            for job in self._jobs.values()
            if not with_state_only or job.phase is not JobPhase.NEW
        ]

    def add(self, key: JobKey, job: object, owner: JobOwner) -> None:
        """Raises ValueError for a key that is there: ids are never reused."""
        if key in self._jobs:
            raise ValueError(f"job {key} is there already")
        self._jobs[key] = Job(key, owner, job)

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is None:
            return
        if job.phase is JobPhase.STARTED:
            self._calls.append(Feed(key, payload, last))
        else:
            job.feeds.append((payload, last))

    def name(self, item: WorkItem) -> JobKey:
        """The key under which the item's job was added."""
        return self._jobs[item.key].key

    def may_start(self, item: WorkItem, gate: StateGate) -> bool:
        """Whether the item's job has engine state, or the gate lets it have some."""
        job = self._jobs[item.key]
        return job.phase is not JobPhase.NEW or gate.may_start(item, job.job)

    def make_way(self, granted: Callable[[JobKey], bool]) -> bool:
        """End the speculative job that came last, of those that hold engine state or were `granted` room for it."""
        for key in reversed(self.keys()):
            job = self._jobs.get(key)
            if job is None or not isinstance(job.owner, GivesWay):
                continue
            if (job.phase is not JobPhase.NEW or granted(key)) and job.owner.give_way(key):
                return True
        return False

    def owe(self, call: StateCall) -> None:
        """Let the engine do this before its next step, after what it was owed before."""
        self._calls.append(call)
        self._moves_owed += isinstance(call, ExportState | ImportState)

    @property
    def owes_a_move(self) -> bool:
        """A session's state is to be moved."""
        return self._moves_owed > 0

    def has_state(self, key: JobKey) -> bool:
        job = self._jobs.get(key)
        return job is not None and job.phase is not JobPhase.NEW

    def remove(self, key: JobKey) -> Job | None:
        """Forget the job; its engine state is freed before the next step."""
        job = self._jobs.pop(key, None)
        if job is not None and job.phase is not JobPhase.NEW:
            self._held -= 1
            self._full = False
            self._calls.append(Release(key))
        return job

    def free_slots(self, slots: int | None) -> int | None:
        """Starts that there is room for; None: any number."""
        if self._full:
            return 0
        return None if slots is None else max(0, slots - self._held)

    def plan(self, batch: Iterable[JobKey]) -> list[Call]:
        """The calls before the next step: what is owed, then the starts of jobs in `batch` that are new."""
        calls, self._calls, self._moves_owed = self._calls, [], 0
        for key in batch:
            job = self._jobs[key]
            if job.phase is JobPhase.NEW:
                job.phase = JobPhase.STARTING
                job.sent = len(job.feeds)
                self._held += 1
                calls.append(StartJob(key, job.job))
                calls.extend(Feed(key, payload, last) for payload, last in job.feeds)
        return calls

    def started(self, key: JobKey) -> None:
        """The engine has taken the job: it gets what was fed meanwhile."""
        job = self._jobs.get(key)
        if job is not None and job.phase is JobPhase.STARTING:
            job.phase = JobPhase.STARTED
            self._calls.extend(Feed(key, *feed) for feed in job.feeds[job.sent :])
            job.feeds.clear()

    def found_no_room(self, key: JobKey) -> bool:
        """The start failed for want of room. False: no job holds any, so none will ever be freed."""
        job = self._jobs.get(key)
        if job is None:  # released meanwhile, and that gave the place back
            return True
        job.phase = JobPhase.NEW
        self._held -= 1
        self._full = self._held > 0
        return self._full

    def lose_engine(self) -> None:
        """The engine is gone, and with it whatever it was owed."""
        self._calls.clear()
        self._moves_owed = 0
        self._full = False


_LOG = logging.getLogger(__name__)


class RunnerState(enum.Enum):
    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    DOWN = "down"
    STOPPED = "stopped"


class Runner(Protocol):
    """One stage."""

    stage: Stage
    name: str
    gate: StateGate

    @property
    def state(self) -> RunnerState: ...

    @property
    def capabilities(self) -> Capabilities | None:
        """None until the engine is loaded."""
        ...

    @property
    def last_batch(self) -> int:
        """Jobs in the step that was measured last."""
        ...

    async def start(self) -> None:
        """Load the engine; raises what loading raised."""
        ...

    def begin(self, loop: Loop) -> None:
        """Load the engine, with `loop` for all that happens later."""
        ...

    def stop(self) -> None:
        """No more work; the engine is closed after what is under way."""
        ...

    async def ended(self, limit_s: float) -> None:
        """Wait until the engine is closed, or so long: one that hangs is left behind."""
        ...

    def submit(self, key: JobKey, job: object, owner: JobOwner) -> None:
        """Make a job known. It starts when it is said to be ready and there is room."""
        ...

    def is_started(self, key: JobKey) -> bool:
        """It holds engine state."""
        ...

    def in_step(self, key: JobKey) -> bool:
        """A step of this job is under way: nothing that is said about it now counts."""
        ...

    def is_waiting(self, key: JobKey) -> bool:
        """The job may be advanced, and no step of it is under way."""
        ...

    def ready(self, item: WorkItem) -> None:
        """The job may be advanced; replaces what was said before."""
        ...

    def hold(self, key: JobKey) -> None:
        """The job may not be advanced for now."""
        ...

    def release(self, key: JobKey) -> None:
        """Forget the job; idempotent. Nothing of it reaches its owner any more."""
        ...

    def carry(self, call: StateCall) -> None:
        """Move or free the state of an idle session."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> TimerHandle:
        """On the loop that the stage runs on."""
        ...

    def make_way(self) -> bool:
        """End the speculative job that began last and holds room, for a turn that waits for some."""
        ...

    @property
    def max_batch(self) -> int:
        """Jobs in one step, at most."""
        ...

    @property
    def streams_text(self) -> bool:
        """A talker that speaks while its text is being written."""
        ...

    @property
    def depth(self) -> int:
        """Jobs that wait for a step."""
        ...

    @property
    def starved(self) -> bool:
        """Work waits for room that another job holds."""
        ...

    def check_integrity(self) -> None:
        """Nothing is left. Raises AssertionError naming what is."""
        ...


def hand_over(
    stage: Stage,
    owner: JobOwner,
    result: StepResult,
    now: int,
    release: Callable[[JobKey], None],
) -> None:
    """Give a result to whose it is. A fault in what one response does with it ends that job and harms no other."""
    try:
        owner.on_result(stage, result, now)
    except Exception:
        _LOG.exception("stage %s: a result could not be used", stage.value)
        release(result.key)
        owner.on_job_failed(stage, result.key, "internal error")
