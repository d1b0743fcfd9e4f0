"""Stock clients talk with the tiny Moshi through the whole server: eight at once, in full duplex."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs engines/duplex/requirements.txt")
pytest.importorskip("moshi", reason="needs engines/duplex/requirements.txt")
pytest.importorskip("sentencepiece", reason="needs engines/duplex/requirements.txt")

from session_server.config import load
from session_server.duplex.duplex_host import DuplexHost
from session_server.http.server import serving
from tests.integration.duplex.conftest import calling
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

TICK = 1_920


@pytest.mark.asyncio
async def test_eight_stock_clients_hear_the_model_all_the_time_and_our_fence_holds() -> None:
    flags = {
        "server.host": "127.0.0.1",
        "server.port": 0,
        "observability.loop_lag_ms": 60_000,
        "graph.engine": "moshi.tiny",
        "graph.options.device": "cpu",
        "graph.options.dtype": "float32",
        "graph.options.threads": 1,
        "graph.options.greedy": True,
    }
    config = load(Path("configs/moshi.yaml"), flags=flags).config
    async with serving(config) as server:
        assert isinstance(server.host, DuplexHost)
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            callers = [await stack.enter_async_context(calling(server)) for _ in range(8)]
            for caller in callers:
                caller.say(50)
            for caller in callers:
                first = await caller.wait("response.output_audio.delta", 5)
                pcm = caller.pcm(first.response_id)
                assert any(pcm)
                assert len(pcm) % (2 * TICK) == 0
                await caller.wait("response.output_audio_transcript.delta")
            one = callers[0]
            await one.connection.response.cancel()
            done = (await one.wait("response.done")).response
            assert done.status == "cancelled"
            ended = len(one.of("response.output_audio.delta"))
            before = len(callers[1].of("response.output_audio.delta"))
            await callers[1].wait("response.output_audio.delta", before + 5)
            assert len(one.of("response.output_audio.delta")) == ended
            assert not any(caller.of("error") for caller in callers)
        await until(lambda: len(server.registry) == 0)
        server.host.check_integrity()
