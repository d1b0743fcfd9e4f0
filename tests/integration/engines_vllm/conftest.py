"""One vLLM engine for all tests that can share it: its start takes longer than they do.

These tests run in an environment of their own (`.ci/engines`); elsewhere they are skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from engines.base import ThinkJob
from engines.conformance.streaming import StreamingKit
from engines.model_store.store import ModelStore
from engines.streaming import StreamingEngine
from engines.vllm.thinker import VllmThinker, create
from session_server.types.prompt import PromptMessage

ANIMALS = (
    "fox",
    "hen",
    "cow",
    "owl",
    "elk",
    "cat",
    "dog",
    "bee",
    "ant",
    "eel",
    "yak",
    "ram",
    "pig",
)
PLACES = 3
LOADS_S = 1200
OPTIONS: Mapping[str, object] = {
    "model": "smollm2-135m-instruct",
    "dtype": "float32",  # text that does not depend on who else is served
    "answers": PLACES,
    "context": 1024,
    "batched_tokens": 256,
    "max_tokens": 40,
}


def story(n: int) -> ThinkJob:
    """Prompts whose answers go on for as long as they may: 24 tokens are enough to be stopped, held and parked in."""
    asked = PromptMessage(
        "user", f"Tell me a long story about a {ANIMALS[n % len(ANIMALS)]}, part {n}."
    )
    return ThinkJob("You are a helpful voice assistant.", (asked,), max_tokens=24)


def make(**options: object) -> VllmThinker:
    return create({**OPTIONS, **options}, ModelStore())


def kill(engine: StreamingEngine) -> None:
    """End this engine's process, as the system would when memory runs out; those of other engines live on."""
    assert isinstance(engine, VllmThinker)
    for process in engine._engine.engine_core.resources.engine_manager.processes:
        process.kill()


def kit(**options: object) -> StreamingKit:
    return StreamingKit(lambda: make(**options), story, kill=kill, wait_s=240.0, points=6)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A start of vLLM, three processes that each import two gigabytes, can take longer on a busy machine than any other test may."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(LOADS_S))


@pytest.fixture(scope="session")
def tools() -> StreamingKit:
    return kit()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(tools: StreamingKit) -> AsyncIterator[VllmThinker]:
    made = tools.create()
    assert isinstance(made, VllmThinker)
    await made.load()
    yield made
    await made.close()
