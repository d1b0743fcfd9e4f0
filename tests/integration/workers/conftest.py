"""A server of two real worker processes on simulated engines: the engine host in the test's process, everything on loopback.

One server for all tests of a module, since processes take a second to begin; after each test no session may be left in the host.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio
from aiohttp import ClientWebSocketResponse, web
from prometheus_client.parser import text_string_to_metric_families

from session_server.config import load
from session_server.observability.catalogue import PREFIX
from session_server.workers.supervisor import Supervisor
from tests.integration.http.conftest import (
    pytest_asyncio_loop_factories as pytest_asyncio_loop_factories,
)
from tests.integration.server.caller import Caller, calling
from tests.until import until, until_holds

URL = "ws://worker/v1/realtime"
KEY = "sk-test"
LIMIT = 6
_FLAGS = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "server.workers": 2,
    "server.close_wait_s": 0.5,
    "drain.answer_s": 5.0,
    "drain.close_s": 1.0,
    "scheduler.max_sessions": LIMIT,
    "scheduler.admission": False,  # how many fit must not depend on how fast this machine is
    "limits.retry_after_s": 7,
    "auth.keys": (KEY,),
    "webrtc.host_addresses": ["127.0.0.1"],
    "observability.loop_lag_ms": 60_000,
    "graph.stages.thinker.options.words": 6,
    "graph.stages.thinker.options.long_words": 400,
    "graph.stages.thinker.options.max_tokens": 4000,
    "graph.stages.thinker.options.slots": 64,
    "graph.stages.talker.options.units_per_char": 1,
}


@dataclass
class TwoWorkers:
    """The server, and ways to one worker alone."""

    server: Supervisor

    def http(self, slot: int) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(str(self.server.socket_of(slot)))
        return aiohttp.ClientSession(
            "http://worker", connector=connector, headers={"Authorization": f"Bearer {KEY}"}
        )

    async def get(self, slot: int, path: str) -> tuple[int, str]:
        async with self.http(slot) as http, http.get(path) as answer:
            return answer.status, await answer.text()

    async def post(
        self, slot: int, path: str, body: object = None
    ) -> tuple[int, dict[str, str], Any]:
        async with self.http(slot) as http, http.post(path, json=body) as answer:
            text = await answer.text()
            parsed = json.loads(text) if text else None
            return answer.status, dict(answer.headers), parsed

    @asynccontextmanager
    async def calling(
        self, slot: int, *, key: str = KEY, query: str = "", strict: bool = True
    ) -> AsyncIterator[Caller]:
        where = self.server.socket_of(slot)
        async with calling(URL + query, key=key, strict=strict, at=where) as caller:
            yield caller

    async def metrics(self, slot: int) -> dict[str, float]:
        """The page of one worker: name with labels -> value, without the prefix."""
        status, text = await self.get(slot, "/metrics")
        assert status == 200
        return {
            sample.name.removeprefix(f"{PREFIX}_") + "".join(sorted(sample.labels.values())): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def empty(self) -> None:
        """Until every session has left the host, and nothing of it is there."""
        await until(lambda: len(self.server.desk) == 0)
        await until_holds(self.server.host.check_integrity)


def client_transport(socket: ClientWebSocketResponse) -> asyncio.Transport:
    """Of a WebSocket's connection, at its client; aiohttp shows it nowhere."""
    connection = socket._response.connection
    assert connection is not None
    assert connection.transport is not None
    return connection.transport


def server_transport(socket: web.WebSocketResponse) -> asyncio.Transport:
    """Of a WebSocket's connection, at its server."""
    request = socket._req
    assert request is not None
    assert request.transport is not None
    return request.transport


@asynccontextmanager
async def two_workers(**more: object) -> AsyncIterator[TwoWorkers]:
    flags = {**_FLAGS, **{key.replace("__", "."): value for key, value in more.items()}}
    server = Supervisor(load(Path("configs/sim.yaml"), flags=flags).config)
    await server.start()
    try:
        yield TwoWorkers(server)
    finally:
        await server.go_down()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[TwoWorkers]:
    async with two_workers() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def workers(shared: TwoWorkers) -> AsyncIterator[TwoWorkers]:
    yield shared
    await shared.empty()
