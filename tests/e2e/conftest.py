"""The default server with its real models, once for all tests of this folder, and speech to send it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio

from session_server.client.sound import Synthesiser
from session_server.config import load
from session_server.http.server import Server, model_store
from session_server.process.lifecycle import loop_factory


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the server runs on."""
    return {"server": loop_factory()}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server() -> AsyncIterator[Server]:
    flags = {"server.port": 0, "observability.loop_lag_ms": 60_000}
    config = load(None, flags=flags).config
    missing = model_store(config).missing()
    if missing:
        folder = os.environ.get("SESSION_SERVER_MODELS", "the cache")
        pytest.skip(f"{len(missing)} model files are not in {folder}: session-server models fetch")
    made = Server(config)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(scope="session")
def synthesiser() -> Synthesiser:
    return Synthesiser()
