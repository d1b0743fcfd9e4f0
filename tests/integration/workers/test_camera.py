"""A camera at a worker, and eyes in the engine host: frames and what was seen in them cross the link."""

from __future__ import annotations

import pytest

from tests.integration.server.camera_frames import EYES, look, opt_in
from tests.integration.workers.conftest import two_workers

pytestmark = pytest.mark.integration


@pytest.mark.asyncio
async def test_what_a_camera_shows_at_one_worker_reaches_its_answers():
    async with two_workers(**EYES) as workers:
        async with workers.calling(1, query="?extensions=video") as caller:
            await opt_in(caller, report=True)
            seen = await look(caller, 1)
            assert seen["seen"]["objects"][0]["kind"] == "zebra"
            done = await caller.ended(await caller.ask("what do you see"))
            said = done["output"][0]["content"][0]["transcript"]
            assert "[Camera, now: The picture is normally lit. Detected: 1 zebra" in said
        await workers.empty()
