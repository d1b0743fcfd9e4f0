"""Checks of a streaming engine's life, and of much at once.

`LIFE_CHECKS`: each takes a kit and loads engines of its own. `storm` does things in random order with a loaded engine.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from engines.base import JobKey, TokenOutput
from engines.conformance.streaming import NO_BOUND, StreamingKit
from engines.streaming import Pace, StreamingEngine
from session_server.types.errors import EngineFault

LifeCheck = Callable[[StreamingKit], Awaitable[None]]


async def an_engine_that_was_closed_is_closed_and_can_be_loaded_again(kit: StreamingKit) -> None:
    engine = kit.create()
    await engine.close()
    await engine.load()
    try:
        stream = engine.generate(kit.key(), kit.job(0), NO_BOUND)
        await kit.next(stream)
        await engine.close()
        await engine.close()
        await _ends(kit, stream, "an open answer goes on after close")
        await _is_gone(kit, engine)
        await engine.load()
        assert await kit.whole(engine, kit.short(1, 4)), "it serves again"
        await kit.freed(engine)
    finally:
        await engine.close()


async def an_engine_that_dies_says_so_to_everyone(kit: StreamingKit) -> None:
    if kit.kill is None:
        return
    engine = kit.create()
    await engine.load()
    try:
        streams = [engine.generate(kit.key(), kit.job(n), NO_BOUND) for n in range(3)]
        await kit.next(streams[0])
        kit.kill(engine)
        for stream in streams:
            assert await _fault(kit, stream), "every open answer gets EngineFault, which says why"
        await _is_gone(kit, engine)
        await engine.close()
        await engine.load()
        assert await kit.whole(engine, kit.short(1, 4)), "it serves again"
    finally:
        await engine.close()


async def _is_gone(kit: StreamingKit, engine: StreamingEngine) -> None:
    try:
        engine.figures()
    except EngineFault:
        pass
    else:
        raise AssertionError("figures of an engine that is gone are an EngineFault")
    stream = engine.generate(kit.key(), kit.job(0), NO_BOUND)
    assert await _fault(kit, stream), "an answer of an engine that is gone is an EngineFault"


async def _fault(kit: StreamingKit, stream: AsyncIterator[TokenOutput]) -> str:
    """What the EngineFault says that ends this answer; empty: there is none."""
    try:
        await kit.rest(stream)
    except EngineFault as fault:
        return str(fault)
    return ""


async def _ends(kit: StreamingKit, stream: AsyncIterator[TokenOutput], rule: str) -> None:
    try:
        outputs = await kit.rest(stream)
    except EngineFault:
        return
    assert not outputs, rule


LIFE_CHECKS: tuple[LifeCheck, ...] = (
    an_engine_that_was_closed_is_closed_and_can_be_loaded_again,
    an_engine_that_dies_says_so_to_everyone,
)


@dataclass
class _Open:
    key: JobKey
    stream: AsyncIterator[TokenOutput]
    granted: int | None
    most: int | None
    """The largest grant so far."""
    tokens: int = 0


async def storm(kit: StreamingKit, engine: StreamingEngine, seed: int, moves: int = 60) -> None:
    """Answers begin, are read, lent more, hurried, aborted and left, in random order; every rule holds for each."""
    rng = random.Random(seed)
    answers: list[_Open] = []
    for _ in range(moves):
        move = rng.choice(("begin", "read", "read", "read", "pace", "abort", "leave"))
        if move == "begin" or not answers:
            granted = rng.choice((None, 1, 4, 16)) if engine.capabilities.holds else None
            key = kit.key(f"storm{rng.randrange(4)}")
            pace = Pace(granted, rng.randrange(1000))
            stream = engine.generate(key, kit.job(rng.randrange(3)), pace)
            answers.append(_Open(key, stream, granted, granted))
            continue
        answer = rng.choice(answers)
        if move == "pace":
            if answer.granted is not None:
                answer.granted = answer.most = answer.granted + rng.randrange(1, 6)
            engine.set_pace(answer.key, Pace(answer.granted, rng.randrange(1000)))
        elif move == "read":
            if await _read(kit, answer, rng.randrange(1, 5)):
                answers.remove(answer)
        else:
            answers.remove(answer)
            await _give_up(kit, engine, answer, move)
    for answer in answers:
        await _give_up(kit, engine, answer, "abort")
    await kit.freed(engine)


async def _read(kit: StreamingKit, answer: _Open, outputs: int) -> bool:
    """Whether the answer is over. One that is at its grant is not waited for."""
    for _ in range(outputs):
        if answer.granted is not None and answer.tokens >= answer.granted:
            return False
        output = await kit.next(answer.stream)
        assert output is not None, "an answer does not end without a reason"
        if output.text is not None:
            assert output.output_tokens >= answer.tokens, "output_tokens never falls"
            answer.tokens = output.output_tokens
        assert answer.most is None or answer.tokens <= answer.most, "no more than was granted"
        if output.reason is not None:
            assert await kit.next(answer.stream) is None
            return True
    return False


async def _give_up(kit: StreamingKit, engine: StreamingEngine, answer: _Open, how: str) -> None:
    if how == "abort":
        engine.abort(answer.key)
        assert await kit.next(answer.stream) is None, "nothing comes after an abort"
        return
    waiting = asyncio.ensure_future(kit.rest(answer.stream))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
