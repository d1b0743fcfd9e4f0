"""Conversations over a real WebSocket with `configs/vllm-cpu.yaml`: an answer, a barge-in, what comes after it, and what the
server's figures say of prompts that begin alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("vllm", reason="needs the environment of .ci/engines")

from engines.model_store.store import ModelStore
from session_server.client.sound import Synthesiser
from session_server.config import load
from session_server.http.server import Server
from tests.integration.server.caller import Caller, calling, silence

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
]

LISTENING = {
    "turn_detection": {"type": "server_vad", "silence_duration_ms": 320},
    "transcription": {"model": "whisper-1"},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[Server]:
    if ModelStore().missing():
        pytest.skip("model files are missing: session-server models fetch")
    flags = {"server.port": 0, "observability.loop_lag_ms": 60_000}
    made = Server(load(Path("vllm-cpu.yaml"), flags=flags).config)
    await made.start()
    yield made
    await made.stop()


async def next_answer(caller: Caller, start: int) -> dict[str, Any]:
    created = await caller.wait("response.created", start)
    return await caller.ended(created["response"]["id"])


def said(response: dict[str, Any]) -> str:
    return str(response["output"][0]["content"][0]["transcript"])


async def test_a_question_an_interruption_and_the_next_question(server: Server) -> None:
    voice = Synthesiser()
    assert server.address is not None
    async with calling(server.address.ws) as caller:
        await caller.update({"audio": {"input": LISTENING}})
        question = voice.say("What is the capital of France?")
        await caller.speak(silence(0.2), question, silence(1.6))
        answer = await next_answer(caller, 0)
        assert answer["status"] == "completed"
        assert "France" in said(answer) or "Paris" in said(answer)
        story = await caller.ask("Tell me a long story about a cat.")
        await caller.hear(story, 2.0)
        start = len(caller.events)
        await caller.speak(voice.say("What is the capital of Italy?"), silence(1.6))
        cut = await caller.ended(story)
        assert (cut["status"], cut["status_details"]["reason"]) == ("cancelled", "turn_detected")
        after = await next_answer(caller, start)
        assert after["status"] == "completed"
        # What a model of this size knows is not what is tested; that it answers this question is.
        assert "Italy" in said(after) or "Rome" in said(after)
        caller.assert_lawful()


async def prompt_tokens(server: Server) -> dict[str, float]:
    """Prompt tokens by where they came from, as the page of figures says."""
    assert server.address is not None
    async with aiohttp.ClientSession() as http, http.get(f"{server.address.http}/metrics") as page:
        families = text_string_to_metric_families(await page.text())
    return {
        sample.labels["source"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "session_server_prompt_tokens_total"
    }


async def test_sessions_with_the_same_instructions_show_as_hits_in_the_figures(
    server: Server,
) -> None:
    assert server.address is not None
    instructions = "You answer visitors of the museum. " + "Be brief, kind and exact. " * 30
    before = await prompt_tokens(server)
    for number in range(4):
        async with calling(server.address.ws) as caller:
            await caller.update({"instructions": instructions})
            await caller.ended(await caller.ask(f"What is in room {number}?"))
    after = await prompt_tokens(server)
    read, cached = (after[source] - before.get(source, 0) for source in ("read", "cached"))
    assert read > 0
    assert cached > read, "three of four sessions find the instructions read"
