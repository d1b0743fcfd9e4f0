"""Full duplex over WebRTC: the microphone reaches the model, and what it says reaches the ear until it is stopped."""

from __future__ import annotations

import pytest

from tests.integration.duplex.conftest import OpenDuplex, loud
from tests.integration.transports.webrtc.rtc_caller import calling

pytestmark = pytest.mark.integration

LOOPBACK: dict[str, object] = {"webrtc.host_addresses": ["127.0.0.1"]}


@pytest.mark.asyncio
async def test_a_call_is_answered_aloud_and_can_be_stopped(open_duplex: OpenDuplex) -> None:
    async with (
        open_duplex(LOOPBACK, answer_frames=1_000) as server,
        calling(server, lawful=False) as caller,
    ):
        await caller.talk(loud(6))
        await caller.wait("output_audio_buffer.started")
        await caller.until(lambda: caller.loud_frames() >= 25)
        start = len(caller.events)
        await caller.send({"type": "response.cancel"})
        cleared = await caller.wait("output_audio_buffer.cleared", start)
        assert cleared["response_id"] == caller.of("output_audio_buffer.started")[-1]["response_id"]
        response = await caller.ended(cleared["response_id"])
        assert response["status"] == "cancelled"
        at_cut = len(caller.ear)
        await caller.until(lambda: len(caller.ear) >= at_cut + 50)
        assert caller.loud_frames(at_cut) <= 10  # what was on its way when the fence fell
        assert "input_audio_buffer.speech_started" in caller.types()
        assert "response.output_audio.delta" not in caller.types()
