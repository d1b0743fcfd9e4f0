"""A stage in a process of its own: what crosses, and one clear error for whoever was in it when it is killed."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engines.base import JobKey, Stage
from engines.graph import Graph, Placement, StageSpec
from engines.model_store.store import ModelStore
from session_server.host.stage_assembly import RegisteredEngine
from session_server.host.stages.stage_worker import StepOutcome, StepPlan
from tests.placed import PlacedEngine

pytestmark = pytest.mark.integration

NOWHERE = ModelStore(Path("none"))
THINKER = StageSpec(Stage.THINKER, "sim.thinker", placement=Placement.PROCESS)


def test_arrays_cross_in_shared_memory_and_come_back_whole() -> None:
    spec = StageSpec(Stage.VOCODER, "sim.vocoder", placement=Placement.PROCESS)
    engine = PlacedEngine(spec, NOWHERE)
    try:
        engine.load()
        block = np.arange(60_000, dtype=np.float32)
        engine.feed(JobKey("s", "unknown"), block, False)
        assert engine.worker.process.channel.in_arena >= block.nbytes
        before = engine.worker.process.channel.in_arena
        engine.feed(JobKey("s", "unknown"), np.zeros(4_000_000, dtype=np.float32), False)
        assert engine.worker.process.channel.in_arena == before, (
            "what does not fit goes through the pipe"
        )
    finally:
        engine.end()


def test_a_process_that_is_killed_is_one_fault_and_the_next_load_begins_another() -> None:
    engine = PlacedEngine(THINKER, NOWHERE)
    try:
        engine.load()
        first = engine.worker.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        report = engine.next_report()
        assert isinstance(report, StepOutcome)
        assert report.fault == "its process was killed by signal 9"
        engine.worker.submit(StepPlan([], []))
        engine.load()
        assert engine.worker.pid not in (None, first)
        assert engine.says_nothing, "a plan for the dead one is nothing"
    finally:
        engine.end()


def test_an_engine_that_cannot_be_loaded_says_why_and_leaves_no_process() -> None:
    spec = replace(THINKER, options={"nonsense": 1})
    engine = PlacedEngine(spec, NOWHERE)
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
