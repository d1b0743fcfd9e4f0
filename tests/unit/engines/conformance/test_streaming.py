"""Every engine that schedules itself keeps the contract of `engines.streaming`: the simulated one, with and without what such
an engine may lack. Big engines are checked where they are installed."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from engines.base import ThinkJob
from engines.conformance.streaming import CHECKS, NO_BOUND, Check, StreamingKit
from engines.conformance.streaming_lifecycle import LIFE_CHECKS, LifeCheck, storm
from engines.model_store.store import ModelStore
from engines.registry import is_streaming, streaming_factory
from engines.sim.streaming_thinker import SimStreamingThinker
from engines.streaming import AnswerFailed, StreamingEngine
from session_server.types.errors import ConfigError
from session_server.types.prompt import PromptMessage

pytestmark = [pytest.mark.unit, pytest.mark.asyncio]

PLAIN: Mapping[str, object] = {"words": 30, "max_batch": 3}
WITHOUT = {**PLAIN, "holds": False, "reprioritises": False, "warms": False}
OPTIONS = {"all": PLAIN, "without": WITHOUT}


def job(n: int) -> ThinkJob:
    history = (
        PromptMessage("user", "How are you today, and how is the weather where you are?"),
        PromptMessage("assistant", "I am well, thank you, and the weather is fine all day."),
    )
    asked = PromptMessage("user", f"Tell me about number {n} please")
    return ThinkJob("You are a helpful voice assistant. Answer briefly.", (*history, asked))


def kit(options: Mapping[str, object]) -> StreamingKit:
    create = streaming_factory("sim.streaming_thinker")

    def kill(engine: StreamingEngine) -> None:
        assert isinstance(engine, SimStreamingThinker)
        engine.die("killed by a test")

    return StreamingKit(
        lambda: create(options, ModelStore(Path("none"))), job, kill=kill, points=32
    )


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_contract(check: Check, options: Mapping[str, object]) -> None:
    tools = kit(options)
    engine = tools.create()
    await engine.load()
    try:
        await check(tools, engine)
    finally:
        await engine.close()


@pytest.mark.parametrize("check", LIFE_CHECKS, ids=lambda check: check.__name__)
async def test_the_life_of_an_engine(check: LifeCheck) -> None:
    await check(kit(PLAIN))


@pytest.mark.parametrize("seed", range(6))
async def test_much_at_once_in_random_order(seed: int) -> None:
    tools = kit(PLAIN)
    engine = tools.create()
    await engine.load()
    try:
        await storm(tools, engine, seed)
    finally:
        await engine.close()


async def test_one_answers_failure_leaves_its_neighbours_alone() -> None:
    tools = kit({**PLAIN, "fail_job_at_step": 3})
    engine = tools.create()
    await engine.load()
    streams = [engine.generate(tools.key(), job(n), NO_BOUND) for n in range(3)]
    with pytest.raises(AnswerFailed, match="one answer"):
        await tools.rest(streams[0])
    for stream in streams[1:]:
        assert (await tools.rest(stream))[-1].reason == "stop"
    await engine.close()


async def test_what_sessions_share_is_read_once() -> None:
    tools = kit(PLAIN)
    engine = tools.create()
    await engine.load()
    outputs = [
        await tools.rest(engine.generate(tools.key(f"s{n}"), job(n), NO_BOUND)) for n in (1, 2)
    ]
    cached = [of_one[-1].cached_tokens for of_one in outputs]
    assert cached[0] == 0
    assert cached[1] >= outputs[1][-1].prompt_tokens // 2
    await engine.close()


async def test_a_wrong_option_or_name_is_said() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        streaming_factory("sim.streaming_thinker")({"nonsense": 1}, ModelStore(Path("none")))
    with pytest.raises(ConfigError, match=r"x: unknown engine 'sim.thinker'"):
        streaming_factory("sim.thinker", "x")
    assert not is_streaming("sim.thinker")
