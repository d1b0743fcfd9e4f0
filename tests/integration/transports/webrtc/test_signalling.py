"""The way into a call: offers and forms, keys, limits, CORS, and connections that join a call."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from aiortc import VideoStreamTrack

from session_server.http.server import Server
from tests.integration.server.caller import calling as calling_by_websocket
from tests.integration.server.conftest import OpenServer
from tests.integration.transports.webrtc.cameras import direction
from tests.integration.transports.webrtc.rtc_caller import (
    ONLY_LOOPBACK,
    calling,
    form,
    offer_of,
    offering,
    post_offer,
)
from tests.until import until

pytestmark = pytest.mark.integration

SDP = {"Content-Type": "application/sdp"}
KEY = {"Authorization": "Bearer sk-right"}


async def post(server: Server, path: str, **request: Any) -> tuple[int, dict[str, Any]]:
    """Status and JSON of the answer."""
    assert server.address is not None
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.address.http}{path}", **request) as answer,
    ):
        text = await answer.text()
        return answer.status, json.loads(text) if text else {}


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/v1/realtime/calls", "/v1/realtime", "/realtime/calls"])
async def test_bad_requests_are_answered_in_one_clear_line(serve: OpenServer, path: str):
    table: list[tuple[dict[str, Any], int, str, str | None]] = [
        ({"data": b"", "headers": SDP}, 400, "invalid_sdp", "sdp"),
        ({"data": b"hello", "headers": SDP}, 400, "invalid_sdp", "sdp"),
        ({"data": b"v=0\r\n", "headers": SDP}, 400, "no_audio", "sdp"),
        ({"json": {"sdp": "v=0"}}, 415, "unsupported_content_type", None),
        ({"data": b"x" * 200_000, "headers": SDP}, 413, "request_too_large", None),
        ({"data": form({"session": "{}"})}, 400, "missing_required_parameter", "sdp"),
        ({"data": form({"sdp": "v=0", "session": "{"})}, 400, "invalid_json", None),
        ({"data": form({"sdp": "v=0", "session": "[]"})}, 400, "invalid_type", "session"),
        (
            {"data": b"nonsense", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
            400,
            "invalid_form",
            None,
        ),
        (
            {"data": b"x", "headers": {"Content-Type": "multipart/form-data"}},
            400,
            "invalid_form",
            None,
        ),
    ]
    async with serve(**ONLY_LOOPBACK, server__max_body_bytes=100_000) as server:
        for request, status, code, param in table:
            got, body = await post(server, path, **request)
            assert (got, body["error"]["code"]) == (status, code), (request, body)
            if param is not None:
                assert body["error"]["param"] == param
        assert len(server.registry) == 0


@pytest.mark.asyncio
async def test_a_bad_session_is_refused_before_any_call_begins(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, offering() as (_, offer):
        for session, param in (
            ({"type": "realtime", "nonsense": 1}, "session.nonsense"),
            ({"instructions": "x"}, "session.type"),
            ({"type": "realtime", "extensions": {"telepathy": {}}}, "session.extensions.telepathy"),
        ):
            status, _, body = await post_offer(server, offer, session)
            assert (status, json.loads(body)["error"]["param"]) == (400, param)
        assert len(server.registry) == 0


@pytest.mark.asyncio
async def test_calls_that_are_not_there_and_sip(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server:
        assert (await post(server, "/v1/realtime/calls/rtc_x/hangup"))[0] == 404
        for verb in ("accept", "reject", "refer"):
            assert (await post(server, f"/v1/realtime/calls/rtc_x/{verb}"))[0] == 501


@pytest.mark.asyncio
async def test_keys_are_asked_for(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK, auth__keys=["sk-right"]) as server, offering() as (_, offer):
        for key in (None, "sk-wrong"):
            status, _, body = await post_offer(server, offer, key=key)
            assert (status, json.loads(body)["error"]["code"]) == (401, "invalid_api_key")
        assert (await post(server, "/v1/realtime/calls/rtc_x/hangup"))[0] == 401
        assert (await post_offer(server, offer, key="sk-right"))[0] == 201
        assert server.calls is not None
        await server.calls.close()


@pytest.mark.asyncio
async def test_the_session_of_a_key_and_of_the_offer(serve: OpenServer):
    """The key's comes first, the offer's goes over it."""
    bound = {
        "type": "realtime",
        "instructions": "of the key",
        "audio": {"output": {"speed": 1.25}, "input": {"turn_detection": None}},
    }
    async with serve(**ONLY_LOOPBACK, auth__keys=["sk-right"]) as server:
        body = {"session": bound}
        _, secret = await post(server, "/v1/realtime/client_secrets", json=body, headers=KEY)
        offered = {"type": "realtime", "audio": {"output": {"voice": "cedar"}}}
        async with calling(server, offered, key=secret["value"], query="?model=any") as caller:
            session = caller.events[0]["session"]
            assert session["instructions"] == "of the key"
            assert session["audio"]["output"]["speed"] == 1.25
            assert session["audio"]["output"]["voice"] == "cedar"
            assert session["audio"]["input"]["turn_detection"] is None
            assert session["model"] == "any"


@pytest.mark.asyncio
async def test_a_full_server_says_when_to_come_back(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK, scheduler__max_sessions=1) as server, calling(server):
        async with offering() as (_, offer):
            status, headers, body = await post_offer(server, offer)
        assert (status, headers["Retry-After"]) == (503, "5")
        assert json.loads(body)["error"]["param"] == "full"
        assert headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.asyncio
async def test_browsers_of_other_origins_may_call(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, offering() as (_, offer):
        assert server.address is not None
        asked = {
            "Origin": "http://elsewhere",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, content-type, x-own",
        }
        url = f"{server.address.http}/v1/realtime/calls"
        async with (
            aiohttp.ClientSession() as http,
            http.options(url, headers=asked) as answer,
        ):
            assert answer.status == 204
            allowed = answer.headers["Access-Control-Allow-Headers"].lower()
            assert all(name in allowed for name in ("authorization", "content-type", "x-own"))
        status, headers, sdp = await post_offer(server, offer)
        assert status == 201
        assert headers["Content-Type"].startswith("application/sdp")
        assert headers["Location"].startswith("/v1/realtime/calls/rtc_")
        assert "Location" in headers["Access-Control-Expose-Headers"]
        assert sdp.startswith("v=0")
        assert server.calls is not None
        await server.calls.close()


@pytest.mark.asyncio
async def test_a_form_may_hold_files(serve: OpenServer):
    """A browser sends a Blob as a file, whatever its type."""
    async with serve(**ONLY_LOOPBACK) as server, offering() as (_, offer):
        body = aiohttp.FormData()
        body.add_field("sdp", offer.encode(), filename="blob", content_type="application/sdp")
        session = json.dumps({"type": "realtime", "instructions": "x"}).encode()
        body.add_field("session", session, filename="s", content_type="application/json")
        assert server.address is not None
        url = f"{server.address.http}/v1/realtime/calls"
        async with aiohttp.ClientSession() as http, http.post(url, data=body) as answer:
            assert answer.status == 201, await answer.text()
        assert server.calls is not None
        await server.calls.close()


@pytest.mark.asyncio
async def test_the_first_camera_is_received(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, offering() as (peer, _):
        for _ in range(2):
            peer.addTrack(VideoStreamTrack())
        status, _, sdp = await post_offer(server, await offer_of(peer))
        assert status == 201
        sections = sdp.split("\r\nm=")[1:]
        assert [
            (s.split(" ")[0], direction(s)) for s in sections if not s.startswith("application")
        ] == [
            ("audio", "sendrecv"),
            ("video", "recvonly"),
            ("video", "inactive"),
        ]
        assert server.calls is not None
        await server.calls.close()


@pytest.mark.asyncio
async def test_a_second_connection_sees_and_controls_the_call(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        assert server.address is not None
        url = f"{server.address.ws}?call_id={caller.call_id}"
        async with calling_by_websocket(url) as beside:
            assert beside.session_id == caller.events[0]["session"]["id"]
            shown = await beside.update({"instructions": "changed from beside"})
            assert shown["instructions"] == "changed from beside"
            assert (await caller.wait("session.updated"))["session"] == shown
            name = await beside.ask("anything")
            await beside.ended(name)
            await caller.ended(name)
            await beside.wait("output_audio_buffer.stopped")
            assert caller.types(1) == beside.types(1)
        await until(lambda: not server.calls.find(caller.call_id).call.outbox.followers)
        await caller.fence()


@pytest.mark.asyncio
async def test_a_second_connection_ends_with_the_call(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server:
        async with calling(server) as caller:
            url = f"{server.address.ws}?call_id={caller.call_id}"
            beside = calling_by_websocket(url)
            other = await beside.__aenter__()
            await post(server, f"/v1/realtime/calls/{caller.call_id}/hangup")
        code, _ = await other.closed()
        assert code == 1000
        await beside.__aexit__(None, None, None)


@pytest.mark.asyncio
async def test_no_calls_where_webrtc_is_switched_off(serve: OpenServer):
    async with serve(webrtc__enabled=False) as server:
        status, body = await post(server, "/v1/realtime/calls", data=b"v=0", headers=SDP)
        assert (status, body["error"]["code"]) == (405, "method_not_allowed")
