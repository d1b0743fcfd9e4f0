"""A call whose camera is looked at by the whole server: its track, or frames over its data channel."""

from __future__ import annotations

import pytest

from tests.integration.server.caller import Event
from tests.integration.server.camera_frames import EYES, SEEN, counted, look
from tests.integration.server.conftest import OpenServer
from tests.integration.server.inside import task_of
from tests.integration.transports.webrtc.cameras import Camera
from tests.integration.transports.webrtc.rtc_caller import ONLY_LOOPBACK, RtcCaller, calling
from tests.until import until

pytestmark = pytest.mark.integration

FLAGS = {**EYES, **ONLY_LOOPBACK}
WATCHED: Event = {
    "type": "realtime",
    "extensions": {"video": {"report": True, "max_fps": 10}},
}


async def answer_to(caller: RtcCaller, text: str) -> str:
    done = await caller.ended(await caller.ask(text))
    assert done["status"] == "completed", done
    return str(done["output"][0]["content"][0]["transcript"])


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["cheap", "stock"])
async def test_the_track_of_a_call_is_looked_at(serve: OpenServer, path: str):
    async with (
        serve(**FLAGS, webrtc__media_path=path) as server,
        calling(server, WATCHED, camera=Camera(5)) as caller,
    ):
        seen = await caller.wait(SEEN)
        assert seen["seen"]["objects"][0]["kind"] == "zebra"
        answer = await answer_to(caller, "what do you see")
        assert "[Camera, now: The picture is normally lit." in answer
        assert "1 zebra" in answer
        assert not caller.of("error")


@pytest.mark.asyncio
async def test_a_camera_is_looked_at_from_the_opt_in_on_and_not_after_the_opt_out(
    serve: OpenServer,
):
    async with serve(**FLAGS) as server, calling(server, camera=Camera(5)) as caller:
        assert not task_of(server, caller).wants_video
        assert "[Camera" not in await answer_to(caller, "what do you see")
        await caller.update(WATCHED)
        assert task_of(server, caller).wants_video
        await caller.wait(SEEN)
        await caller.update({"extensions": {"video": None}})
        assert not task_of(server, caller).wants_video
        await until(lambda: sum(counted(server).values()) > 0)
        assert "[Camera" not in await answer_to(caller, "and now")


@pytest.mark.asyncio
async def test_frames_may_come_over_the_data_channel(serve: OpenServer):
    async with serve(**FLAGS) as server, calling(server, WATCHED) as caller:
        await look(caller, 1)
        assert "1 zebra" in await answer_to(caller, "what do you see")
