"""A real run on simulated engines, recorded over the wire and relived by fresh cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_server.recording.recorder import replay
from tests.integration.server.caller import calling, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech

pytestmark = pytest.mark.integration


@pytest.mark.asyncio
@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
async def test_a_recorded_conversation_takes_the_same_decisions_again(
    serve: OpenServer, tmp_path: Path, detection: str
):
    path = tmp_path / "run.jsonl"
    async with (
        serve(observability__record_file=str(path)) as server,
        calling(server.address.ws) as caller,
    ):
        await caller.detect({"type": detection})
        await caller.append(speech(0.6))
        await caller.speak(silence(0.8))
        await caller.wait("response.done")
        response = await caller.ask("Tell me something that goes on for a while, please.")
        await caller.hear(response, 0.2)
        await caller.speak(speech(1.2), silence(0.8))
        await caller.ended(response)
    same, differences = replay(path.read_bytes().splitlines())
    assert not differences
    assert same > 100
