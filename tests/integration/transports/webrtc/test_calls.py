"""A call over WebRTC: connects, talks, is heard, can be interrupted; what ends it frees everything."""

from __future__ import annotations

import pytest

from tests.integration.server.caller import silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.integration.transports.webrtc.rtc_caller import ONLY_LOOPBACK, calling

pytestmark = pytest.mark.integration


@pytest.mark.asyncio
async def test_a_caller_talks_and_hears_the_answer(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        await caller.talk(speech(1.0) + silence(0.2))
        created = await caller.wait("response.created")
        await caller.wait("output_audio_buffer.stopped")
        response = await caller.ended(created["response"]["id"])
        assert response["status"] == "completed"
        print(caller.types(), caller.loud_frames(), len(caller.ear))
