"""A whole server on the simulated duplex model, over real WebSockets on loopback, with ticks of 20 ms: tests wait for events only.

When a test is over every session must be gone and every slot free, and nothing may have been measured under an unknown name.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from session_server.config import load
from session_server.duplex.duplex_host import DuplexHost
from session_server.http.server import Server
from tests.until import until

OpenDuplex = Callable[..., AbstractAsyncContextManager[Server]]

SIZE = 480
"""Samples of a tick: 20 ms."""

OPTIONS = {"frame_samples": SIZE, "slots": 4, "answer_frames": 20}


@asynccontextmanager
async def _serving(
    flags: dict[str, object] | None = None, **options: object
) -> AsyncIterator[Server]:
    chosen = {f"graph.options.{name}": value for name, value in {**OPTIONS, **options}.items()}
    fixed = {
        "server.host": "127.0.0.1",
        "server.port": 0,
        "server.close_wait_s": 0.5,
        "observability.loop_lag_ms": 60_000,
    }
    config = load(
        Path("configs/sim-duplex.yaml"), flags={**fixed, **chosen, **(flags or {})}
    ).config
    server = Server(config)
    await server.start()
    try:
        yield server
        await until(lambda: len(server.registry) == 0)
        assert isinstance(server.host, DuplexHost)
        await nothing_left(server.host)
        page = server.metrics.render().decode()
        assert "unknown_counts_total 0.0" in page
        assert "stuck_sessions_total{" not in page
    finally:
        await server.stop()


@pytest.fixture
def open_duplex() -> OpenDuplex:
    return _serving


async def nothing_left(host: DuplexHost) -> None:
    """A recognition that was under way when its session left ends first."""
    words = host._words
    if words is not None:
        await until(lambda: not words.runner._in_flight)
    host.check_integrity()


def loud(frames: int) -> bytes:
    wave = (np.arange(SIZE * frames) % 50 * 200 - 5000).astype("<i2")
    return wave.tobytes()


def quiet(frames: int) -> bytes:
    return bytes(2 * SIZE * frames)


@dataclass
class Caller:
    """A stock client: it streams a microphone in real time and keeps every event that comes."""

    connection: AsyncRealtimeConnection
    events: list[Any] = field(default_factory=list)
    wanted: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    silent: bool = False
    rest: bytes = b""

    async def read(self) -> None:
        async for event in self.connection:
            self.events.append(event)

    async def stream(self) -> None:
        """20 ms at a time on absolute deadlines: what is to be said, else silence."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self.rest and not self.wanted.empty():
                self.rest = self.wanted.get_nowait()
            piece, self.rest = (self.rest[: 2 * SIZE] or quiet(1)), self.rest[2 * SIZE :]
            if not self.silent:
                await self.connection.input_audio_buffer.append(
                    audio=base64.b64encode(piece).decode()
                )
            due += SIZE / 24_000
            await asyncio.sleep(max(0.0, due - loop.time()))

    def say(self, frames: int) -> None:
        self.wanted.put_nowait(loud(frames))

    def hush(self) -> None:
        """Break off what is being said."""
        self.rest = b""

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    def kinds(self) -> list[str]:
        return [event.type for event in self.events]

    async def wait(self, kind: str, count: int = 1) -> Any:
        """The event of that type with that number, from 1."""
        await until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def pcm(self, response_id: str) -> bytes:
        deltas = self.of("response.output_audio.delta")
        return b"".join(base64.b64decode(d.delta) for d in deltas if d.response_id == response_id)

    def words(self, response_id: str) -> str:
        deltas = self.of("response.output_audio_transcript.delta")
        return "".join(d.delta for d in deltas if d.response_id == response_id)


@asynccontextmanager
async def calling(server: Server) -> AsyncIterator[Caller]:
    """A session of the `openai` package's own client, its microphone open."""
    assert server.address is not None
    client = AsyncOpenAI(api_key="none", base_url=f"{server.address.http}/v1", max_retries=0)
    async with client.realtime.connect(model="any") as connection:
        caller = Caller(connection)
        tasks = [asyncio.create_task(caller.read()), asyncio.create_task(caller.stream())]
        try:
            await caller.wait("session.created")
            yield caller
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()
