"""How an engine that works job by job answers a batch: one result per request, failures kept apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from engines.base import JobKey, NoCapacity, StepRequest, StepResult

Job = TypeVar("Job")


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
