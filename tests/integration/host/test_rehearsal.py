"""A server that has just started knows what its steps cost: it rehearsed, where they are work of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engines.base import Capabilities, SteppedEngine
from engines.graph import StageSpec
from engines.model_store.store import ModelStore
from session_server.host import calibration
from session_server.host.messages import OpenSession, SessionOpened, SessionRefused
from session_server.host.stage_assembly import registered_engine
from session_server.scheduler.params import SchedulerParams
from tests.integration.host.conftest import Bench

pytestmark = pytest.mark.integration

NAMES = [f"s{number}" for number in range(20)]
NO_CORES = SchedulerParams(max_sessions=1000, cores=1e-6, utilisation=0.9)
"""Anything that costs anything is too much."""


class OnItsThread:
    """An engine, that says that all of its work is done on the thread that calls it: so it is."""

    def __init__(self, engine: SteppedEngine) -> None:
        self._engine = engine
        self.load, self.close = engine.load, engine.close
        self.start, self.feed = engine.start, engine.feed
        self.step, self.release = engine.step, engine.release

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._engine.capabilities, own_thread=True)


def on_its_thread(spec: StageSpec, store: ModelStore) -> Callable[[], SteppedEngine]:
    make = registered_engine(spec, store)
    return lambda: OnItsThread(make())


def knock(bench: Bench) -> tuple[int, list[SessionRefused]]:
    """All at one instant: how many were let in, and what the others heard."""
    bench.got.clear()
    bench.post(*(OpenSession(name) for name in NAMES))
    opened = sum(isinstance(message, SessionOpened) for message in bench.got)
    return opened, [message for message in bench.got if isinstance(message, SessionRefused)]


@pytest.mark.asyncio
async def test_a_server_that_has_just_started_lets_no_more_in_than_it_can_serve(open_bench):
    bench = await open_bench(params=NO_CORES, make=on_its_thread)
    assert knock(bench)[0] == len(NAMES), "blind: nothing was measured"
    await bench.close(*NAMES)
    await bench.host.rehearse("heart")
    opened, refused = knock(bench)
    assert opened == 1, "whoever is alone is let in"
    assert all("busy" in one.reason and one.retry_after_s >= 1 for one in refused)
    told = [one.retry_after_s for one in refused]
    assert told == sorted(told), "one after the other"
    prediction = bench.host.prediction
    assert prediction.load > 1
    assert prediction.answers > 0
    assert prediction.uncounted > 0
    await bench.close(*NAMES)


@pytest.mark.asyncio
async def test_a_rehearsal_is_heard_by_nobody_and_leaves_nothing(open_bench):
    bench = await open_bench(params=replace(NO_CORES, cores=1e6), make=on_its_thread)
    await bench.host.rehearse("heart")
    assert not bench.got
    assert not bench.metrics.first_chunks
    assert not bench.metrics.wastes
    assert {stage for stage, _ in bench.metrics.batches} == {
        "thinker",
        "talker",
        "codec",
        "vocoder",
    }
    await bench.close()
    assert knock(bench)[0] == len(NAMES), "there is room for all"
    await bench.close(*NAMES)


@pytest.mark.asyncio
@pytest.mark.parametrize("own_thread", [True, False])
async def test_only_what_admission_needs_and_this_machine_does_is_rehearsed(open_bench, own_thread):
    params = replace(NO_CORES, admission=not own_thread)
    make = on_its_thread if own_thread else registered_engine
    bench = await open_bench(params=params, make=make)
    await bench.host.rehearse("heart")
    assert not bench.metrics.batches
    await bench.close()


@pytest.mark.asyncio
async def test_a_stage_that_hangs_in_the_rehearsal_is_named_and_the_door_waits_for_it(
    open_bench, monkeypatch, caplog
):
    monkeypatch.setattr(calibration, "MOST_S", 0.1)
    hangs = {"talker": {"hang_at_step": 1, "hang_s": 30.0}}
    bench = await open_bench(hangs, params=NO_CORES, make=on_its_thread, step_limit_s=0.5)
    await bench.host.rehearse("heart")
    said = [record for record in caplog.records if record.name == calibration.__name__]
    assert [record.levelname for record in said] == ["WARNING"]
    assert "not over after 0.1 s (in a step of:" in said[0].getMessage()
    assert "talker" in said[0].getMessage()
    assert bench.metrics.failures == [("talker", "hung")], "the step was given up"
    assert bench.host.stage_states["talker"] != "busy"
    await bench.until_ready()
    await bench.close()


@pytest.mark.asyncio
async def test_a_rehearsal_that_fails_says_so(open_bench, caplog):
    fails = {"vocoder": {"throw_at_step": 1}}
    bench = await open_bench(fails, params=NO_CORES, make=on_its_thread)
    await bench.host.rehearse("heart")
    said = [record for record in caplog.records if record.name == calibration.__name__]
    assert [record.levelname for record in said] == ["WARNING"]
    assert "the rehearsal failed (the vocoder engine failed" in said[0].getMessage()
    await bench.until_ready()
    await bench.close()
