"""Whatever a client does wrong with its camera: an error that names the field, a count, and a session that goes on."""

from __future__ import annotations

import asyncio
import base64

import pytest

from tests.integration.server.bystander import calling_beside
from tests.integration.server.caller import calling
from tests.integration.server.camera_frames import (
    EYES,
    SEEN,
    counted,
    jpeg,
    look,
    opt_in,
    shot,
    with_video,
)
from tests.integration.server.conftest import OpenServer
from tests.integration.server.inside import task_of
from tests.until import until

pytestmark = pytest.mark.integration

GIF = b"GIF89a" + bytes(100)


@pytest.mark.asyncio
async def test_a_bad_frame_is_an_error_that_names_its_field_and_nothing_else(serve: OpenServer):
    async with calling_beside(serve, url=with_video, **EYES) as (server, caller):
        await opt_in(caller, report=True, max_bytes=5_000)
        good = jpeg(1)
        assert len(good) < 5_000
        url = "data:image/jpeg;base64," + base64.b64encode(good).decode()
        frames = [
            ({**shot(b""), "image": "@@@"}, "image"),
            ({**shot(b""), "image": url}, "image"),
            (shot(b""), "image"),
            (shot(GIF), "image"),
            (shot(good + bytes(5_000)), "image"),
            (shot(good, timestamp_ms=10_001), "timestamp_ms"),
            ({**shot(good), "detail": "highest"}, "detail"),
        ]
        for number, (frame, param) in enumerate(frames):
            error = (await caller.answers_to({**frame, "event_id": f"bad-{number}"}))[0]["error"]
            assert error["code"] == "invalid_value", error
            assert (error["param"], error["event_id"]) == (param, f"bad-{number}")
        assert counted(server) == {"undecodable": 4, "too_large": 1, "stale": 1}
        await look(caller, 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("kept", [3, 40, 400])
async def test_a_frame_that_is_no_whole_picture_is_an_error_and_the_next_is_looked_at(
    serve: OpenServer, kept: int
):
    async with serve(**EYES) as server, calling(with_video(server)) as caller:
        await opt_in(caller, report=True)
        start = len(caller.events)
        await caller.send(shot(jpeg(1)[:kept]))
        error = (await caller.wait("error", start))["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "image")
        await look(caller, 2)
        assert counted(server)["undecodable"] == 1


@pytest.mark.asyncio
async def test_a_flood_costs_nobody_anything_and_each_frame_is_counted_once(serve: OpenServer):
    async with calling_beside(serve, url=with_video, **EYES) as (server, caller):
        await opt_in(caller, report=True)
        for number in range(200):
            await caller.send(shot(jpeg(number)))
        await caller.fence()
        await until(lambda: sum(counted(server).values()) >= 200)
        await asyncio.sleep(0.3)
        assert sum(counted(server).values()) == 200
        assert [e["error"]["param"] for e in caller.of("error")] == ["item_id"]  # the fence's
        assert 1 <= len(caller.of(SEEN)) < 50


@pytest.mark.asyncio
@pytest.mark.parametrize("ends_by", ["opting out", "clearing", "hanging up"])
async def test_frames_that_are_given_up_are_counted_once_too(serve: OpenServer, ends_by: str):
    slow = {**EYES, "graph__stages__vision__options": {"base_s": 0.5, "real_time": True}}
    async with serve(**slow) as server:
        async with calling(with_video(server), lawful=False) as caller:
            await opt_in(caller, max_fps=10)
            for number in range(12):
                await caller.send(shot(jpeg(number)))
                await asyncio.sleep(0.1)
            await caller.fence()
            task = task_of(server, caller)
            if ends_by == "opting out":
                await caller.update({"extensions": {"video": None}})
            elif ends_by == "clearing":
                await caller.answers_to({"type": "input_image_buffer.clear"})
            else:
                caller.hang_up()
                await until(lambda: not task.wants_video)
            await until(lambda: sum(counted(server).values()) >= 12)
        await until(lambda: len(server.registry) == 0)
        assert sum(counted(server).values()) == 12


@pytest.mark.asyncio
async def test_a_caller_that_vanishes_leaves_no_frame_behind(serve: OpenServer):
    slow = {**EYES, "graph__stages__vision__options": {"base_s": 0.3, "real_time": True}}
    async with serve(**slow) as server:
        async with calling(with_video(server), lawful=False) as caller:
            for number in range(20):
                await caller.send(shot(jpeg(number)))
            await caller.fence()
            task = task_of(server, caller)
            assert task.wants_video
            caller.hang_up()
            await until(lambda: not task.wants_video)
        async with calling(with_video(server)) as caller:
            await caller.send(shot(jpeg(1)))
            await caller.fence()


@pytest.mark.asyncio
async def test_eyes_that_fail_cost_the_picture_and_not_the_answer(serve: OpenServer):
    failing = {**EYES, "graph__stages__vision__options": {"fail_job_at_step": 1}}
    async with serve(**failing) as server, calling(with_video(server)) as caller:
        await caller.send(shot(jpeg(1)))
        await until(lambda: bool(counted(server)))
        done = await caller.ended(await caller.ask("what do you see"))
        assert done["status"] == "completed"
        assert "what do you see" in done["output"][0]["content"][0]["transcript"]
        assert not caller.of("error")
