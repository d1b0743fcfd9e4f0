"""The remote thinker keeps the contract of `engines.streaming`, as far as a server that cannot be paced allows.

The server is the small one beside this file: it simulates a model (words by rule), and really streams, counts and stops. Checks of
holding and of urgency are left out by what the engine says of itself; an engine that dies is left out, since a server that is gone
fails answers and never this engine. `python -m tests.benchmarks.remote_server` runs the same against any server.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from engines.base import ThinkJob
from engines.conformance.streaming import CHECKS, Check, StreamingKit
from engines.conformance.streaming_lifecycle import LIFE_CHECKS, LifeCheck, storm
from engines.model_store.store import ModelStore
from engines.remote.openai_chat import create
from session_server.types.prompt import PromptMessage
from tests.integration.engines_remote.chat_server import ChatServer, Script, chunk

pytestmark = [pytest.mark.integration, pytest.mark.asyncio]

WORDS = "one two three four five six seven eight nine ten".split()  # noqa: SIM905 - readable
LENGTH = 40


def job(n: int) -> ThinkJob:
    return ThinkJob(
        "You are a helpful voice assistant.",
        (
            PromptMessage("user", "How are you?"),
            PromptMessage("assistant", "I am well."),
            PromptMessage("user", f"Tell me about number {n} please"),
        ),
    )


def talk(server: ChatServer) -> Script:
    """A model by rule: words that the prompt decides, as many as are allowed, in steps that take a moment."""

    async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await server.open(request)
        seed = zlib.crc32(json.dumps(body["messages"]).encode())
        limit = min(LENGTH, body["max_tokens"])
        for number in range(limit):
            await server.say(response, chunk(f" {WORDS[(seed >> number % 16) % 10]}"))
            await asyncio.sleep(0.001)
        await server.say(response, chunk("", "stop" if limit == LENGTH else "length"))
        usage = {"prompt_tokens": len(body["messages"]) * 9, "completion_tokens": limit}
        await server.say(response, json.dumps({"choices": [], "usage": usage}))
        await server.say(response, "[DONE]")
        return response

    return script


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with ChatServer().running() as running:
        running.script = talk(running)
        yield running


def kit(server: ChatServer, **options: object) -> StreamingKit:
    return StreamingKit(
        lambda: create({"base_url": server.url, "answers": 3, **options}, ModelStore()),
        job,
        bad_job=ThinkJob("", job(0).messages, tool_choice="required"),
    )


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_contract(check: Check, server: ChatServer, warm: bool) -> None:
    tools = kit(server, warm=warm)
    engine = tools.create()
    await engine.load()
    try:
        await check(tools, engine)
    finally:
        await engine.close()


@pytest.mark.parametrize("check", LIFE_CHECKS, ids=lambda check: check.__name__)
async def test_the_life_of_the_engine(check: LifeCheck, server: ChatServer) -> None:
    await check(kit(server))


@pytest.mark.parametrize("seed", range(4))
async def test_much_at_once_in_random_order(seed: int, server: ChatServer) -> None:
    tools = kit(server)
    engine = tools.create()
    await engine.load()
    try:
        await storm(tools, engine, seed)
    finally:
        await engine.close()
