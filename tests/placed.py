"""A stepped engine that runs where a stage may: its calls are carried to a worker, and back, for the checks of the contract."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from engines.base import Capabilities, JobKey, NoCapacity, StepRequest, StepResult
from engines.graph import Placement, StageSpec
from engines.model_store.store import ModelStore
from session_server.host.stage_assembly import RegisteredEngine, placed_worker
from session_server.host.stages.stage_worker import (
    Call,
    EngineLoaded,
    Feed,
    LoadFailed,
    Release,
    Report,
    StartJob,
    StepOutcome,
    StepPlan,
)
from session_server.process.clock import MonotonicClock

_HANG_S = 300
"""No bar: what takes this long has hung."""


class PlacedEngine:
    """Behaves as the engine that `spec` names. `end` it."""

    def __init__(self, spec: StageSpec, store: ModelStore) -> None:
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        create = RegisteredEngine(spec, store)
        self.worker = placed_worker(spec, create, self._reports.put, MonotonicClock())
        self.in_process = spec.placement is Placement.PROCESS
        self.capabilities = Capabilities(spec.stage, 1)

    def load(self) -> None:
        self.worker.load()
        report = self.next_report()
        if isinstance(report, LoadFailed):
            raise report.error
        assert isinstance(report, EngineLoaded)
        self.capabilities = report.capabilities
        assert not (self.in_process and self.capabilities.own_thread)

    def next_report(self) -> Report:
        return self._reports.get(timeout=_HANG_S)

    @property
    def says_nothing(self) -> bool:
        return self._reports.empty()

    def ask(self, calls: Sequence[Call], batch: Sequence[StepRequest] = ()) -> StepOutcome:
        self.worker.submit(StepPlan(list(calls), list(batch)))
        outcome = self.next_report()
        assert isinstance(outcome, StepOutcome)
        assert outcome.fault is None, outcome.fault
        return outcome

    def start(self, key: JobKey, job: object) -> None:
        outcome = self.ask([StartJob(key, job)])
        if outcome.no_room:
            raise NoCapacity("no slot")
        if outcome.refused:
            raise ValueError(outcome.refused[0][1])

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        self.ask([Feed(key, payload, last)])

    def release(self, key: JobKey) -> None:
        self.ask([Release(key)])

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        return self.ask([], batch).results

    def close(self) -> None:
        """What a worker does of itself before it loads anew."""

    def end(self) -> None:
        self.worker.stop()
        assert self.worker.join(_HANG_S)
