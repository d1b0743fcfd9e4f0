"""What all simulated engines share: a cost for each step, and faults on demand.

Cost of a step in seconds: `base_s + per_item_s * batch + per_unit_s * units`, times `scale`. With `real_time`
it is slept on the stage's thread, as a real engine would be busy there; else it is only reported
(`cost_s`), for simulations in virtual time. Steps count from 1 and go on counting over a restart, so a fault
happens once.

An engine adds its options, what a job is, how one is fed, and how it advances. A `SteppedEngine` of `engines.base`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from engines.base import Capabilities, JobKey, Stage, StepRequest, StepResult
from engines.jobs import Job, StepsEach, step_each
from engines.options import Count


class SimulatedFault(RuntimeError):
    """Thrown because the options asked for it."""


@dataclass(frozen=True, slots=True)
class SimOptions:
    """Options that every simulated engine takes. A fault's number 0 means never.

    `throw_at_step`: that step throws. `hang_at_step`: it hangs until the engine is closed, or `hang_s`.
    `fail_job_at_step`: the first job of that step fails by itself.
    """

    base_s: float = 0.0
    per_item_s: float = 0.0
    per_unit_s: float = 0.0
    real_time: bool = False
    scale: float = 1.0
    seed: int = 0
    max_batch: Count = 8
    slots: Count | None = None
    throw_at_step: int = 0
    hang_at_step: int = 0
    hang_s: float = 60.0
    fail_job_at_step: int = 0


class Machine:
    """Runs steps for one engine with the cost and the faults that its options ask for."""

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.cost_s = 0.0
        self.steps = 0
        self._closed = threading.Event()

    def load(self) -> None:
        self._closed.clear()

    def close(self) -> None:
        """May be called from any thread: a step that hangs ends with a fault."""
        self._closed.set()

    def step(
        self,
        batch: Sequence[StepRequest],
        jobs: Mapping[JobKey, Job],
        advance: Callable[[JobKey, Job, int], StepResult],
    ) -> list[StepResult]:
        """`step_each`, at a price."""
        self.steps += 1
        self._fault()
        results = step_each(batch, jobs, advance)
        if self.steps == self.options.fail_job_at_step and results:
            results[0] = StepResult(results[0].key, error="simulated failure of one job")
        self._charge(len(batch), sum(result.units for result in results))
        return results

    def _fault(self) -> None:
        if self.steps == self.options.throw_at_step:
            raise SimulatedFault(f"step {self.steps} was told to throw")
        if self.steps == self.options.hang_at_step:
            self._closed.wait(self.options.hang_s)
            raise SimulatedFault(f"step {self.steps} was told to hang")

    def _charge(self, batch: int, units: int) -> None:
        o = self.options
        self.cost_s = o.scale * (o.base_s + o.per_item_s * batch + o.per_unit_s * units)
        if o.real_time and self.cost_s > 0:
            time.sleep(self.cost_s)


Options = TypeVar("Options", bound=SimOptions)


class JobEngine(StepsEach[Job], Generic[Options, Job]):
    """A job's slot is taken from `start` to `release`."""

    stage: ClassVar[Stage]

    def __init__(self, options: Options) -> None:
        super().__init__(options.slots)
        self._options = options
        self._machine = Machine(options)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.stage, self._options.max_batch, self._options.slots)

    @property
    def cost_s(self) -> float:
        """What the last step cost."""
        return self._machine.cost_s

    def load(self) -> None:
        self._machine.load()

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return self._machine.step(batch, self._jobs, self._advance)

    def close(self) -> None:
        self._machine.close()
        super().close()
