"""Engines that throw, hang, fail to load or lie: their responses fail clearly, all others go on."""

from __future__ import annotations

import asyncio

import pytest

from engines.base import Capabilities, JobKey, NoCapacity, Stage, StepResult
from engines.sim.speech import SimTalker, TalkerOptions
from engines.sim.thinker import SimThinker, ThinkerOptions
from engines.sim.wave import verify
from session_server.host.messages import (
    CallStarted,
    Failed,
    JudgeTurn,
    OpenSession,
    Recognise,
    SessionOpened,
    WorkFailed,
)
from session_server.types.errors import ConfigError, ModelsMissing
from session_server.types.tools import Tool

pytestmark = pytest.mark.integration

SPEECH = ["thinker", "talker", "codec", "vocoder"]


@pytest.mark.parametrize("stage", SPEECH)
@pytest.mark.asyncio
async def test_a_step_that_throws_fails_its_response_and_the_next_one_is_whole(open_bench, stage):
    bench = await open_bench({stage: {"throw_at_step": 2}})
    bench.ask("r", "Tell me a long story")
    await bench.ended("r")
    end = bench.end("r")
    assert isinstance(end, Failed)
    assert end.code == "server_error"
    assert stage in end.message
    assert verify(bench.pcm("r"), "r").intact
    bench.ask("next")
    await bench.ended("next")
    assert verify(bench.pcm("next"), "next").complete
    assert bench.metrics.failures == [(stage, "threw")]
    await bench.close("s")


@pytest.mark.parametrize("stage", SPEECH)
@pytest.mark.asyncio
async def test_a_step_that_hangs_is_given_up(open_bench, stage):
    # the first engine hangs; the one that takes its place counts its own steps, so it must not be told to
    bench = await open_bench({stage: {"hang_at_step": 6, "hang_s": 30.0}}, step_limit_s=0.2)
    bench.ask("r", "Tell me a long story")
    await bench.ended("r")
    end = bench.end("r")
    assert isinstance(end, Failed)
    assert f"{stage} engine hung" in end.message
    assert bench.metrics.failures == [(stage, "hung")]
    await bench.until_ready()
    bench.ask("next", "Hi")
    await bench.ended("next")
    await bench.close("s")


@pytest.mark.parametrize("stage", SPEECH)
@pytest.mark.asyncio
async def test_a_job_that_fails_alone_harms_no_other_in_its_batch(open_bench, stage):
    bench = await open_bench({stage: {"fail_job_at_step": 1}})
    for name in ("a", "b", "c"):
        bench.ask(name, session=name)
    await bench.ended("a", "b", "c")
    failed = [name for name in ("a", "b", "c") if isinstance(bench.end(name), Failed)]
    assert len(failed) == 1
    for name in {"a", "b", "c"} - set(failed):
        assert verify(bench.pcm(name), name).complete
    assert not bench.metrics.failures
    await bench.close("a", "b", "c")


@pytest.mark.asyncio
async def test_recognition_survives_a_crash_of_the_talker_and_the_other_way_round(open_bench):
    bench = await open_bench({"asr": {"throw_at_step": 1}})
    bench.post(OpenSession("s"), Recognise("s", "w1", bytes(3200), False, bench.clock.now()))
    bench.ask("r")
    await bench.ended("r")
    await bench.until(lambda: any(isinstance(m, WorkFailed) for m in bench.got))
    assert verify(bench.pcm("r"), "r").complete
    await bench.close("s")


@pytest.mark.parametrize("garbage", ["short", "long"])
@pytest.mark.asyncio
async def test_a_vocoder_that_miscounts_fails_instead_of_shifting_the_words(open_bench, garbage):
    bench = await open_bench({"vocoder": {"garbage": garbage}})
    bench.ask("r")
    await bench.ended("r")
    assert isinstance(bench.end("r"), Failed)
    assert "samples" in bench.end("r").message
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_codec_that_gives_too_much_fails_its_response(open_bench):
    bench = await open_bench({"codec": {"extra_units": 3}})
    bench.ask("r")
    await bench.ended("r")
    assert isinstance(bench.end("r"), Failed)
    await bench.close("s")


@pytest.mark.asyncio
async def test_missing_models_end_the_start_and_stop_the_rest(open_bench, replace_engine):
    class NoModel(SimTalker):
        def load(self) -> None:
            raise ModelsMissing("model file x is not there")

    make = replace_engine(Stage.TALKER, lambda: NoModel(TalkerOptions()))
    with pytest.raises(ModelsMissing, match="model file x"):
        await open_bench(make=make)


@pytest.mark.asyncio
async def test_an_unknown_option_names_its_key(open_bench):
    with pytest.raises(ConfigError, match=r"graph\.stages\.codec\.options.*colour"):
        await open_bench({"codec": {"colour": 3}})


class Crowded(SimTalker):
    """Says it has any number of slots, and has one."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(Stage.TALKER, 8, None)

    def start(self, key: JobKey, job: object) -> None:
        if self.jobs_held:
            raise NoCapacity
        super().start(key, job)


@pytest.mark.asyncio
async def test_a_start_without_room_is_tried_again(open_bench, replace_engine):
    make = replace_engine(Stage.TALKER, lambda: Crowded(TalkerOptions(max_batch=8)))
    bench = await open_bench(make=make)
    for name in ("a", "b", "c"):
        bench.ask(name, session=name)
    await bench.ended("a", "b", "c")
    assert all(verify(bench.pcm(name), name).complete for name in ("a", "b", "c"))
    await bench.close("a", "b", "c")


class Chokes(SimThinker):
    """Breaks half-way through starting some jobs."""

    def start(self, key: JobKey, job: object) -> None:
        super().start(key, job)
        if key.work == "poison":
            raise RuntimeError("parser state: <12 34>")


@pytest.mark.asyncio
async def test_a_start_that_throws_fails_its_own_response_only(open_bench, replace_engine):
    engines: list[SimThinker] = []

    def create() -> SimThinker:
        engines.append(Chokes(ThinkerOptions(max_batch=8)))
        return engines[-1]

    bench = await open_bench(make=replace_engine(Stage.THINKER, create))
    bench.ask("a", session="a")
    await bench.until(lambda: bool(bench.of("a")))
    bench.ask("poison", session="p")
    bench.ask("b", session="b")
    await bench.ended("a", "poison", "b")
    end = bench.end("poison")
    assert isinstance(end, Failed)
    assert "thinker" in end.message
    assert "Error" not in end.message
    assert "parser" not in end.message
    assert verify(bench.pcm("a"), "a").complete
    assert verify(bench.pcm("b"), "b").complete
    assert not bench.metrics.failures
    await bench.close("a", "p", "b")
    assert [engine.jobs_held for engine in engines] == [0]


class NoRoom(SimTalker):
    def start(self, key: JobKey, job: object) -> None:
        raise NoCapacity


@pytest.mark.asyncio
async def test_an_engine_without_any_room_fails_instead_of_waiting_for_ever(
    open_bench, replace_engine
):
    make = replace_engine(Stage.TALKER, lambda: NoRoom(TalkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r")
    await bench.ended("r")
    assert "no room" in bench.end("r").message
    await bench.close("s")


class Mute(SimTalker):
    def step(self, batch):
        return [StepResult(request.key) for request in batch]


@pytest.mark.asyncio
async def test_an_engine_that_does_nothing_for_ever_fails_its_response(open_bench, replace_engine):
    make = replace_engine(Stage.TALKER, lambda: Mute(TalkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r")
    await bench.ended("r")
    assert "talker" in bench.end("r").message
    await bench.close("s")


class Forgetful(SimTalker):
    def step(self, batch):
        return []


@pytest.mark.asyncio
async def test_a_missing_result_is_a_failure(open_bench, replace_engine):
    make = replace_engine(Stage.TALKER, lambda: Forgetful(TalkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r")
    await bench.ended("r")
    assert "gave no result" in bench.end("r").message
    await bench.close("s")


@pytest.mark.asyncio
async def test_an_engine_that_cannot_be_restarted_fails_new_work_until_it_can(
    open_bench, replace_engine
):
    loads = 0

    class Flaky(SimTalker):
        def load(self) -> None:
            nonlocal loads
            loads += 1
            if loads == 2:
                raise RuntimeError("not yet")
            super().load()

        def step(self, batch):
            if loads == 1:
                raise RuntimeError("broken")
            return super().step(batch)

    make = replace_engine(Stage.TALKER, lambda: Flaky(TalkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r")
    await bench.ended("r")
    await bench.until_state("talker", "down")
    assert not bench.host.ready
    bench.ask("down")
    await bench.ended("down")
    assert isinstance(bench.end("down"), Failed)
    await bench.until_ready()
    bench.ask("up")
    await bench.ended("up")
    assert verify(bench.pcm("up"), "up").complete
    await bench.close("s")


@pytest.mark.asyncio
async def test_stopping_in_mid_answer_delivers_nothing_more(open_bench):
    bench = await open_bench()
    bench.ask("r", "Tell me a long story")
    await bench.until(lambda: bool(bench.chunks("r")))
    await bench.host.stop()
    count = len(bench.got)
    await asyncio.sleep(0.02)
    assert len(bench.got) == count


@pytest.mark.asyncio
async def test_a_server_without_a_turn_model_says_so(open_bench):
    bench = await open_bench(without=("turn",))
    bench.post(OpenSession("s"), JudgeTurn("s", "w", bytes(3200), bench.clock.now()))
    (failed,) = [m for m in bench.got if isinstance(m, WorkFailed)]
    assert failed.code == "unsupported"
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_malformed_call_that_had_begun_fails_the_response(open_bench, replace_engine):
    class Sloppy(SimThinker):
        def _answer(self, job):
            return '<tool_call>{"name": "look_up", "arguments": {"a": 1, oops</tool_call> Well.'

    make = replace_engine(Stage.THINKER, lambda: Sloppy(ThinkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r", tools=(Tool("look_up", "Looks up", "{}"),))
    await bench.ended("r")
    assert isinstance(bench.of("r")[0], CallStarted)
    assert "malformed" in bench.end("r").message
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_call_of_an_unknown_tool_is_left_out_and_the_rest_is_said(
    open_bench, replace_engine
):
    class Inventive(SimThinker):
        def _answer(self, job):
            return '<tool_call>{"name": "nothing", "arguments": {}}</tool_call> It is fine.'

    make = replace_engine(Stage.THINKER, lambda: Inventive(ThinkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r")
    await bench.ended("r")
    assert bench.text("r") == "It is fine."
    assert verify(bench.pcm("r"), "r").complete
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_session_that_chokes_on_a_message_harms_no_other(open_bench):
    bench = await open_bench()

    def choke(message):
        if message.session == "bad" and not isinstance(message, SessionOpened):
            raise RuntimeError("cannot take this")

    bench.hook = choke
    bench.ask("bad", session="bad")
    bench.ask("good", session="good")
    await bench.ended("good", "bad")
    assert verify(bench.pcm("good"), "good").complete
    await bench.close("good", "bad")


@pytest.mark.asyncio
async def test_a_talker_that_gives_no_speech_fails_its_response(open_bench, replace_engine):
    class Blank(SimTalker):
        def step(self, batch):
            return [StepResult(request.key, units=1, finished=True) for request in batch]

    make = replace_engine(Stage.TALKER, lambda: Blank(TalkerOptions()))
    bench = await open_bench(make=make)
    bench.ask("r")
    await bench.ended("r")
    assert "no speech" in bench.end("r").message
    await bench.close("s")
