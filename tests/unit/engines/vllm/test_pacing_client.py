"""The control channel sends the newest pace of each answer, one call at a time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from engines.vllm.pacing_client import ControlChannel

pytestmark = [pytest.mark.unit, pytest.mark.asyncio]


class Engine:
    """The far end: answers when it is told to."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.known: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.failures: list[Exception] = []
        self.open: set[str] = set()
        self.channel = ControlChannel(self.call, self.open.__contains__, self.failures.append)

    async def call(self, method: str, changes: list[Any]) -> Mapping[str, Any]:
        assert method == "session_pace"
        self.calls.append(changes)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {"unknown": [name for name, *_ in changes if name not in self.known], "running": 1}

    async def settled(self) -> None:
        async with asyncio.timeout(20):
            await self.channel.settled()


async def test_only_the_newest_of_many_paces_is_sent_while_a_call_is_under_way() -> None:
    engine = Engine()
    engine.known = {"a", "b"}
    engine.gate.clear()
    engine.channel.set_pace("a", 1, 0)
    await asyncio.sleep(0)
    for granted in range(2, 50):
        engine.channel.set_pace("a", granted, 0)
        engine.channel.set_pace("b", granted, 7)
    engine.gate.set()
    await engine.settled()
    assert engine.calls == [[["a", 1, 0]], [["a", 49, 0], ["b", 49, 7]]]


async def test_an_answer_that_the_engine_does_not_know_yet_is_told_again() -> None:
    engine = Engine()
    engine.open = {"a"}
    engine.channel = ControlChannel(engine.call, engine.open.__contains__, engine.failures.append)
    engine.channel.set_pace("a", 5, 0)
    await asyncio.sleep(0)
    engine.known = {"a"}
    await engine.settled()
    assert engine.calls[-1] == [["a", 5, 0]]
    assert not engine.channel.state["unknown"]


async def test_an_answer_that_is_over_is_not_told_for_ever() -> None:
    engine = Engine()
    engine.channel.set_pace("gone", 5, 0)
    await engine.settled()
    assert len(engine.calls) == 1


async def test_the_state_is_old_until_it_was_asked_for_after_the_last_change() -> None:
    engine = Engine()
    engine.channel.changed()
    assert not engine.channel.up_to_date
    engine.channel.ask()
    await engine.settled()
    assert engine.channel.up_to_date
    engine.channel.drop("a")
    assert not engine.channel.up_to_date


async def test_an_engine_that_is_gone_is_told_once() -> None:
    engine = Engine()
    engine.error = RuntimeError("dead")
    engine.channel.set_pace("a", 1, 0)
    await engine.settled()
    assert [str(error) for error in engine.failures] == ["dead"]
