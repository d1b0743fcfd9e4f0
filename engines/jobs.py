"""A stepped engine's jobs by their keys: the book-keeping that is the same whatever a job is.

`JobsByKey` is the base of a `SteppedEngine` that adds its capabilities, `load`, `start` and `step`; `StepsEach` is that of one whose
jobs advance each by itself. What of `release` and `close` is more than the table, an engine adds as well.

Errors: what one job throws in `step_each` fails that job only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from engines.base import Capabilities, JobKey, NoCapacity, StepRequest, StepResult

Job = TypeVar("Job")
Wanted = TypeVar("Wanted")


class JobsByKey(ABC, Generic[Job]):
    """Keeps jobs from `start` to `release`, at most `slots` of them (None: any number)."""

    def __init__(self, slots: int | None = None) -> None:
        self._jobs: dict[JobKey, Job] = {}
        self._most_jobs = slots

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        job = self._jobs.get(key)
        if job is not None:
            self._take(job, payload, last)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()

    def _take(self, job: Job, payload: object, last: bool) -> None:
        """Input of a job; one that is whole when it starts has none."""

    def _accept(self, key: JobKey, job: object, wanted: type[Wanted]) -> Wanted:
        """The job, if it may start: the key is new, a slot is free and the kind is right. Raises
        NoCapacity or ValueError."""
        require_new(self._jobs, key, self._most_jobs)
        return self._checked(job, wanted)

    def _checked(self, value: object, wanted: type[Wanted]) -> Wanted:
        if not isinstance(value, wanted):
            stage, found = self.capabilities.stage.value, type(value).__name__
            raise ValueError(f"the {stage} takes {wanted.__name__}, not {found}")
        return value


class StepsEach(JobsByKey[Job]):
    """A step advances each job of its batch by itself."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return step_each(batch, self._jobs, self._advance)

    @abstractmethod
    def _advance(self, key: JobKey, job: Job, max_units: int) -> StepResult: ...


def step_each(
    batch: Sequence[StepRequest],
    jobs: Mapping[JobKey, Job],
    advance: Callable[[JobKey, Job, int], StepResult],
) -> list[StepResult]:
    """Advance each named job by itself. What one throws fails that one only; an unknown key (released while
    its step was on the way) gives an empty, finished result."""
    results = []
    for request in batch:
        key = request.key
        job = jobs.get(key)
        if job is None:
            results.append(StepResult(key, finished=True))
            continue
        try:
            results.append(advance(key, job, request.max_units))
        except Exception as error:  # a job's failure is data here: the runtime fails that response
            results.append(StepResult(key, error=f"{type(error).__name__}: {error}"))
    return results


def require_new(jobs: Mapping[JobKey, object], key: JobKey, slots: int | None = None) -> None:
    """Raises ValueError when `key` is already started, NoCapacity when `slots` jobs are."""
    if key in jobs:
        raise ValueError(f"job {key} is already started")
    if slots is not None and len(jobs) >= slots:
        raise NoCapacity(f"all {slots} slots are taken")
