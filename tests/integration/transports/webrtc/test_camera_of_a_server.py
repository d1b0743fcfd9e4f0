"""The cameras of a whole server's calls: what is configured, counted and freed, and a camera that goes away."""

from __future__ import annotations

import pytest

from session_server.transports.webrtc.limits import VideoMode
from tests.integration.server.camera_frames import EYES, SEEN, counted
from tests.integration.server.conftest import OpenServer
from tests.integration.transports.webrtc.cameras import (
    Bars,
    decoder_threads,
    direction,
    sections,
)
from tests.integration.transports.webrtc.rtc_caller import ONLY_LOOPBACK, calling
from tests.until import until

pytestmark = pytest.mark.integration

FLAGS = {**EYES, **ONLY_LOOPBACK}
REPORTED = {"type": "realtime", "extensions": {"video": {"report": True}}}


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["all", "key_frames", "off"])
async def test_the_configuration_says_which_frames_are_decoded(serve: OpenServer, mode: VideoMode):
    camera = Bars()
    async with serve(**FLAGS, webrtc__video=mode) as server:
        async with calling(server, REPORTED, camera=camera) as caller:
            (section,) = sections(caller.peer.remoteDescription.sdp, "video")
            assert direction(section) == ("inactive" if mode == "off" else "recvonly")
            if mode == "off":
                await caller.until(lambda: len(caller.ear) > 25)
                assert not caller.of(SEEN)
                assert camera.count == 0
            else:
                await caller.until(lambda: len(caller.of(SEEN)) >= 2)
                await until(lambda: camera.count > 30)
        await until(lambda: decoder_threads() == 0)
        given = server.metrics.value("webrtc_video_frames_total") or 0.0
        ends = counted(server)
        assert server.metrics.value("webrtc_video_faults_total") == 0
        assert sum(ends.values()) >= given, "each frame that a session was given comes to an end"
        if mode == "all":
            assert given > 10
            assert ends["change"] >= 1
        else:
            assert given <= camera.count / 5
        assert (given > 0) == (mode != "off")


@pytest.mark.asyncio
async def test_a_camera_that_is_taken_away_is_no_current_picture(serve: OpenServer):
    async with serve(**FLAGS) as server, calling(server, REPORTED, camera=Bars()) as caller:
        await caller.wait(SEEN)
        (sender,) = [s for s in caller.peer.getSenders() if s.track and s.track.kind == "video"]
        sender.replaceTrack(None)
        heard = len(caller.ear)
        await caller.until(lambda: len(caller.ear) > heard + 125)
        done = await caller.ended(await caller.ask("and now"))
        answer = done["output"][0]["content"][0]["transcript"]
        assert "[Camera: no current picture" in answer
        assert len(server.registry) == 1
