"""`GET /v1/realtime/ice_servers`: STUN and TURN for browsers, the TURN credential for those alone who may connect."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from session_server.http.server import Server
from tests.integration.server.conftest import OpenServer

pytestmark = pytest.mark.integration

CONFIGURED: dict[str, object] = {
    "webrtc__ice_servers": ("stun:a:3478", "turn:b:3478?transport=udp", "turns:b:5349"),
    "webrtc__turn_username": "user",
    "webrtc__turn_credential": "secret-of-turn",
}
FOUND = [
    {"urls": ["stun:a:3478"]},
    {
        "urls": ["turn:b:3478?transport=udp", "turns:b:5349"],
        "username": "user",
        "credential": "secret-of-turn",
    },
]


async def ask(server: Server, key: str | None = None) -> tuple[int, dict[str, Any], str]:
    """Status, JSON, and what caches may do with it."""
    assert server.address is not None
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url = f"{server.address.http}/v1/realtime/ice_servers"
    async with aiohttp.ClientSession(headers=headers) as http, http.get(url) as answer:
        return answer.status, await answer.json(), answer.headers.get("Cache-Control", "")


@pytest.mark.asyncio
async def test_none_are_named_where_none_are_configured(serve: OpenServer):
    async with serve() as server:
        assert await ask(server) == (200, {"ice_servers": []}, "no-store")


@pytest.mark.asyncio
async def test_the_credential_is_for_clients_with_a_key_or_an_ephemeral_key_only(serve: OpenServer):
    async with serve(auth__keys=("sk-right",), **CONFIGURED) as server:
        for key in (None, "sk-wrong", "ek_unknown"):
            status, body, _ = await ask(server, key)
            assert status == 401
            assert "secret-of-turn" not in str(body)
        assert await ask(server, "sk-right") == (200, {"ice_servers": FOUND}, "no-store")
        async with (
            aiohttp.ClientSession(headers={"Authorization": "Bearer sk-right"}) as http,
            http.post(f"{server.address.http}/v1/realtime/client_secrets", json={}) as answer,
        ):
            ephemeral = (await answer.json())["value"]
        assert (await ask(server, ephemeral))[1] == {"ice_servers": FOUND}


@pytest.mark.asyncio
async def test_a_server_without_calls_has_no_such_url(serve: OpenServer):
    async with serve(webrtc__enabled=False) as server:
        status, body, _ = await ask(server)
        assert (status, body["error"]["code"]) == (405, "method_not_allowed")
