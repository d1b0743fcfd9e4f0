"""What the checks of a stepped engine need to know of it, and how they run its jobs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engines.base import (
    AcousticFrames,
    JobKey,
    Pcm,
    Spectra,
    Speech,
    SteppedEngine,
    StepRequest,
    StepResult,
    TokenOutput,
)

_MANY_STEPS = 4000


def _nothing_fed(n: int) -> Sequence[object]:
    return ()


def _equal(one: object, other: object) -> bool:
    return one == other


@dataclass
class SteppedKit:
    """One engine under test, and jobs for it.

    `job(n)`: jobs that differ in n. `payloads(n)`: what job n is fed, in order; empty for stages that are not fed.
    `same`: whether two sayings (see `said`) are equal, where rounding may move. `sizes_matter`, `neighbours_matter`: arithmetic
    that depends on how it is cut or batched, so that only lengths and ends are compared. `held`: how many jobs the engine
    holds, if it can be told. `bad_job`: one that `start` must refuse. `points`: released after 0 .. so many steps.
    """

    create: Callable[[], SteppedEngine]
    job: Callable[[int], object]
    payloads: Callable[[int], Sequence[object]] = _nothing_fed
    same: Callable[[object, object], bool] = _equal
    sizes: tuple[int, ...] = (3, 16, 100_000)
    sizes_matter: bool = False
    neighbours_matter: bool = False
    held: Callable[[SteppedEngine], int] | None = None
    bad_job: object = None
    points: int = 12
    _names: itertools.count[int] = field(default_factory=itertools.count)

    def key(self, session: str = "conformance") -> JobKey:
        """One that was never used."""
        return JobKey(session, f"job{next(self._names)}")

    def start(self, engine: SteppedEngine, n: int) -> JobKey:
        """Job n, with all that it is fed."""
        key = self.key(f"session{n}")
        engine.start(key, self.job(n))
        payloads = self.payloads(n)
        for i, payload in enumerate(payloads):
            engine.feed(key, payload, i + 1 == len(payloads))
        return key

    def run(self, engine: SteppedEngine, n: int, max_units: int) -> list[StepResult]:
        """All results of job n by itself; it is released at the end."""
        key = self.start(engine, n)
        results: list[StepResult] = []
        while not results or not results[-1].finished:
            (result,) = engine.step([StepRequest(key, max_units)])
            assert result.error is None, f"the job fails: {result.error}"
            results.append(result)
            assert len(results) < _MANY_STEPS, "the job ends"
        engine.release(key)
        return results

    def count(self, engine: SteppedEngine) -> int:
        return self.held(engine) if self.held is not None else 0


def said(results: Sequence[StepResult]) -> object:
    """What a job said, in a form that does not depend on how it was stepped."""
    outputs = [result.output for result in results if result.output is not None]
    first = outputs[0] if outputs else None
    if isinstance(first, TokenOutput):
        return "".join(o.text or "" for o in outputs if isinstance(o, TokenOutput))
    if isinstance(first, Pcm):
        return b"".join(o.pcm for o in outputs if isinstance(o, Pcm))
    if isinstance(first, Speech):
        return [(o.units, o.samples, o.words) for o in outputs if isinstance(o, Speech)]
    if isinstance(first, Spectra | AcousticFrames):
        return sum(o.units for o in outputs if isinstance(o, Spectra | AcousticFrames))
    return outputs
