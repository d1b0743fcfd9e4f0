"""The HTTP routes over real sockets: credentials, admission, errors, CORS, readiness, keys."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import ClientResponse, WSServerHandshakeError
from aiohttp.test_utils import TestClient, TestServer

from session_server.config import AuthConfig, Config, load
from session_server.http.auth import ClientSecrets, Gate, OwnSecrets
from session_server.http.realtime_routes import OpenSession, RealtimeRoutes
from session_server.http.routes import build_app
from session_server.http.session_factory import ConnectionContext
from session_server.protocol.session_config import session_rules, voices
from session_server.session.registry import NotAdmitted, Refusal, SessionRegistry
from session_server.transports.base import Endpoint, Outbox
from tests.until import until

pytestmark = pytest.mark.integration


class Greeter:
    """A session of one line: says who it is, repeats what it hears."""

    def __init__(self, outbox: Outbox, context: ConnectionContext) -> None:
        self.outbox = outbox
        outbox.send(json.dumps({"hello": context.session_id}).encode())

    def on_frame(self, frame: str | bytes) -> None:
        self.outbox.send(json.dumps({"echo": str(frame)}).encode())

    def on_audio_written(self, response_id: str, end_sample: int) -> None: ...

    def on_closed(self) -> None: ...


@dataclass
class Server:
    client: TestClient
    registry: SessionRegistry
    contexts: list[ConnectionContext] = field(default_factory=list)


@asynccontextmanager
async def nobody_asked(_session_id: str) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def serving(
    *,
    keys: tuple[str, ...] = (),
    limit: int = 8,
    open_session: OpenSession = nobody_asked,
    reasons: tuple[str, ...] = (),
) -> AsyncIterator[Server]:
    config: Config = replace(load(Path("sim.yaml")).config, auth=AuthConfig(keys=keys))
    registry = SessionRegistry(limit, retry_after_s=7)
    registry.open()
    secrets = OwnSecrets(ClientSecrets(100))
    contexts: list[ConnectionContext] = []

    def make(outbox: Outbox, context: ConnectionContext) -> Endpoint:
        contexts.append(context)
        return Greeter(outbox, context)

    routes = RealtimeRoutes(
        config=config,
        registry=registry,
        gate=Gate(keys, secrets),
        secrets=secrets,
        rules=session_rules(voices(("heart",))),
        make_endpoint=make,
        open_session=open_session,
    )

    async def page() -> bytes:
        return b"# metrics\n"

    async def why_not() -> list[str]:
        return list(reasons)

    app = build_app(routes, why_not, page, 1_700_000_000)
    async with TestClient(TestServer(app)) as client:
        yield Server(client, registry, contexts)


async def error_of(response: ClientResponse) -> dict[str, object]:
    body = await response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"type", "code", "message", "param"}
    return body["error"]


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/v1/realtime", "/realtime"])
async def test_a_session_over_either_path(path: str):
    async with serving() as server:
        async with server.client.ws_connect(f"{path}?model=gpt-realtime") as socket:
            hello = await socket.receive_json()
            assert hello["hello"].startswith("sess_")
            assert server.contexts[0].model == "gpt-realtime"
            assert server.contexts[0].session_id == hello["hello"]
            await socket.send_str("x")
            assert await socket.receive_json() == {"echo": "x"}
        assert server.contexts[0].extensions == ()


@pytest.mark.asyncio
async def test_the_subprotocol_realtime_is_answered_whenever_it_was_offered():
    offered = ("openai-insecure-api-key.sk-a", "realtime", "openai-agents-sdk.0.20")
    async with (
        serving(keys=("sk-a",)) as server,
        server.client.ws_connect("/v1/realtime", protocols=offered) as socket,
    ):
        assert socket.protocol == "realtime"


@pytest.mark.asyncio
async def test_bad_credentials_are_401_before_the_upgrade_and_never_logged(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    attempts = [
        {},
        {"Authorization": "Bearer sk-wrong-secret"},
        {"Sec-WebSocket-Protocol": "openai-insecure-api-key.sk-wrong-secret"},
    ]
    async with serving(keys=("sk-right-secret",)) as server:
        for headers in attempts:
            response = await server.client.get("/v1/realtime", headers=headers)
            assert response.status == 401
            assert (await error_of(response))["code"] == "invalid_api_key"
        good = {"Authorization": "Bearer sk-right-secret"}
        async with server.client.ws_connect("/v1/realtime", headers=good) as socket:
            await socket.receive_json()
        only_key = ("openai-insecure-api-key.sk-right-secret",)
        async with server.client.ws_connect("/v1/realtime", protocols=only_key) as socket:
            assert socket.protocol is None
    logged = "".join(r.getMessage() for r in caplog.records if not r.name.startswith("asyncio"))
    assert "secret" not in logged


@pytest.mark.asyncio
async def test_a_hundred_connects_at_once_at_limit_eight_let_in_eight():
    async with serving(limit=8) as server:
        opened, refused = [], []

        async def attempt() -> None:
            try:
                opened.append(await server.client.ws_connect("/v1/realtime"))
            except WSServerHandshakeError as error:
                refused.append((error.status, (error.headers or {}).get("Retry-After")))

        await asyncio.gather(*(attempt() for _ in range(100)))
        assert len(opened) == 8
        assert refused == [(503, "7")] * 92
        assert len(server.registry) == 8
        assert server.registry.refused[Refusal.FULL] == 92
        await opened[0].close()
        await until(lambda: len(server.registry) < 8)  # the server sees the close a moment later
        opened[0] = await server.client.ws_connect("/v1/realtime")
        for socket in opened:
            await socket.close()


@pytest.mark.asyncio
async def test_the_body_of_a_refusal_names_the_reason():
    async with serving() as server:
        server.registry.block(Refusal.DRAINING, "the server is going down")
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", **_handshake()}
        response = await server.client.get("/v1/realtime", headers=headers)
        assert (response.status, response.headers["Retry-After"]) == (503, "7")
        error = await error_of(response)
        assert error["code"] == "inference_rate_limit_exceeded"
        assert error["param"] == "draining"
        assert error["type"] == "server_error"


def _handshake() -> dict[str, str]:
    key = base64.b64encode(b"0123456789abcdef").decode()
    return {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key}


@pytest.mark.asyncio
async def test_a_host_that_refuses_is_503_and_gives_the_slot_back():
    @asynccontextmanager
    async def refuse(_session_id: str) -> AsyncIterator[None]:
        raise NotAdmitted(Refusal.ENGINE, "no capacity left", 3)
        yield

    async with serving(open_session=refuse) as server:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", **_handshake()}
        response = await server.client.get("/v1/realtime", headers=headers)
        assert (response.status, response.headers["Retry-After"]) == (503, "3")
        assert len(server.registry) == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        ("?extensions=playback,telepathy", {}, "unknown_parameter"),
        ("?extensions=resume", {}, "invalid_value"),
        ("?intent=mindreading", {}, "invalid_value"),
        ("?model=" + "m" * 300, {}, "string_above_max_length"),
        ("", {"OpenAI-Beta": "realtime=v1"}, "beta_api_shape_disabled"),
        ("", {"Sec-WebSocket-Protocol": "openai-beta.realtime-v1"}, "beta_api_shape_disabled"),
        ("", {}, "websocket_required"),
    ],
)
async def test_what_cannot_be_is_400_before_the_upgrade(
    query: str, headers: dict[str, str], code: str
):
    async with serving() as server:
        response = await server.client.get(f"/v1/realtime{query}", headers=headers)
        assert response.status == 400
        assert (await error_of(response))["code"] == code
        assert len(server.registry) == 0


@pytest.mark.asyncio
async def test_a_call_that_is_not_there_is_404_where_there_are_no_calls_at_all():
    async with serving() as server:
        response = await server.client.get("/v1/realtime?call_id=rtc_1")
        assert response.status == 404
        assert (await error_of(response))["code"] == "call_not_found"


@pytest.mark.asyncio
async def test_extensions_and_intent_reach_the_session():
    async with serving() as server:
        url = "/v1/realtime?extensions=playback,%20playback&intent=transcription"
        async with server.client.ws_connect(url):
            assert server.contexts[0].extensions == ("playback",)
            assert server.contexts[0].intent == "transcription"


@pytest.mark.asyncio
async def test_an_ephemeral_key_opens_a_session_with_its_own_settings():
    async with serving(keys=("sk-a",)) as server:
        session = {"type": "realtime", "model": "m-1", "instructions": "Speak French."}
        response = await server.client.post(
            "/v1/realtime/client_secrets",
            json={"expires_after": {"anchor": "created_at", "seconds": 60}, "session": session},
            headers={"Authorization": "Bearer sk-a"},
        )
        assert response.status == 200
        minted = await response.json()
        assert minted["value"].startswith("ek_")
        shown = minted["session"]
        assert (shown["instructions"], shown["model"]) == ("Speak French.", "m-1")
        assert shown["object"] == "realtime.session"
        assert shown["id"].startswith("sess_")
        ephemeral = {"Authorization": f"Bearer {minted['value']}"}
        async with server.client.ws_connect("/v1/realtime", headers=ephemeral):
            assert server.contexts[0].session == session
        again = await server.client.post("/v1/realtime/client_secrets", headers=ephemeral)
        assert again.status == 401


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"[]", "invalid_type"),
        (b'{"x": 1}', "unknown_parameter"),
        (b'{"expires_after": {"seconds": 5}}', None),
        (b'{"expires_after": {"anchor": "never"}}', "invalid_value"),
        (b'{"session": {"type": "realtime", "voice": "x"}}', "unknown_parameter"),
        (b'{"session": {}}', "missing_required_parameter"),
        (b"[" * 100_000, "invalid_json"),
    ],
)
async def test_a_bad_request_for_a_key_is_400(body: bytes, code: str | None):
    async with serving() as server:
        response = await server.client.post("/v1/realtime/client_secrets", data=body)
        assert response.status == 400
        error = await error_of(response)
        assert code is None or error["code"] == code


@pytest.mark.asyncio
async def test_an_empty_request_for_a_key_gives_the_defaults():
    async with serving() as server:
        response = await server.client.post("/v1/realtime/client_secrets")
        assert response.status == 200
        assert (await response.json())["session"]["type"] == "realtime"


@pytest.mark.asyncio
async def test_a_body_that_is_too_large_is_413():
    async with serving() as server:
        response = await server.client.post(
            "/v1/realtime/client_secrets", data=io.BytesIO(b"x" * 2_000_000)
        )
        assert response.status == 413
        assert (await error_of(response))["code"] == "request_too_large"


@pytest.mark.asyncio
async def test_a_body_that_is_not_what_its_encoding_says_is_400_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
):
    async with serving() as server:
        for body in (b"abc", io.BytesIO(b"abc" * 100_000)):
            response = await server.client.post(
                "/v1/realtime/client_secrets", data=body, headers={"Content-Encoding": "gzip"}
            )
            assert response.status == 400
            assert (await error_of(response))["code"] == "invalid_body"
        assert (await server.client.get("/healthz")).status == 200
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.asyncio
async def test_unknown_urls_and_methods_answer_in_the_shape_of_the_api():
    async with serving() as server:
        response = await server.client.get("/v1/chat/completions")
        assert response.status == 404
        error = await error_of(response)
        assert error["code"] == "unknown_url"
        assert error["message"] == "Unknown request URL: GET /v1/chat/completions."
        response = await server.client.delete("/v1/realtime")
        assert response.status == 405
        assert (await error_of(response))["code"] == "method_not_allowed"


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/realtime/client_secrets", "/realtime"])
async def test_browsers_may_call_the_realtime_routes_from_any_origin(path: str):
    async with serving() as server:
        response = await server.client.options(
            path, headers={"Access-Control-Request-Headers": "authorization, x-own"}
        )
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        assert response.headers["Access-Control-Expose-Headers"] == "Location"
        assert response.headers["Access-Control-Allow-Headers"] == (
            "Authorization, Content-Type, x-own"
        )


@pytest.mark.asyncio
async def test_errors_of_the_realtime_routes_carry_cors_too():
    async with serving(keys=("sk-a",)) as server:
        response = await server.client.post("/v1/realtime/client_secrets")
        assert response.status == 401
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        response = await server.client.get("/healthz")
        assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.asyncio
async def test_readiness_gives_its_reasons():
    async with serving() as server:
        assert (await server.client.get("/readyz")).status == 200
    async with serving(reasons=("the engines are starting",)) as server:
        response = await server.client.get("/readyz")
        assert response.status == 503
        assert (await response.json())["reasons"] == ["the engines are starting"]
        assert (await server.client.get("/healthz")).status == 200


@pytest.mark.asyncio
async def test_models_need_a_key_and_metrics_do_not():
    async with serving(keys=("sk-a",)) as server:
        assert (await server.client.get("/v1/models")).status == 401
        response = await server.client.get("/v1/models", headers={"Authorization": "Bearer sk-a"})
        assert (await response.json())["data"][0]["id"] == "session-server-sim"
        response = await server.client.get("/metrics")
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert await response.read() == b"# metrics\n"
