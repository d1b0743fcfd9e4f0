"""Requests that are passed on: what goes through, how both ends end, and that nobody holds the other up."""

from __future__ import annotations

import asyncio
import gzip
import socket as socket_module
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from session_server.transports.websocket import WebSocketLimits
from session_server.workers import call_proxy
from session_server.workers.call_proxy import Relay, socket_of
from tests.integration.workers.conftest import client_transport, server_transport

pytestmark = pytest.mark.integration

CALL = "rtc_w1_x"
Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


class Other:
    """The worker that has the call: does what the test says with each WebSocket, and keeps what it saw. `relay`: to it."""

    def __init__(self, talk: Talk, relay: Relay) -> None:
        self.talk = talk
        self.relay = relay
        self.headers: list[dict[str, str]] = []
        self.closes: list[int | None] = []
        self.ended = asyncio.Event()

    async def join(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        socket = web.WebSocketResponse(protocols=("realtime",), writer_limit=0)
        await socket.prepare(request)
        try:
            await self.talk(socket)
        finally:
            self.closes.append(socket.close_code)
            self.ended.set()
        return socket

    async def hang_up(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        body = await request.text()
        return web.Response(status=202, text=f"got {body}", headers={"X-Own": "1"})


@asynccontextmanager
async def two(folder: Path, talk: Talk) -> AsyncIterator[tuple[TestClient, Other]]:
    """A worker that has no call, and the other one."""
    relay = Relay(folder, 0, 2, WebSocketLimits(outbox_wait_s=0.3, close_wait_s=0.3))
    other = Other(talk, relay)

    async def pass_on(request: web.Request) -> web.StreamResponse:
        call_id = request.query.get("call_id") or request.match_info.get("call_id", "")
        return await relay(request, call_id) or web.Response(status=404)

    apps = [web.Application(), web.Application()]
    for app, join, hang_up in (
        (apps[0], pass_on, pass_on),
        (apps[1], other.join, other.hang_up),
    ):
        app.router.add_get("/v1/realtime", join)
        app.router.add_post("/v1/realtime/calls/{call_id}/hangup", hang_up)
    runner = web.AppRunner(apps[1], shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, socket_of(folder, 1)).start()
    try:
        async with TestClient(TestServer(apps[0], skip_url_asserts=True)) as client:
            yield client, other
    finally:
        await runner.cleanup()


async def echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.data == "bye":
            await socket.close(code=4001, message=b"over and out")
        elif message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        else:
            await socket.send_bytes(message.data)


@pytest.mark.asyncio
async def test_frames_go_through_whole_both_ways_and_the_key_with_them(tmp_path: Path):
    async with two(tmp_path, echo) as (client, other):
        headers = {"Authorization": "Bearer sk-a", "Sec-WebSocket-Protocol": "realtime"}
        url = f"/v1/realtime?call_id={CALL}"
        async with client.ws_connect(url, headers=headers, max_msg_size=0) as socket:
            for text in ("é", "", "x" * 3_000_000):
                await socket.send_str(text)
                assert await socket.receive_str() == text
            await socket.send_bytes(b"\0\xff")
            assert await socket.receive_bytes() == b"\0\xff"
        await other.ended.wait()
        assert other.headers[0]["Authorization"] == "Bearer sk-a"
        assert other.headers[0]["Sec-WebSocket-Protocol"] == "realtime"
        assert other.closes == [1000]


@pytest.mark.asyncio
async def test_the_close_of_the_other_worker_reaches_the_client_with_its_reason(tmp_path: Path):
    async with two(tmp_path, echo) as (client, _):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        await socket.send_str("bye")
        message = await socket.receive()
        assert (message.type, message.data, message.extra) == (
            WSMsgType.CLOSE,
            4001,
            "over and out",
        )


@pytest.mark.asyncio
async def test_a_client_that_vanishes_ends_the_other_side(tmp_path: Path):
    async with two(tmp_path, echo) as (client, other):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        await socket.send_str("x")
        await socket.receive_str()
        client_transport(socket).abort()
        async with asyncio.timeout(60):
            await other.ended.wait()


@pytest.mark.asyncio
async def test_a_worker_that_dies_ends_the_client_s_connection(tmp_path: Path):
    async def die(socket: web.WebSocketResponse) -> None:
        await socket.send_str("x")
        server_transport(socket).abort()

    async with two(tmp_path, die) as (client, _):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        assert await socket.receive_str() == "x"
        async with asyncio.timeout(60):
            message = await socket.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)


@pytest.mark.asyncio
async def test_a_client_that_does_not_read_holds_the_other_side_up_for_a_bounded_time(
    tmp_path: Path,
):
    async def flood(socket: web.WebSocketResponse) -> None:
        try:
            while True:
                await socket.send_str("x" * 100_000)
        except ConnectionError:
            pass

    async with two(tmp_path, flood) as (client, other):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        transport = client_transport(socket)
        transport.pause_reading()
        async with asyncio.timeout(60):
            await other.ended.wait()
        transport.abort()


@pytest.mark.asyncio
async def test_a_flood_of_pings_lets_the_loop_turn_between_any_two_and_a_frame_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    turns, seen, pings = 0, [], 300

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(seen) < pings:
            asyncio.get_running_loop().call_soon(turn)

    async def pong(_self: web.WebSocketResponse, _message: bytes) -> None:
        seen.append(turns)

    async with two(tmp_path, echo) as (client, _other):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        monkeypatch.setattr(web.WebSocketResponse, "pong", pong)
        turn()
        client_transport(socket).write(bytes([0x89, 0x80, 0, 0, 0, 0]) * pings)
        await socket.send_str("after them")
        async with asyncio.timeout(60):
            assert (await socket.receive_str()).endswith("after them")
        await socket.close()
    assert len(seen) == pings
    assert len(set(seen)) >= pings // 17  # as few as that where the machine makes each turn long


@pytest.mark.asyncio
async def test_a_post_goes_through_with_its_body_status_and_headers(tmp_path: Path):
    async with two(tmp_path, echo) as (client, other):
        url = f"/v1/realtime/calls/{CALL}/hangup"
        async with client.post(url, data="body", headers={"Authorization": "Bearer k"}) as answer:
            assert (answer.status, await answer.text()) == (202, "got body")
            assert answer.headers["X-Own"] == "1"
        assert other.headers[0]["Authorization"] == "Bearer k"


@pytest.mark.asyncio
@pytest.mark.parametrize("call_id", ["rtc_x", "rtc_w0_x", "rtc_w2_x", "rtc_w12345_x"])
async def test_only_the_worker_that_the_id_names_is_asked(tmp_path: Path, call_id: str):
    async with two(tmp_path, echo) as (client, other):
        async with client.post(f"/v1/realtime/calls/{call_id}/hangup") as answer:
            assert answer.status == 404
        assert other.headers == []


@pytest.mark.asyncio
async def test_a_worker_that_is_not_there_has_no_calls(tmp_path: Path):
    async with two(tmp_path, echo) as (client, _):
        socket_of(tmp_path, 1).unlink()
        async with client.post(f"/v1/realtime/calls/{CALL}/hangup") as answer:
            assert answer.status == 404
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        assert caught.value.status == 404


@pytest.mark.asyncio
async def test_the_way_down_waits_for_a_second_connection_until_its_call_ends(tmp_path: Path):
    async with two(tmp_path, echo) as (client, other):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        ending = asyncio.create_task(other.relay.finish(60, asyncio.Event()))
        await socket.send_str("still here")
        assert await socket.receive_str() == "still here"
        assert not ending.done()
        await socket.send_str("bye")
        assert (await socket.receive()).data == 4001
        await asyncio.wait_for(ending, 60)


@pytest.mark.asyncio
@pytest.mark.parametrize("forced", [False, True])
async def test_the_way_down_closes_both_ends_of_a_second_connection_with_1001(
    tmp_path: Path, forced: bool
):
    async with two(tmp_path, echo) as (client, other):
        socket = await client.ws_connect(f"/v1/realtime?call_id={CALL}")
        await socket.send_str("x")
        await socket.receive_str()
        hurried = asyncio.Event()
        if forced:
            hurried.set()
        ending = asyncio.create_task(other.relay.finish(60 if forced else 0.01, hurried))
        message = await socket.receive()
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
        await asyncio.wait_for(ending, 60)
        await other.ended.wait()
        assert other.closes == [1001]


@pytest.mark.asyncio
async def test_the_way_down_waits_for_nothing_when_nothing_is_joined(tmp_path: Path):
    async with two(tmp_path, echo) as (_, other):
        await asyncio.wait_for(other.relay.finish(3600, asyncio.Event()), 60)


@pytest.mark.asyncio
async def test_a_worker_that_stands_still_is_503_and_not_an_unknown_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(call_proxy, "_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    async with two(tmp_path, echo) as (client, _):
        socket_of(tmp_path, 1).unlink()
        with socket_module.socket(socket_module.AF_UNIX) as deaf:
            deaf.bind(str(socket_of(tmp_path, 1)))
            deaf.listen()
            async with client.post(f"/v1/realtime/calls/{CALL}/hangup") as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                await client.ws_connect(f"/v1/realtime?call_id={CALL}")
            assert caught.value.status == 503
            assert caught.value.headers is not None
            assert caught.value.headers["Retry-After"] == "1"
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.asyncio
async def test_a_body_with_an_encoding_is_passed_on_decoded_and_says_so(tmp_path: Path):
    async with two(tmp_path, echo) as (client, other):
        url = f"/v1/realtime/calls/{CALL}/hangup"
        headers = {"Content-Encoding": "gzip"}
        async with client.post(url, data=gzip.compress(b"body"), headers=headers) as answer:
            assert (answer.status, await answer.text()) == (202, "got body")
        assert "Content-Encoding" not in other.headers[0]


@pytest.mark.asyncio
async def test_a_join_without_an_upgrade_is_refused_here(tmp_path: Path):
    async with two(tmp_path, echo) as (client, other):
        async with client.get(f"/v1/realtime?call_id={CALL}") as answer:
            assert answer.status == 400
        assert other.headers == []
