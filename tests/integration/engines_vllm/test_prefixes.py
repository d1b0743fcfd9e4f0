"""What one answer has read need not be read for another: prompts that begin alike, of any session, and turns that grow."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("vllm", reason="needs the environment of .ci/engines")

from engines.base import ThinkJob, TokenOutput
from engines.conformance.streaming import NO_BOUND, StreamingKit
from engines.vllm.thinker import VllmThinker
from session_server.types.prompt import PromptMessage

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
]

BLOCK = 32
"""Tokens; what fills a block is found again, the rest is read."""


def instructions(place: str) -> str:
    """Some 200 tokens that no other test begins with."""
    return f"You are a voice assistant in {place}. " + "Rivers, hills, trees and old stones. " * 20


async def answer(
    tools: StreamingKit, engine: VllmThinker, job: ThinkJob, session: str
) -> TokenOutput:
    short = replace(job, max_tokens=2)
    return (await tools.rest(engine.generate(tools.key(session), short, NO_BOUND)))[-1]


async def test_a_prompt_that_was_read_ahead_is_not_read_again(
    tools: StreamingKit, engine: VllmThinker
) -> None:
    said = instructions("a port")
    await engine.warm(tools.key(), ThinkJob(said, (), warm=True))
    asked = (PromptMessage("user", "How are you?"),)
    last = await answer(tools, engine, ThinkJob(said, asked), "warmed")
    assert last.prompt_tokens - last.cached_tokens < 2 * BLOCK
    assert last.cached_tokens > 2 * BLOCK


async def test_sessions_with_the_same_instructions_read_them_once(
    tools: StreamingKit, engine: VllmThinker
) -> None:
    said, before = instructions("a museum"), engine.figures()
    lasts = [
        await answer(
            tools, engine, ThinkJob(said, (PromptMessage("user", f"What is number {n}?"),)), f"s{n}"
        )
        for n in range(8)
    ]
    assert lasts[0].cached_tokens < 2 * BLOCK, "nobody had read them"
    for last in lasts[1:]:
        assert last.prompt_tokens - last.cached_tokens < 2 * BLOCK
    after = engine.figures()
    read = after["prompt_tokens"] - before["prompt_tokens"]
    known = after["cached_tokens"] - before["cached_tokens"]
    assert read == sum(last.prompt_tokens for last in lasts)
    assert known == sum(last.cached_tokens for last in lasts)
    assert known / read > 0.6


async def test_a_turn_that_grows_is_read_as_it_grows(
    tools: StreamingKit, engine: VllmThinker
) -> None:
    said = "Last summer we went up the river in a boat, " * 20
    words = said.split()

    def job(count: int, warm: bool = False) -> ThinkJob:
        text = " ".join(words[:count])
        return ThinkJob(instructions("a mill"), (PromptMessage("user", text),), warm=warm)

    for count in range(20, len(words), 20):
        await engine.warm(tools.key("grows"), job(count, warm=True))
    last = await answer(tools, engine, job(len(words)), "grows")
    unread = await answer(
        tools, engine, replace(job(len(words)), instructions=instructions("a mine")), "whole"
    )
    assert last.prompt_tokens - last.cached_tokens < 3 * BLOCK
    assert unread.prompt_tokens - unread.cached_tokens > 6 * BLOCK
