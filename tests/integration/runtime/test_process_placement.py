"""A stage in a process of its own: the same contract, and one clear error for whoever was in it when it is killed."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from engines.base import (
    Capabilities,
    ChatMessage,
    JobKey,
    NoCapacity,
    Stage,
    StepRequest,
    StepResult,
    ThinkJob,
)
from engines.conformance.stepped_checks import (
    CHECKS,
    Check,
    an_engine_that_was_closed_can_be_loaded_again,
    storm,
)
from engines.conformance.stepped_kit import SteppedKit
from engines.graph import Graph, Placement, StageSpec
from engines.model_store import ModelStore
from session_server.runtime.process_worker import ProcessWorker
from session_server.runtime.stage_assembly import RegisteredEngine
from session_server.runtime.stage_worker import (
    Call,
    Feed,
    Loaded,
    LoadFailed,
    Outcome,
    Plan,
    Release,
    Report,
    Start,
)

pytestmark = pytest.mark.integration

NOWHERE = ModelStore(Path("none"))
THINKER = StageSpec(Stage.THINKER, "sim.thinker", placement=Placement.PROCESS)


class Remote:
    """A stepped engine's calls, carried to a worker's process and back: for the checks of the contract."""

    def __init__(self, spec: StageSpec) -> None:
        self.reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self.worker = ProcessWorker(
            spec.stage.value, RegisteredEngine(spec, NOWHERE), self.reports.put
        )
        self.capabilities = Capabilities(spec.stage, 1)

    def load(self) -> None:
        self.worker.load()
        report = self.reports.get(timeout=60)
        if isinstance(report, LoadFailed):
            raise report.error
        assert isinstance(report, Loaded)
        self.capabilities = report.capabilities

    def ask(self, calls: Sequence[Call], batch: Sequence[StepRequest] = ()) -> Outcome:
        self.worker.submit(Plan(list(calls), list(batch)))
        outcome = self.reports.get(timeout=60)
        assert isinstance(outcome, Outcome)
        assert outcome.fault is None, outcome.fault
        return outcome

    def start(self, key: JobKey, job: object) -> None:
        outcome = self.ask([Start(key, job)])
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
        assert self.worker.join(20)
        assert self.worker.pid is None


@pytest.fixture(scope="module")
def remote() -> Iterator[Remote]:
    engine = Remote(THINKER)
    engine.load()
    yield engine
    engine.end()


def kit() -> SteppedKit:
    def job(n: int) -> ThinkJob:
        return ThinkJob("Be brief.", (ChatMessage("user", f"Number {n} please"),))

    return SteppedKit(lambda: Remote(THINKER), job)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_contract_holds_through_a_process(remote: Remote, check: Check) -> None:
    check(kit(), remote)


def test_much_at_once_through_a_process(remote: Remote) -> None:
    storm(kit(), remote, seed=1)
    assert remote.capabilities.own_thread is False


def test_an_engine_that_was_loaded_again_in_its_process_knows_nothing_of_before(
    remote: Remote,
) -> None:
    an_engine_that_was_closed_can_be_loaded_again(
        SteppedKit(lambda: remote, kit().job)  # the one that there is: a load makes it anew
    )


def test_arrays_cross_in_shared_memory_and_come_back_whole() -> None:
    spec = StageSpec(Stage.VOCODER, "sim.vocoder")
    engine = Remote(spec)
    try:
        engine.load()
        block = np.arange(60_000, dtype=np.float32)
        engine.feed(JobKey("s", "unknown"), block, False)
        assert engine.worker.shared_bytes >= block.nbytes
        before = engine.worker.shared_bytes
        engine.feed(JobKey("s", "unknown"), np.zeros(4_000_000, dtype=np.float32), False)
        assert engine.worker.shared_bytes == before, "what does not fit goes through the pipe"
    finally:
        engine.end()


def test_a_process_that_is_killed_is_one_fault_and_the_next_load_begins_another() -> None:
    engine = Remote(THINKER)
    try:
        engine.load()
        first = engine.worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        report = engine.reports.get(timeout=20)
        assert isinstance(report, Outcome)
        assert report.fault == "its process was killed by signal 9"
        engine.worker.submit(Plan([], []))
        engine.load()
        assert engine.worker.pid not in (None, first)
        assert engine.reports.empty(), "a plan for the dead one is nothing"
    finally:
        engine.end()


def test_an_engine_that_cannot_be_loaded_says_why_and_leaves_no_process() -> None:
    engine = Remote(StageSpec(Stage.THINKER, "sim.thinker", options={"nonsense": 1}))
    with pytest.raises(Exception, match=r"graph\.stages\.thinker\.options\.nonsense: "):
        engine.load()
    assert engine.worker.pid is None
    engine.end()


def test_a_device_is_an_option_of_the_engine() -> None:
    spec = StageSpec(Stage.THINKER, "sim.thinker", device="cuda:1")
    assert spec.engine_options == {"device": "cuda:1"}
    with pytest.raises(Exception, match=r"device: unknown option"):
        RegisteredEngine(spec, NOWHERE)()


def test_a_placement_is_read_from_the_graph() -> None:
    stages = {
        name: {"engine": f"sim.{name}", "placement": "process", "device": "cpu"}
        for name in ("asr", "thinker", "talker", "codec", "vocoder")
    }
    edges = [
        {"from": "thinker", "to": "talker", "capacity": 9},
        {"from": "talker", "to": "codec", "capacity": 2},
        {"from": "codec", "to": "vocoder", "capacity": 2},
    ]
    graph = Graph.from_mapping({"stages": stages, "edges": edges})
    assert {spec.placement for spec in graph.stages} == {Placement.PROCESS}
    assert {spec.device for spec in graph.stages} == {"cpu"}
