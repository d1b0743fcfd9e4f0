"""What drives one stage, as everybody else sees it: a stepped engine's `StageRunner`, or a `StreamingRunner`.

All calls are on the event loop's thread and return at once.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from typing import Protocol

from engines.base import Capabilities, JobKey, Stage, StepResult
from session_server.host.stages.job_table import JobOwner
from session_server.host.stages.kv_store import StateCall, StateGate
from session_server.process.clock import Loop, TimerHandle
from session_server.scheduler.work import WorkItem

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
