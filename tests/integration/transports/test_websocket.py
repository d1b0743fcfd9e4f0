"""The WebSocket transport over real sockets: order, purge, slow readers, big and odd frames, ends."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from session_server.transports.base import Endpoint, Outbox
from session_server.transports.read_budget import LARGE_BYTES
from session_server.transports.websocket import (
    WebSocketLimits,
    serve_websocket,
    websocket_response,
)
from tests.until import until

pytestmark = pytest.mark.integration

HANG_S = 40
"""A wait this long has failed; no wait is a bar."""
PATIENT = pytest.mark.asyncio(loop_factories=["asyncio"])
"""On the process's own time: a peer's answer is due within tenths of a second."""


class Scripted:
    """An endpoint that records what it is told; `react` says what it does with a frame."""

    def __init__(self, outbox: Outbox, react: Callable[[Scripted, str | bytes], None]) -> None:
        self.outbox = outbox
        self.react = react
        self.frames: list[str | bytes] = []
        self.written: list[tuple[str, int]] = []
        self.closes = 0
        self.closed = asyncio.Event()

    def on_frame(self, frame: str | bytes) -> None:
        self.frames.append(frame)
        self.react(self, frame)

    def on_audio_written(self, response_id: str, end_sample: int) -> None:
        self.written.append((response_id, end_sample))

    def on_closed(self) -> None:
        self.closes += 1
        self.closed.set()


def ignore(_endpoint: Scripted, _frame: str | bytes) -> None:
    pass


@asynccontextmanager
async def serving(
    limits: WebSocketLimits, react: Callable[[Scripted, str | bytes], None] = ignore
) -> AsyncIterator[tuple[str, list[Scripted]]]:
    endpoints: list[Scripted] = []

    def make(outbox: Outbox) -> Endpoint:
        endpoints.append(Scripted(outbox, react))
        return endpoints[-1]

    async def handle(request: web.Request) -> web.StreamResponse:
        response = websocket_response(limits)
        await serve_websocket(request, response, limits, make)
        return response

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"ws://127.0.0.1:{port}/", endpoints
    finally:
        await runner.cleanup()


async def first(endpoints: list[Scripted]) -> Scripted:
    await until(lambda: bool(endpoints))
    return endpoints[0]


async def read_to_the_end(client: ClientConnection) -> int | None:
    """The close code, after all that came before it."""
    try:
        while True:
            await client.recv()
    except ConnectionClosed:
        return client.close_code


async def send_and_read(client: ClientConnection, message: str | AsyncIterator[str]) -> int | None:
    """Send what will be refused; the close code."""
    with suppress(ConnectionClosed):
        await client.send(message)
    return await read_to_the_end(client)


def small_receive_buffer() -> socket.socket:
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    raw.setblocking(False)
    return raw


async def connect_unread(url: str) -> ClientConnection:
    """A client that reads from its socket only a little and then stops."""
    raw = small_receive_buffer()
    port = int(url.rsplit(":", 1)[1].strip("/"))
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    return await connect(url, sock=raw, max_queue=1, compression=None, ping_interval=None)


@pytest.mark.asyncio
async def test_frames_leave_in_order_and_audio_is_reported_once_written():
    def react(endpoint: Scripted, _frame: str | bytes) -> None:
        endpoint.outbox.send(b'"a"')
        endpoint.outbox.send_audio(b'"b"', "resp_1", 2400)
        endpoint.outbox.send(b'"c"')
        endpoint.outbox.close(1000, "done")
        endpoint.outbox.send(b'"never"')

    async with serving(WebSocketLimits(), react) as (url, endpoints), connect(url) as client:
        await client.send("go")
        assert [frame async for frame in client] == ['"a"', '"b"', '"c"']
        assert (client.close_code, client.close_reason) == (1000, "done")
        await endpoints[0].closed.wait()
        assert endpoints[0].written == [("resp_1", 2400)]
        assert endpoints[0].closes == 1


@pytest.mark.asyncio
async def test_binary_frames_arrive_as_bytes_and_text_as_str():
    async with serving(WebSocketLimits()) as (url, endpoints), connect(url) as client:
        await client.send(b"\0\1")
        await client.send("text")
        endpoint = await first(endpoints)
        await until(lambda: len(endpoint.frames) == 2)
        assert endpoint.frames == [b"\0\1", "text"]


@pytest.mark.asyncio
async def test_purge_takes_back_all_but_the_frame_in_flight():
    limits = WebSocketLimits(send_buffer_bytes=4096, outbox_wait_s=30)
    frame = b'"' + b"x" * 50_000 + b'"'
    async with serving(limits) as (url, endpoints):
        client = await connect_unread(url)
        endpoint = await first(endpoints)
        for k in range(40):
            endpoint.outbox.send_audio(frame, "resp_old", (k + 1) * 100)
            endpoint.outbox.send_audio(frame, "resp_other", (k + 1) * 100)
        await asyncio.sleep(0.2)  # let the kernel's buffers fill
        purged = endpoint.outbox.purge("resp_old")
        written_before = [w for w in endpoint.written if w[0] == "resp_old"]
        endpoint.outbox.close(1000, "")
        received = [f async for f in client]
        await endpoint.closed.wait()
        old = [w for w in endpoint.written if w[0] == "resp_old"]
        assert purged > 0
        assert len(old) + purged == 40
        assert len(old) - len(written_before) <= 1
        assert len(received) == len(endpoint.written) == len(old) + 40
        assert endpoint.outbox.queued_bytes == 0


@pytest.mark.asyncio
async def test_a_reader_that_stops_is_closed_with_1013_after_the_high_water_time():
    limits = WebSocketLimits(send_buffer_bytes=4096, outbox_wait_s=0.3, close_wait_s=5)
    async with serving(limits) as (url, endpoints):
        client = await connect_unread(url)
        endpoint = await first(endpoints)
        for _ in range(40):
            endpoint.outbox.send(b'"' + b"x" * 50_000 + b'"')
        await until(lambda: endpoint.outbox.closing is not None)
        assert endpoint.outbox.queued_bytes == 0
        assert await read_to_the_end(client) == 1013
        await endpoint.closed.wait()
        assert endpoint.closes == 1


@pytest.mark.asyncio
async def test_the_byte_bound_closes_at_once_and_a_dead_reader_is_aborted():
    limits = WebSocketLimits(
        send_buffer_bytes=4096, outbox_bytes=500_000, outbox_wait_s=30, close_wait_s=0.2
    )
    async with serving(limits) as (url, endpoints):
        client = await connect_unread(url)
        endpoint = await first(endpoints)
        for _ in range(40):
            endpoint.outbox.send(b'"' + b"x" * 50_000 + b'"')
        assert endpoint.outbox.closing == (1013, "outbox full: the client does not read")
        async with asyncio.timeout(HANG_S):
            await endpoint.closed.wait()  # though the client never reads
        assert endpoint.closes == 1
        client.transport.abort()


@pytest.mark.asyncio
async def test_a_message_of_20_mib_is_taken():
    async with serving(WebSocketLimits()) as (url, endpoints), connect(url) as client:
        await client.send("x" * (20 * 1024 * 1024))
        endpoint = await first(endpoints)
        await until(lambda: len(endpoint.frames) == 1)
        assert len(endpoint.frames[0]) == 20 * 1024 * 1024


@pytest.mark.asyncio
async def test_a_larger_message_closes_with_1009():
    limits = WebSocketLimits(max_message_bytes=100_000)
    async with serving(limits) as (url, endpoints), connect(url) as client:
        assert await send_and_read(client, "x" * 8_000_000) == 1009
        endpoint = await first(endpoints)
        await endpoint.closed.wait()
        assert endpoint.frames == []


@pytest.mark.asyncio
async def test_many_fragments_of_one_message_are_bounded_too():
    limits = WebSocketLimits(max_message_bytes=100_000)
    async with serving(limits) as (url, endpoints), connect(url) as client:

        async def fragments() -> AsyncIterator[str]:
            for _ in range(200):
                yield "x" * 1000

        assert await send_and_read(client, fragments()) == 1009
        assert (await first(endpoints)).frames == []


@PATIENT
async def test_a_peer_that_stops_answering_pings_is_noticed():
    limits = WebSocketLimits(heartbeat_s=0.2, close_wait_s=0.2)
    async with serving(limits) as (url, endpoints):
        port = int(url.rsplit(":", 1)[1].strip("/"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        await reader.readuntil(b"\r\n\r\n")
        endpoint = await first(endpoints)
        async with asyncio.timeout(HANG_S):
            await endpoint.closed.wait()
        assert endpoint.closes == 1
        writer.close()


@PATIENT
async def test_an_idle_peer_that_answers_pings_is_kept():
    async with (
        serving(WebSocketLimits(heartbeat_s=0.1)) as (url, endpoints),
        connect(url) as client,
    ):
        await asyncio.sleep(0.6)
        await client.send("still here")
        endpoint = await first(endpoints)
        await until(lambda: endpoint.frames == ["still here"])


@pytest.mark.asyncio
async def test_a_client_that_drops_its_socket_ends_the_session_once():
    def react(endpoint: Scripted, _frame: str | bytes) -> None:
        for k in range(200):
            endpoint.outbox.send_audio(b'"' + b"x" * 20_000 + b'"', "resp", k)

    async with serving(WebSocketLimits(), react) as (url, endpoints):
        client = await connect(url, compression=None)
        await client.send("go")
        endpoint = await first(endpoints)
        await until(lambda: bool(endpoint.written))
        client.transport.abort()
        await endpoint.closed.wait()
        assert endpoint.closes == 1
        assert endpoint.outbox.queued_bytes == 0


@pytest.mark.asyncio
async def test_a_bug_in_a_session_closes_it_with_1011_and_leaves_the_next_alone():
    def react(_endpoint: Scripted, frame: str | bytes) -> None:
        if frame == "bug":
            raise ZeroDivisionError

    async with serving(WebSocketLimits(), react) as (url, endpoints):
        async with connect(url) as client, connect(url) as other:
            assert await send_and_read(client, "bug") == 1011
            await other.send("fine")
            await until(lambda: endpoints[1].frames == ["fine"])
        assert [e.closes for e in endpoints] == [1, 1]


@pytest.mark.asyncio
async def test_a_bug_while_a_write_is_reported_closes_with_1011():
    def react(endpoint: Scripted, _frame: str | bytes) -> None:
        endpoint.written = None  # type: ignore[assignment]
        endpoint.outbox.send_audio(b"1", "resp", 1)

    async with serving(WebSocketLimits(), react) as (url, endpoints):
        async with connect(url) as client:
            assert await send_and_read(client, "go") == 1011
        assert endpoints[0].closes == 1


@pytest.mark.asyncio
async def test_pings_are_answered_between_frames():
    async with serving(WebSocketLimits()) as (url, _endpoints), connect(url) as client:
        async with asyncio.timeout(HANG_S):
            await (await client.ping())


@PATIENT
async def test_a_flood_of_small_frames_lets_the_loop_turn_between_any_two():
    """Whatever else waits for the loop (other sessions' timers and sockets) comes in between, while its turns are short."""
    turns, seen = 0, []

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    def react(_endpoint: Scripted, _frame: str | bytes) -> None:
        seen.append(turns)

    async with serving(WebSocketLimits(), react) as (url, endpoints), connect(url) as client:
        await first(endpoints)
        turn()
        client.transport.write(b"".join(masked(b"x") for _ in range(1000)))
        await until(lambda: len(seen) == 1000)
    assert len(set(seen)) == 1000


@PATIENT
async def test_a_flood_of_pings_lets_the_loop_turn_between_any_two(monkeypatch):
    """aiohttp answered a thousand of them in one turn of the loop: other sessions stood still for 0.1 s."""
    turns, seen = 0, []

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    async def pong(_self: web.WebSocketResponse, _message: bytes) -> None:
        seen.append(turns)

    monkeypatch.setattr(web.WebSocketResponse, "pong", pong)
    async with serving(WebSocketLimits()) as (url, endpoints), connect(url) as client:
        endpoint = await first(endpoints)
        turn()
        client.transport.write(b"".join(masked(b"x") + masked(b"", 9) for _ in range(500)))
        await until(lambda: len(seen) == 500)
        assert len(endpoint.frames) == 500
    assert len(set(seen)) == 500


@pytest.mark.asyncio
async def test_a_flood_of_empty_continuations_lets_the_loop_turn_between_any_two_reads(monkeypatch):
    """Of a message that never ends nothing reaches the reader; uvloop had eight megabytes parsed in one turn."""
    turns = 0
    parsed: Counter[int] = Counter()

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    data_received = RequestHandler.data_received

    def counted(self: RequestHandler, data: bytes) -> None:
        parsed[turns] += len(data)
        data_received(self, data)

    flood = b"\x00\x80abcd" * (1 << 20)
    async with serving(WebSocketLimits()) as (url, endpoints), connect(url) as client:
        endpoint = await first(endpoints)
        monkeypatch.setattr(RequestHandler, "data_received", counted)
        turn()
        client.transport.write(b"\x01\x80abcd")
        client.transport.write(flood)
        client.transport.write(b"\x80\x81\0\0\0\0x")
        await until(lambda: endpoint.frames == ["x"])
    assert sum(parsed.values()) > len(flood)
    assert max(parsed.values()) <= 256 * 1024 + 32 * LARGE_BYTES


@pytest.mark.asyncio
async def test_slow_turns_of_the_loop_do_not_read_a_microphone_more_slowly_than_it_speaks():
    """A machine with far too much to do read one frame in a turn of the loop; the peer's ping waited behind them all, and
    after 20 s its library gave the connection up (1006)."""
    turns, seen = 0, []

    def slow_turn() -> None:
        nonlocal turns
        turns += 1
        burn(0.03)
        if len(seen) < 120:
            asyncio.get_running_loop().call_soon(slow_turn)

    def react(_endpoint: Scripted, _frame: str | bytes) -> None:
        seen.append(turns)

    async with serving(WebSocketLimits(), react) as (url, endpoints), connect(url) as client:
        await first(endpoints)
        slow_turn()
        client.transport.write(b"".join(masked(b"x") for _ in range(120)))
        await until(lambda: len(seen) == 120)
    assert len(set(seen)) <= 60


@pytest.mark.asyncio
async def test_our_own_standstill_is_not_held_against_the_reader():
    limits = WebSocketLimits(outbox_wait_s=0.2)
    async with (
        serving(limits) as (url, endpoints),
        connect(url, compression=None, max_size=None) as client,
    ):
        outbox = (await first(endpoints)).outbox
        outbox.send(b'"%s"' % (b"x" * 2_000_000))
        outbox.send(b'"last"')
        burn(0.3)
        assert len(await client.recv()) == 2_000_002
        assert await client.recv() == '"last"'


def burn(seconds: float) -> None:
    """The loop stands still for so long, on the clock that it has in these tests."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def masked(payload: bytes, opcode: int = 1) -> bytes:
    """A frame of a client, by itself a text; the mask is zero."""
    return bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload


@pytest.mark.asyncio
async def test_compression_is_never_negotiated():
    async with serving(WebSocketLimits()) as (url, _endpoints), connect(url) as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers
