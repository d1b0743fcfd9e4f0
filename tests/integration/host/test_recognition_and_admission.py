"""Recognition and judgement as scheduled work; who is let in."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable

import pytest

from engines.base import Stage
from engines.sim.recognition import AsrOptions, SimAsr
from session_server.core.actions import AdoptDraft, CancelGeneration, CancelWork
from session_server.host.messages import (
    CloseSession,
    Failed,
    FromSession,
    JudgeTurn,
    OpenSession,
    Recognise,
    RecognitionDone,
    SessionOpened,
    SessionRefused,
    TurnJudged,
    WorkFailed,
)
from session_server.scheduler.params import SchedulerParams
from session_server.types.audio import NS_PER_S
from tests.integration.host.conftest import Bench

pytestmark = pytest.mark.integration

PCM = bytes(32_000)


def recognise(work, *, session="s", partial=False, due=10 * NS_PER_S):
    return Recognise(session, work, PCM, partial, due)


def answers(bench):
    return {
        m.work_id: m.code if isinstance(m, WorkFailed) else type(m)
        for m in bench.got
        if isinstance(m, RecognitionDone | TurnJudged | WorkFailed)
    }


@pytest.fixture
def gated_asr(replace_engine):
    """An ASR engine whose steps wait for `gate`; `order` is what it worked on."""
    gate = threading.Event()
    order: list[str] = []

    class Gated(SimAsr):
        def step(self, batch):
            gate.wait(10)
            order.extend(request.key.work for request in batch)
            return super().step(batch)

    def make():
        return Gated(AsrOptions(max_batch=1))

    return replace_engine(Stage.ASR, make), gate, order


@pytest.mark.asyncio
async def test_recognition_and_judgement_are_answered(open_bench):
    bench = await open_bench()
    bench.post(OpenSession("s"), recognise("w1"), JudgeTurn("s", "w2", PCM, 10 * NS_PER_S))
    await bench.until(lambda: len(answers(bench)) == 2)
    assert answers(bench) == {"w1": RecognitionDone, "w2": TurnJudged}
    await bench.close("s")


@pytest.mark.asyncio
async def test_finals_pass_partials_and_newer_partials_replace_older(open_bench, gated_asr):
    make, gate, order = gated_asr
    bench = await open_bench(make=make)
    bench.post(OpenSession("a"), OpenSession("b"), recognise("busy", session="a"))
    await bench.until_state("asr", "busy")
    bench.post(
        recognise("p1", session="a", partial=True),
        recognise("p2", session="a", partial=True),
        recognise("f", session="b"),
    )
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 4)
    assert answers(bench)["p1"] == "superseded"
    assert order == ["busy", "f", "p2"]
    await bench.close("a", "b")


@pytest.mark.asyncio
async def test_a_partial_that_is_too_late_is_dropped(open_bench, gated_asr):
    make, gate, order = gated_asr
    bench = await open_bench(make=make)
    bench.post(OpenSession("a"), OpenSession("b"), recognise("busy", session="a"))
    await bench.until_state("asr", "busy")
    due = bench.clock.now() + NS_PER_S // 10
    bench.post(recognise("p", session="b", partial=True, due=due))
    bench.clock.advance(NS_PER_S)
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 2)
    assert answers(bench)["p"] == "late"
    assert order == ["busy"]
    await bench.close("a", "b")


@pytest.mark.asyncio
async def test_a_cancelled_recognition_is_never_answered(open_bench, gated_asr):
    make, gate, _ = gated_asr
    bench = await open_bench(make=make)
    bench.post(OpenSession("s"), recognise("w1"))
    await bench.until_state("asr", "busy")
    bench.post(
        recognise("w2"),
        FromSession("s", CancelWork("w1")),
        FromSession("s", CancelWork("w1")),
        CloseSession("s"),
    )
    gate.set()
    await bench.settle()
    assert not answers(bench)
    assert "asr" in bench.metrics.stales
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_recognition_asked_for_twice_is_answered_once(open_bench):
    bench = await open_bench()
    bench.post(OpenSession("s"), recognise("w"), recognise("w"))
    await bench.settle()
    assert sum(isinstance(m, RecognitionDone) for m in bench.got) == 1
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_flood_of_recognitions_is_bounded(open_bench, gated_asr):
    make, gate, _ = gated_asr
    bench = await open_bench(make=make, params=SchedulerParams(max_work_per_session=8))
    bench.post(OpenSession("s"), *(recognise(f"w{i}") for i in range(12)))
    assert [name for name, what in answers(bench).items() if what == "overloaded"] == [
        "w8",
        "w9",
        "w10",
        "w11",
    ]
    gate.set()
    await bench.until(lambda: len(answers(bench)) == 12)
    await bench.close("s")


@pytest.mark.asyncio
async def test_a_hundred_knocks_at_a_limit_of_eight_let_eight_in(open_bench):
    bench = await open_bench(params=SchedulerParams(max_sessions=8))
    names = [f"s{i}" for i in range(100)]
    bench.post(*(OpenSession(name) for name in names))
    assert sum(isinstance(m, SessionOpened) for m in bench.got) == 8
    refused = [m for m in bench.got if isinstance(m, SessionRefused)]
    assert len(refused) == 92
    assert all("8 sessions" in m.reason for m in refused)
    bench.post(CloseSession("s0"), OpenSession("s50"))
    assert isinstance(bench.got[-1], SessionOpened)
    await bench.close(*names)


async def crowded(open_bench: Callable[..., Awaitable[Bench]], first_audio_s: float) -> Bench:
    """While the long answer "first" of session a speaks there is no room for a turn of session b, which is open."""
    params = SchedulerParams(utilisation=0.05, cores=0.05, first_audio_s=first_audio_s)
    bench = await open_bench(
        {"thinker": {"real_time": True, "base_s": 0.02}}, params=params, real_time=True
    )
    bench.post(OpenSession("b"))  # before costs are known: only turns are judged here
    bench.ask("first", "Tell me a long story", session="a")
    await bench.until(lambda: bool(bench.chunks("first")))
    return bench


@pytest.mark.asyncio
async def test_a_turn_that_would_overload_a_stage_waits_then_is_refused(open_bench):
    bench = await crowded(open_bench, 0.1)
    bench.ask("second", session="b")
    assert bench.end("second") is None
    await bench.ended("second")
    end = bench.end("second")
    assert isinstance(end, Failed)
    assert end.code == "inference_rate_limit_exceeded"
    assert "busy" in end.message
    assert not bench.pcm("second")
    await bench.close("a", "b")


@pytest.mark.asyncio
async def test_a_waiting_turn_is_let_in_when_another_ends(open_bench):
    bench = await crowded(open_bench, 60.0)
    bench.ask("second", session="b")
    first = len(bench.chunks("first"))
    await bench.until(lambda: len(bench.chunks("first")) > first + 1)
    assert not bench.of("second")
    bench.post(CloseSession("a"))
    await bench.until(lambda: bool(bench.chunks("second")))
    await bench.close("b")


@pytest.mark.asyncio
async def test_a_draft_waits_under_load_and_is_judged_as_a_turn_when_adopted(open_bench):
    bench = await crowded(open_bench, 0.1)
    bench.ask("dropped", session="b", epoch=None)
    bench.ask("draft", session="b", epoch=None)
    bench.post(FromSession("b", CancelGeneration("dropped")))
    first = len(bench.chunks("first"))
    await bench.until(lambda: len(bench.chunks("first")) > first + 1)
    assert not bench.of("draft")
    bench.post(FromSession("b", AdoptDraft("draft", "default", 1)))
    await bench.ended("draft")
    assert isinstance(bench.end("draft"), Failed)
    assert not bench.of("dropped")
    await bench.close("a", "b")


@pytest.mark.asyncio
async def test_a_refusal_says_when_to_try_again_and_the_ladder_is_reported(open_bench):
    bench = await crowded(open_bench, 0.1)
    bench.ask("second", session="b")
    await bench.ended("second")
    assert "try again in" in bench.end("second").message
    decisions = {decision for decision, _ in bench.metrics.decisions}
    assert {"defer", "refuse", "admit"} <= decisions
    bench.ask("third", session="b")
    await bench.ended("third")
    assert "defer" in bench.metrics.steps
    assert bench.metrics.steps[-1] == "refuse"
    await bench.close("a", "b")


@pytest.mark.asyncio
async def test_three_times_the_sessions_are_refused_by_what_steps_cost(open_bench):
    """Costs known from a profile: a burst of sessions fills the server to its load and not beyond."""
    bench = await open_bench(params=SchedulerParams(max_sessions=1000, cores=100, utilisation=0.9))
    for stage in ("thinker", "talker", "codec", "vocoder"):
        for batch in (1, 2, 4, 8):
            bench.host.costs.observe(stage, batch, 1, int((0.005 + 0.002 * batch) * NS_PER_S))
    names = [f"s{i}" for i in range(300)]
    bench.post(*(OpenSession(name) for name in names))
    opened = sum(isinstance(m, SessionOpened) for m in bench.got)
    refused = [m for m in bench.got if isinstance(m, SessionRefused)]
    assert 1 < opened < 200
    assert len(refused) == 300 - opened
    assert all("busy" in m.reason and m.retry_after_s >= 1 for m in refused)
    assert bench.metrics.decisions["refuse", "session_load"] == len(refused)
    bench.post(CloseSession("s0"), OpenSession("again"), OpenSession("too many"))
    assert sum(isinstance(m, SessionOpened) for m in bench.got) == opened + 1
    await bench.close(*names, "again", "too many")
