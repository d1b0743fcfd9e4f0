"""Pictures in items, over the wire: the simulated eyes say what is in them, and the simulated thinker quotes what it is told."""

import asyncio
import base64
import struct
import zlib

import pytest

from session_server.host import recognition
from tests.integration.server.bystander import calling_beside
from tests.integration.server.caller import Caller, Event, calling
from tests.integration.server.conftest import OpenServer

pytestmark = pytest.mark.integration

EYES = {
    "graph__stages__vision__engine": "sim.vision",
    "graph__stages__vision__options": {"kinds": "zebra", "base_s": 0.05, "real_time": True},
}


def png(width: int = 32, height: int = 32) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + bytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


async def show(caller: Caller, data: bytes, text: str = "what do you see") -> None:
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    content: list[Event] = [
        {"type": "input_text", "text": text},
        {"type": "input_image", "image_url": url},
    ]
    item = {"type": "message", "role": "user", "content": content}
    await caller.send({"type": "conversation.item.create", "item": item})


async def said(caller: Caller) -> str:
    await caller.send({"type": "response.create"})
    done = await caller.wait("response.done")
    assert done["response"]["status"] == "completed", done
    return str(done["response"]["output"][0]["content"][0]["transcript"])


@pytest.mark.asyncio
async def test_the_thinker_is_told_what_is_in_a_picture(serve: OpenServer):
    async with calling_beside(serve, **EYES) as (_, caller):
        await show(caller, png())
        assert "1 zebra" in await said(caller)


@pytest.mark.asyncio
async def test_a_picture_that_is_none_is_an_error_and_the_session_goes_on(serve: OpenServer):
    async with serve(**EYES) as server, calling(server.address.ws) as caller:
        await show(caller, b"GARBAGE")
        error = (await caller.wait("error"))["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "item.content[1].image_url")
        assert "could not be looked at" in await said(caller)


@pytest.mark.asyncio
async def test_a_server_without_eyes_answers_the_words(serve: OpenServer):
    async with serve() as server, calling(server.address.ws) as caller:
        await show(caller, png())
        assert "what do you see" in await said(caller)


@pytest.mark.asyncio
async def test_eyes_that_fail_cost_the_picture_and_not_the_answer(serve: OpenServer):
    failing = {**EYES, "graph__stages__vision__options": {"fail_job_at_step": 1}}
    async with serve(**failing) as server, calling(server.address.ws) as caller:
        await show(caller, png())
        assert "could not be looked at" in await said(caller)


@pytest.mark.asyncio
async def test_many_pictures_at_once_are_bounded_and_hurt_nobody(serve: OpenServer):
    async with calling_beside(serve, **EYES) as (_, caller):
        for number in range(60):
            await show(caller, png(32 + number))
        await asyncio.wait_for(said(caller), 30)


@pytest.mark.asyncio
async def test_a_picture_whose_base64_was_not_padded_or_url_safe_ended_the_session(
    serve: OpenServer,
):
    padded = base64.b64encode(png() + b"\xff\xfe" * 2)
    assert padded.endswith(b"=")
    safe = base64.urlsafe_b64encode(b"\x89PNG" + b"\xff" * 8)
    assert b"_" in safe
    async with serve(**EYES) as server, calling(server.address.ws) as caller:
        for payload in (b"", safe, padded.rstrip(b"=")):
            url = "data:image/png;base64," + payload.decode()
            content: list[Event] = [{"type": "input_image", "image_url": url}]
            item = {"type": "message", "role": "user", "content": content}
            await caller.send({"type": "conversation.item.create", "item": item})
        error = (await caller.wait("error"))["error"]
        assert error["param"] == "item.content[0].image_url"
        answer = await said(caller)
    assert "1 zebra" in answer


@pytest.mark.asyncio
async def test_sixty_four_large_pictures_of_a_session_waited_in_memory(
    serve: OpenServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recognition, "MOST_PICTURE_BYTES", 2 * len(png()))
    slow = {**EYES, "graph__stages__vision__options": {"base_s": 0.3, "real_time": True}}
    async with serve(**slow) as server, calling(server.address.ws) as caller:
        for _ in range(3):
            await show(caller, png())
        assert "could not be looked at" in await said(caller)
