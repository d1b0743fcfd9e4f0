"""Calls that are answered and never connect: they cannot keep the others out. And calls that two people end."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from session_server.http.server import Server
from tests.integration.server.bystander import assert_answers
from tests.integration.server.caller import calling as calling_by_websocket
from tests.integration.server.conftest import OpenServer
from tests.integration.transports.webrtc.rtc_caller import (
    ONLY_LOOPBACK,
    calling,
    offering,
    post_offer,
)
from tests.until import until

pytestmark = pytest.mark.integration


@pytest.mark.asyncio
async def test_offers_that_never_connect_fill_no_more_than_their_part_of_the_server(
    serve: OpenServer,
):
    async with (
        serve(**ONLY_LOOPBACK, scheduler__max_sessions=6, webrtc__connect_s=600) as server,
        offering() as (_, offer),
    ):
        calls = server.calls
        assert calls is not None
        calls.pending.patience_s = 0.2
        flood = [asyncio.create_task(post_offer(server, offer)) for _ in range(9)]
        await until(lambda: len(calls) == 3)
        assert len(server.registry) == 3, "half of the sessions"
        async with (
            calling_by_websocket(server.address.ws) as beside,
            calling(server) as caller,
        ):
            await assert_answers(beside, "hello")
            await caller.ended(await caller.ask("hello"))
        assert [answer[0] for answer in await asyncio.gather(*flood)] == [201] * 9
        assert len(server.registry) <= 3
        assert server.metrics.value("sessions_rejected_total", reason="full") is None
        await calls.close()


@pytest.mark.asyncio
async def test_an_offer_that_finds_no_place_in_time_is_told_when_to_come_back(serve: OpenServer):
    async with (
        serve(**ONLY_LOOPBACK, webrtc__max_unconnected=1, webrtc__connect_s=600) as server,
        offering() as (_, offer),
    ):
        calls = server.calls
        assert calls is not None
        calls.pending.wait_s = 0.05
        assert (await post_offer(server, offer))[0] == 201
        status, headers, body = await post_offer(server, offer)
        assert (status, headers["Retry-After"]) == (503, "5")
        assert "too many calls are being connected" in body
        assert server.metrics.value("sessions_rejected_total", reason="connecting") == 1
        assert len(server.registry) == 1
        await calls.close()


@pytest.mark.asyncio
async def test_of_two_who_hang_up_one_gets_200_and_the_other_404_always(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        answers = await asyncio.gather(*(hang_up(server, caller.call_id) for _ in range(6)))
        assert sorted(answers) == [200, *[404] * 5]
        assert await join(server, caller.call_id) == 404
        await caller.closed()
        assert await hang_up(server, caller.call_id) == 404


@pytest.mark.asyncio
async def test_a_call_that_the_client_closed_is_not_there_any_more(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        live = server.calls.find(caller.call_id)
        caller.channel.close()
        await until(lambda: live.call.ending is not None)
        assert await hang_up(server, caller.call_id) == 404
        assert await join(server, caller.call_id) == 404


async def hang_up(server: Server, call_id: str) -> int:
    url = f"{server.address.http}/v1/realtime/calls/{call_id}/hangup"
    async with aiohttp.ClientSession() as http, http.post(url) as answer:
        return answer.status


async def join(server: Server, call_id: str) -> int:
    with pytest.raises(InvalidStatus) as caught:
        await connect(f"{server.address.ws}?call_id={call_id}", proxy=None)
    return caught.value.response.status_code
