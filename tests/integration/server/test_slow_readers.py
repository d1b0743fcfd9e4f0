"""Clients that read slowly, or never: what waits for them is bounded, and nothing old arrives late.

Buffers of the kernel are made small, and these clients ask for ten seconds of audio ahead, so that the outbox fills
within the test; the session beside them has the usual second.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from engines.sim.wave import verify
from session_server.http.server import Server
from tests.integration.server.bystander import assert_answers, bystander
from tests.integration.server.caller import Caller
from tests.integration.server.conftest import OpenServer
from tests.integration.server.inside import outbox_of, task_of
from tests.until import until

pytestmark = pytest.mark.integration

ASK = (
    {
        "type": "session.update",
        "session": {"type": "realtime", "extensions": {"playback": {"max_lead_ms": 10_000}}},
    },
    {
        "type": "conversation.item.create",
        "item": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "something long"}],
        },
    },
    {"type": "response.create"},
)
SMALL_BUFFERS = {"server__send_buffer_bytes": 4096}
FAR_AHEAD = {"scheduler__lead_cap_s": 120, "scheduler__text_ahead_s": 120}


@asynccontextmanager
async def not_reading(server: Server) -> AsyncIterator[ClientConnection]:
    """A connection whose socket is hardly read: only as far as the client library looks ahead."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    assert server.address is not None
    await asyncio.get_running_loop().sock_connect(raw, (server.address.host, server.address.port))
    client = await connect(
        server.address.ws,
        sock=raw,
        max_queue=1,
        compression=None,
        ping_interval=None,
        close_timeout=0.2,
        proxy=None,
    )
    try:
        yield client
    finally:
        client.transport.abort()


async def ask(client: ClientConnection) -> str:
    """Ask for a long answer; returns the session's id, from the one event that is read."""
    created = json.loads(await client.recv())
    for event in ASK:
        await client.send(json.dumps(event))
    return str(created["session"]["id"])


async def resume(client: ClientConnection) -> Caller:
    """Read again, to the end."""
    caller = Caller(client)
    reader = asyncio.ensure_future(caller.read())
    await caller.closed()
    await reader
    return caller


@pytest.mark.asyncio
async def test_a_client_that_never_reads_is_closed_with_1013_within_the_high_water_time(
    serve: OpenServer,
):
    limits = {**SMALL_BUFFERS, **FAR_AHEAD, "server__outbox_wait_s": 0.8}
    async with (
        serve(**limits) as server,
        bystander(server.address.ws),
        not_reading(server) as client,
    ):
        session_id = await ask(client)
        outbox = outbox_of(server, session_id)
        await until(lambda: outbox.queued_bytes > 100_000)
        assert (server.metrics.value("outbox_bytes") or 0) > 100_000
        await until(lambda: outbox.closing is not None, within_s=3)
        assert outbox.closing == (1013, "the client reads too slowly")
        assert outbox.queued_bytes < 100_000, "what it will never read was not given up"
        await until(lambda: len(server.registry) == 1)
        with suppress(ConnectionClosed):
            while True:
                await client.recv()
        assert client.close_code in (1013, 1006)


@pytest.mark.asyncio
async def test_a_client_that_reads_again_in_time_learns_that_it_was_1013(serve: OpenServer):
    limits = {**SMALL_BUFFERS, **FAR_AHEAD, "server__outbox_wait_s": 0.5}
    async with serve(server__close_wait_s=3, **limits) as server, bystander(server.address.ws):
        async with not_reading(server) as client:
            outbox = outbox_of(server, await ask(client))
            await until(lambda: outbox.closing is not None)
            with suppress(ConnectionClosed):
                while True:
                    await client.recv()
            assert client.close_code == 1013
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
async def test_more_than_the_outbox_holds_closes_at_once_and_holds_no_more(serve: OpenServer):
    limits = {**SMALL_BUFFERS, **FAR_AHEAD, "server__outbox_bytes": 530_000}
    async with serve(**limits) as server, bystander(server.address.ws):
        async with not_reading(server) as client:
            outbox = outbox_of(server, await ask(client))
            highest = 0
            while outbox.closing is None:
                highest = max(highest, outbox.queued_bytes)
                await asyncio.sleep(0)
            assert outbox.closing == (1013, "outbox full: the client does not read")
            assert highest <= 530_000
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
async def test_errors_that_nobody_reads_close_with_1013_too(serve: OpenServer):
    limits = {**SMALL_BUFFERS, "server__outbox_bytes": 530_000}
    async with serve(**limits) as server, bystander(server.address.ws):
        async with not_reading(server) as client:
            session_id = json.loads(await client.recv())["session"]["id"]
            outbox = outbox_of(server, session_id)
            with suppress(ConnectionClosed):
                for _ in range(3000):
                    await client.send('{"type":"nope"}')
            await until(lambda: outbox.closing is not None)
            assert outbox.closing[0] == 1013
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
async def test_cancelled_audio_of_a_slow_reader_never_arrives(serve: OpenServer):
    """Only what the kernel had taken when the answer was cancelled comes, and the ledger says the same."""
    async with (
        serve(**SMALL_BUFFERS, **FAR_AHEAD) as server,
        bystander(server.address.ws),
        not_reading(server) as client,
    ):
        session_id = await ask(client)
        outbox = outbox_of(server, session_id)
        await until(lambda: outbox.queued_bytes > 400_000)
        await client.send(json.dumps({"type": "response.cancel"}))
        await until(lambda: outbox.queued_bytes < 100_000)
        caller = Caller(client)
        reader = asyncio.ensure_future(caller.read())
        caller.check.joined_late()
        await caller.wait("response.done")
        (response,) = (event["response"] for event in caller.of("response.done"))
        assert response["status_details"]["reason"] == "client_cancelled"
        name = response["id"]
        report = verify(caller.pcm(name), name)
        assert report.faults == ()
        caller.events.insert(0, {"type": "session.created", "session": {"id": session_id}})
        mark = task_of(server, caller).core.snapshot(name)
        assert mark is not None
        assert report.samples == mark.sent
        assert mark.sent < mark.generated / 4
        await assert_answers(caller, "And you")
        caller.assert_lawful()
        client.transport.abort()
        await reader


@pytest.mark.asyncio
async def test_a_reader_that_pauses_hears_everything_when_it_goes_on(serve: OpenServer):
    """Shorter than the high-water time: nothing is lost, nothing comes twice."""
    async with (
        serve(**SMALL_BUFFERS) as server,
        bystander(server.address.ws),
        not_reading(server) as client,
    ):
        session_id = json.loads(await client.recv())["session"]["id"]
        outbox = outbox_of(server, session_id)
        text = {"type": "input_text", "text": "a question of some length " * 8}
        item = {"type": "message", "role": "user", "content": [text]}
        await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
        await client.send(json.dumps({"type": "response.create"}))
        await until(lambda: outbox.queued_bytes > 20_000)
        await asyncio.sleep(0.8)
        caller = Caller(client)
        caller.check.joined_late()
        reader = asyncio.ensure_future(caller.read())
        done = (await caller.wait("response.done"))["response"]
        assert done["status"] == "completed"
        assert verify(caller.pcm(done["id"]), done["id"]).complete
        client.transport.abort()
        await reader
