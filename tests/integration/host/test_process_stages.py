"""Stages in processes of their own, as an answer goes through them."""

from __future__ import annotations

import os
import signal

import pytest

from engines.base import Stage
from engines.sim.wave import verify
from session_server.host.messages import Finished
from session_server.host.stages import engine_keeper
from session_server.types.errors import ConfigError
from tests.until import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LONG = "Tell me a long story about the sea"


def pid_of(bench, stage):
    return bench.host.stages.runners[stage]._worker.pid


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_an_answer_is_whole_through_processes_that_are_killed_and_come_back(open_bench):
    bench = await open_bench({"thinker": {"long_words": 300}}, in_processes=("thinker", "codec"))
    bench.ask("r", LONG)
    await bench.ended("r")
    assert verify(bench.pcm("r"), "r").complete
    bench.play = False  # so that both are in the middle of something
    for n in range(2):
        bench.ask(f"killed{n}", LONG, session=f"s{n}")
    await bench.until(lambda: all(bench.chunks(f"killed{n}") for n in range(2)))
    first = pid_of(bench, Stage.THINKER)
    os.kill(first, signal.SIGKILL)
    await bench.ended("killed0", "killed1")
    for n in range(2):
        assert bench.end(f"killed{n}").message == (
            "the thinker engine failed: its process was killed by signal 9"
        )
    assert bench.metrics.failures == [("thinker", "threw")]
    bench.play = True
    bench.ask("after", epoch=2)
    await bench.ended("after")
    assert isinstance(bench.end("after"), Finished)
    assert pid_of(bench, Stage.THINKER) not in (None, first)
    await bench.close("s", "s0", "s1")


async def test_a_step_that_hangs_in_a_process_is_killed(open_bench):
    bench = await open_bench(
        {"thinker": {"hang_at_step": 4, "real_time": True}},
        in_processes=("thinker",),
        step_limit_s=0.4,
    )
    first = pid_of(bench, Stage.THINKER)
    bench.ask("r")
    await bench.ended("r")
    assert bench.end("r").message == "the thinker engine hung"
    await bench.until_ready()
    assert pid_of(bench, Stage.THINKER) != first
    assert not is_running(first)
    await bench.close("s")


async def test_a_process_that_stands_still_while_it_loads_anew_is_noticed_soon(
    open_bench, monkeypatch
):
    monkeypatch.setattr(engine_keeper, "AGAIN_S", 2.0)
    monkeypatch.setattr(engine_keeper, "RETRY_S", (0.01,))
    bench = await open_bench(in_processes=("thinker",))
    first = pid_of(bench, Stage.THINKER)
    os.kill(first, signal.SIGKILL)
    await until(lambda: pid_of(bench, Stage.THINKER) not in (None, first))
    second = pid_of(bench, Stage.THINKER)
    os.kill(second, signal.SIGSTOP)
    assert bench.host.stage_states["thinker"] == "loading"
    bench.ask("r")
    await bench.ended("r")
    assert bench.end("r").message == "the thinker engine is down"
    assert ("thinker", "not_loaded") in bench.metrics.failures
    await bench.until_ready()
    assert pid_of(bench, Stage.THINKER) not in (None, first, second)
    assert not is_running(second)
    await bench.close("s")


async def test_a_process_that_ends_again_and_again_with_nothing_to_do_is_begun_after_pauses(
    open_bench, monkeypatch
):
    bench = await open_bench(in_processes=("thinker",))

    async def killed(then):
        os.kill(pid_of(bench, Stage.THINKER), signal.SIGKILL)
        await bench.until_state("thinker", then)

    monkeypatch.setattr(engine_keeper, "RETRY_S", (0.3, 1.0))
    for state in ("loading", "down"):
        await killed(then=state)
        await bench.until_ready()
    bench.ask("r")
    await bench.ended("r")
    assert isinstance(bench.end("r"), Finished)
    for state in ("loading", "down"):  # it has worked
        await killed(then=state)
        await bench.until_ready()
    await killed(then="down")
    bench.ask("meanwhile", epoch=2)
    await bench.ended("meanwhile")
    assert bench.end("meanwhile").message == "the thinker engine is down"
    await bench.until_ready()
    await bench.close("s")


async def test_an_engine_that_schedules_itself_has_no_placement(open_bench):
    with pytest.raises(ConfigError, match=r"graph\.stages\.thinker\.placement"):
        await open_bench(thinker="sim.streaming_thinker", in_processes=("thinker",))
