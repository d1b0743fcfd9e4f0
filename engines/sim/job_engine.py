"""What is the same in every simulated engine: its table of jobs, and the steps over it at the machine's price.

An engine adds its options, what a job is, how one is fed, and how it advances. A `SteppedEngine` of `engines.base`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

from engines.base import Capabilities, JobKey, Stage, StepRequest, StepResult
from engines.sim.behaviour import Machine, SimOptions
from engines.stepping import require_new

Options = TypeVar("Options", bound=SimOptions)
Job = TypeVar("Job")
Wanted = TypeVar("Wanted")


class JobEngine(ABC, Generic[Options, Job]):
    """Keeps jobs by key; a job's slot is taken from `start` to `release`."""

    stage: ClassVar[Stage]

    def __init__(self, options: Options) -> None:
        self._options = options
        self._machine = Machine(options)
        self._jobs: dict[JobKey, Job] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self.stage, self._options.max_batch, self._options.slots)

    @property
    def cost_s(self) -> float:
        """What the last step cost."""
        return self._machine.cost_s

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def load(self) -> None:
        self._machine.load()

    @abstractmethod
    def start(self, key: JobKey, job: object) -> None: ...

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """For jobs that are whole when they start: nothing to feed."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return self._machine.step(batch, self._jobs, self._advance)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._machine.close()
        self._jobs.clear()

    @abstractmethod
    def _advance(self, key: JobKey, job: Job, max_units: int) -> StepResult: ...

    def _accept(self, key: JobKey, job: object, wanted: type[Wanted]) -> Wanted:
        """The job, if it may start: the key is new, a slot is free and the kind is right."""
        require_new(self._jobs, key, self._options.slots)
        return self._checked(job, wanted)

    def _checked(self, value: object, wanted: type[Wanted]) -> Wanted:
        if not isinstance(value, wanted):
            found = type(value).__name__
            raise ValueError(f"the {self.stage.value} takes {wanted.__name__}, not {found}")
        return value
