"""A thinker that schedules itself, in the place of one whose steps the server chooses: everything else stays as it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engines import registry
from engines.base import Stage
from engines.model_store.store import ModelStore
from engines.options import by_type
from engines.sim.streaming_thinker import SimStreamingThinker, StreamingThinkerOptions
from engines.sim.wave import verify
from session_server.core.actions import AdoptDraft, CancelGeneration, RaiseFence, WarmPrefix
from session_server.host.messages import (
    CallFinished,
    Failed,
    Finished,
    FromSession,
    OpenSession,
    TextChunk,
)
from session_server.host.stage_assembly import registered_streaming
from session_server.scheduler.flow_control import DRAFT_LEASE, LEASE
from session_server.scheduler.params import SchedulerParams
from session_server.types.errors import ConfigError, EngineFault
from session_server.types.prompt import PromptMessage
from session_server.types.tools import Tool, ToolChoice
from tests.integration.host.conftest import graph
from tests.until import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

LONG = "Tell me a long story about the sea"
THINKER = "sim.streaming_thinker"


@pytest.fixture
def bench_of(open_bench):
    async def open_one(options=None, **rest):
        return await open_bench({"thinker": options or {}}, thinker=THINKER, **rest)

    return open_one


def engine_of(bench) -> SimStreamingThinker:
    return bench.host.stages.runners[Stage.THINKER]._keeper.engine


def assert_freed(bench) -> None:
    figures = engine_of(bench).figures()
    assert (figures["running"], figures["waiting"], figures["held"]) == (0, 0, 0)


async def test_an_answer_is_spoken_whole_and_the_same_as_from_a_stepped_thinker(
    open_bench, bench_of
):
    texts = []
    for bench in (await open_bench(), await bench_of({"long_words": 60})):
        bench.ask("r", LONG)
        await bench.ended("r")
        end = bench.end("r")
        assert isinstance(end, Finished)
        assert (end.reason, end.output_tokens > 40, end.prompt_tokens > 5) == ("stop", True, True)
        assert verify(bench.pcm("r"), "r").complete
        texts.append(bench.text("r"))
        await bench.close("s")
    assert texts[0] == texts[1]


async def test_a_text_answer_and_a_call_come_through(bench_of):
    bench = await bench_of()
    bench.ask("r", spoken=False)
    tool = Tool("get_weather", "", '{"type": "object", "properties": {}}')
    bench.ask("c", "please get weather", epoch=1, tools=(tool,), lane="other")
    await bench.ended("r", "c")
    assert bench.text("r").startswith("You said")
    assert any(isinstance(m, CallFinished) for m in bench.of("c"))
    await bench.close("s")


@pytest.mark.parametrize("how", ["cancel", "fence"])
@pytest.mark.parametrize("holds", [True, False])
async def test_nothing_comes_after_a_barge_in_at_any_point(bench_of, how, holds):
    bench = await bench_of({"long_words": 60, "holds": holds})
    for point in range(0, 40, 3):
        name = f"r{point}"
        bench.ask(name, LONG, epoch=point + 1)
        await bench.until(lambda name=name, point=point: len(bench.of(name)) >= point)
        bench.post(
            FromSession("s", CancelGeneration(name))
            if how == "cancel"
            else FromSession("s", RaiseFence("default", point + 2))
        )
        count = len(bench.of(name))
        await bench.settle()
        assert len(bench.of(name)) == count, f"message {point}"
        assert_freed(bench)
    bench.ask("next", "Hello there", epoch=99)
    await bench.ended("next")
    assert isinstance(bench.end("next"), Finished)
    await bench.close("s")


@pytest.mark.parametrize("holds", [True, False])
async def test_a_thinker_does_not_run_further_ahead_of_the_listener_than_it_may(bench_of, holds):
    bench = await bench_of({"long_words": 380, "max_tokens": 400, "holds": holds})
    bench.play = False
    bench.ask("r", LONG)
    await bench.settle()
    tokens = sum(len(m.text.split()) for m in bench.of("r") if isinstance(m, TextChunk))
    assert 10 < tokens < 200
    if holds:
        figures = engine_of(bench).figures()
        assert figures["held"] == 1
        made = next(iter(engine_of(bench)._answers.values())).given
        assert tokens <= made <= tokens + LEASE
        steps = figures["steps"]
        await bench.settle()
        assert engine_of(bench).figures()["steps"] == steps, "held answers cost no steps"
    bench.post(FromSession("s", CancelGeneration("r")))
    await bench.close("s")
    assert_freed(bench)


async def test_a_draft_gets_one_small_lease_until_it_is_adopted(bench_of):
    bench = await bench_of({"words": 60})
    bench.ask("d", "What is that", epoch=None)
    await bench.settle()
    answer = next(iter(engine_of(bench)._answers.values()))
    assert answer.given == DRAFT_LEASE
    bench.post(FromSession("s", AdoptDraft("d", "default", 1, bench.clock.now())))
    await bench.ended("d")
    assert isinstance(bench.end("d"), Finished)
    assert verify(bench.pcm("d"), "d").complete
    await bench.close("s")


async def test_a_thinker_that_cannot_read_ahead_is_not_asked_to(bench_of):
    bench = await bench_of({"warms": False})
    asked = []

    async def warm(key, job):
        asked.append(key)

    engine_of(bench).warm = warm
    prompt = (PromptMessage("user", "How are you today?"),)
    bench.post(
        OpenSession("s"), FromSession("s", WarmPrefix("w", "Be brief.", prompt, (), ToolChoice()))
    )
    assert bench.host.prefix_prefills == 0
    await bench.settle()
    assert not asked
    bench.ask("r", "Well")
    await bench.ended("r")
    assert isinstance(bench.end("r"), Finished)
    await bench.close("s")


async def test_only_what_works_on_this_machine_counts_against_its_processors(bench_of):
    for where, here in (("host", True), ("cuda:0", False), ("elsewhere", False)):
        bench = await bench_of({"runs_on": where})
        loads = {load.stage: load.on_host for load in bench.host._gate._loads(1)}
        assert loads == {"thinker": here, "talker": True, "codec": True, "vocoder": True}


async def test_what_was_read_while_the_user_spoke_is_not_read_again(bench_of):
    bench = await bench_of()
    past = (
        PromptMessage("user", "How are you today, and how is the weather where you are?"),
        PromptMessage("assistant", "I am well, thank you, and the weather is fine all day."),
    )
    bench.post(
        OpenSession("s"), FromSession("s", WarmPrefix("w", "Be brief.", past, (), ToolChoice()))
    )
    await bench.settle()
    assert bench.host.prefix_prefills == 0
    assert_freed(bench)
    assert engine_of(bench).figures()["cached_tokens"] == 0
    bench.ask("r", " ".join(["word"] * 20))
    await bench.ended("r")
    bench.post(
        OpenSession("t"), FromSession("t", WarmPrefix("w2", "Be brief.", past, (), ToolChoice()))
    )
    await bench.settle()
    assert engine_of(bench).figures()["cached_tokens"] >= 16, "read once, known since"
    await bench.close("s", "t")


async def test_one_answer_that_fails_harms_no_other(bench_of):
    bench = await bench_of({"fail_job_at_step": 4, "max_batch": 4})
    for n in range(3):
        bench.ask(f"r{n}", LONG, session=f"s{n}")
    await bench.ended("r0", "r1", "r2")
    ends = [bench.end(f"r{n}") for n in range(3)]
    (failed,) = [end for end in ends if isinstance(end, Failed)]
    assert "simulated failure of one answer" in failed.message
    assert bench.metrics.failures == []
    await bench.close("s0", "s1", "s2")


async def test_an_engine_that_dies_costs_each_answer_one_error_and_comes_back(bench_of):
    bench = await bench_of({"long_words": 200})
    for n in range(3):
        bench.ask(f"r{n}", LONG, session=f"s{n}")
    await bench.until(lambda: all(bench.text(f"r{n}") for n in range(3)))
    dead = engine_of(bench)
    dead.die("killed by a test")
    await bench.ended("r0", "r1", "r2")
    for n in range(3):
        assert "the thinker engine failed: killed by a test" in bench.end(f"r{n}").message
    assert bench.metrics.failures == [("thinker", "threw")]
    bench.ask("again", session="s0", epoch=2)
    await bench.ended("again")
    assert isinstance(bench.end("again"), Finished)
    assert engine_of(bench) is not dead
    await bench.close("s0", "s1", "s2")


async def test_an_engine_that_dies_while_nobody_asks_is_replaced(bench_of):
    bench = await bench_of()
    dead = engine_of(bench)
    dead.die("killed by a test")
    while bench.metrics.failures == []:
        await bench.settle()
    await bench.until_ready()
    assert engine_of(bench) is not dead
    bench.ask("r")
    await bench.ended("r")
    assert isinstance(bench.end("r"), Finished)
    await bench.close("s")


async def test_an_engine_that_gives_nothing_to_anybody_is_given_up(bench_of):
    bench = await bench_of({"hang_at_step": 5}, step_limit_s=2.0)
    bench.ask("r")
    hung = engine_of(bench)
    await until(lambda: hung.figures()["steps"] >= 5)
    await asyncio.sleep(0.01)
    bench.clock.advance(10_000_000_000)
    await bench.ended("r")
    assert bench.end("r").message == "the thinker engine hung"
    assert bench.metrics.failures == [("thinker", "hung")]
    await bench.until_ready()
    assert engine_of(bench) is not hung
    await bench.close("s")


class Brittle(SimStreamingThinker):
    """Loads once; the second time it cannot, from then on it can."""

    loads = 0

    async def load(self):
        Brittle.loads += 1
        if Brittle.loads == 2:
            raise EngineFault("no memory")
        await super().load()


def brittle(options, store):
    return Brittle(by_type(options, StreamingThinkerOptions()))


async def test_an_engine_that_cannot_be_brought_back_is_tried_again_and_nobody_waits_for_it(
    open_bench, monkeypatch
):
    monkeypatch.setitem(registry.STREAMING, "test.brittle", f"{__name__}:brittle")
    monkeypatch.setattr(Brittle, "loads", 0)
    monkeypatch.setattr("session_server.host.stages.engine_keeper.RETRY_S", (0.05,))
    bench = await open_bench(thinker="test.brittle")
    bench.ask("r", LONG)
    await bench.until(lambda: bool(bench.text("r")))
    engine_of(bench).die("killed by a test")
    await bench.until_state("thinker", "down")
    bench.ask("meanwhile", session="other")
    await bench.ended("r", "meanwhile")
    assert bench.end("meanwhile").message == "the thinker engine is down"
    await bench.until_ready()
    assert ("thinker", "not_loaded") in bench.metrics.failures
    bench.ask("after", epoch=2)
    await bench.ended("after")
    assert isinstance(bench.end("after"), Finished)
    await bench.close("s", "other")


async def test_steps_and_prompts_are_measured_by_when_tokens_come(bench_of):
    bench = await bench_of(params=SchedulerParams())
    bench.ask("r", LONG)
    await bench.ended("r")
    assert bench.host.costs.knows("thinker", 1)
    await bench.close("s")


async def test_an_engine_that_schedules_itself_can_only_be_the_thinker():
    spec = graph(thinker=THINKER).stage(Stage.THINKER)
    assert spec is not None
    with pytest.raises(ConfigError, match=r"graph\.stages\.thinker\.options\.nonsense: "):
        registered_streaming(replace(spec, options={"nonsense": 1}), ModelStore("none"))()
    with pytest.raises(ConfigError, match="schedules itself; only a thinker may"):
        registry.factory(THINKER, where="graph.stages.asr.engine")
