"""Nothing stays behind: not objects, not memory, not another session's words or sound."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter

import psutil
import pytest

from engines.sim.wave import verify
from session_server.core.session import Session
from session_server.host.response_pipeline import ResponsePipeline
from session_server.session.audio_input import Ears
from session_server.session.audio_output import Voice
from session_server.session.session_task import SessionTask
from session_server.transports.websocket import WebSocketOutbox
from tests.integration.server.caller import Caller, append, calling, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.until import until

pytestmark = pytest.mark.integration

OURS = (SessionTask, Session, Ears, Voice, ResponsePipeline, WebSocketOutbox)
MIB = 1024 * 1024


def alive() -> Counter[str]:
    """Objects of sessions that are still there."""
    gc.collect()
    return Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, OURS))


async def quick_session(url: str, number: int) -> None:
    """Come, do something, go: politely, in the middle, or with a reset."""
    async with calling(url, strict=False) as caller:
        match number % 5:
            case 0:
                await caller.ended(await caller.ask(f"number {number}"))
            case 1:
                await caller.begin_long_answer(0.1)
                caller.hang_up()
            case 2:
                await caller.append(speech(0.4) + silence(0.2))
                await caller.wait("input_audio_buffer.speech_started")
            case 3:
                await caller.append(speech(0.5) + silence(0.6))
                await caller.wait("response.output_audio.delta")
                caller.hang_up()
            case _:
                for _ in range(5):
                    await caller.send("nonsense")
                await caller.fence()


@pytest.mark.asyncio
async def test_two_hundred_quick_sessions_leave_nothing_behind(serve: OpenServer):
    before = alive()
    process = psutil.Process(os.getpid())
    async with serve() as server:
        async with calling(server.address.ws):
            assert alive() - before, "the count sees no session at all"
        rss: list[int] = []
        for round_ in range(20):
            await asyncio.gather(
                *(quick_session(server.address.ws, round_ * 10 + i) for i in range(10))
            )
            await until(lambda: len(server.registry) == 0)
            if round_ in (9, 19):
                gc.collect()
                rss.append(process.memory_info().rss)
        await until(lambda: server.host.responses == 0)
        assert alive() == before
        assert rss[1] - rss[0] < 6 * MIB, "it grows with every session"


@pytest.mark.asyncio
async def test_nobody_hears_what_was_said_to_another(serve: OpenServer):
    """Each caller has a prompt of its own, goes in the middle of its answer, comes back at once and asks again."""
    async with serve() as server:

        async def caller_of(name: str) -> None:
            for turn in range(6):
                async with calling(server.address.ws, strict=False) as caller:
                    await left_in_mid_answer(caller, name, turn)

        await asyncio.gather(*(caller_of(f"caller{number}x") for number in range(8)))
        await until(lambda: len(server.registry) == 0)


async def left_in_mid_answer(caller: Caller, name: str, turn: int) -> None:
    if turn:
        response_id = await caller.ask(f"{name} asks again")
        response = await caller.ended(response_id)
        said = response["output"][0]["content"][0]["transcript"]
        assert said.startswith(f"You said: {name} asks again.")
        assert verify(caller.pcm(response_id), response_id).complete
    response_id = await caller.ask(f"{name} wants something long")
    await caller.hear(response_id, 0.1)
    words = "".join(e["delta"] for e in caller.of("response.output_audio_transcript.delta"))
    assert words.count("caller") == words.count(name)
    assert verify(caller.pcm(response_id), response_id).intact
    assert set(caller.streams) == {e["response"]["id"] for e in caller.of("response.created")}
    caller.hang_up()


@pytest.mark.asyncio
async def test_a_recogniser_that_is_slower_than_speech_has_a_bounded_backlog(serve: OpenServer):
    """Speech over an answer asks for its words again and again: no more than one of these questions waits."""
    slow = {"asr": {"real_time": True, "base_s": 0.5, "per_item_s": 0.0, "loud": 2.0}}
    async with serve(slow) as server, calling(server.address.ws) as caller:
        await caller.detect({"type": "semantic_vad"})
        name = await caller.begin_long_answer(0.1)
        highest = 0
        for seed in range(3):
            await caller.speak(speech(0.5, seed))
            highest = max(highest, server.host.recognitions)
            await caller.append(silence(0.4))
            await caller.fence()
        assert highest <= 2
        await caller.send({"type": "response.cancel"})
        await caller.ended(name)
        await caller.send(append(silence(1)))
        await until(lambda: server.host.recognitions == 0)
