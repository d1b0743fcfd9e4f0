"""The realtime routes: the WebSocket and the minting of ephemeral keys.

Order of the checks before an upgrade, each with its own HTTP answer: credentials (401), dialect, URL, upgrade
headers (400), admission (503). After the upgrade every fault is an event or a close code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from aiohttp import web

from session_server.config import Config
from session_server.http.auth import Gate, Grant, Identity, SecretStore, asks_for_beta, credentials
from session_server.http.errors import failure, no_such_call
from session_server.http.session_factory import ConnectionContext, MakeEndpoint, context_of
from session_server.protocol import error_codes
from session_server.protocol.client_secrets import client_secret_body, parse_client_secret_request
from session_server.protocol.session_config import SessionRules
from session_server.protocol.values import JsonObject, read_json
from session_server.session.registry import Connection, SessionRegistry, random_id
from session_server.transports.base import Endpoint, Outbox
from session_server.transports.websocket import (
    WebSocketLimits,
    serve_websocket,
    websocket_response,
)

Join = Callable[[web.Request], Awaitable[web.StreamResponse]]
"""Answers a request to join a call."""

OpenSession = Callable[[str], AbstractAsyncContextManager[None]]
"""Holds the engine host's admission of a session; raises NotAdmitted."""


def websocket_limits(config: Config) -> WebSocketLimits:
    """The transport's own parameters, out of the configuration."""
    server = config.server
    return WebSocketLimits(
        max_message_bytes=server.max_message_bytes,
        outbox_bytes=server.outbox_bytes,
        outbox_wait_s=server.outbox_wait_s,
        close_wait_s=server.close_wait_s,
        heartbeat_s=server.heartbeat_s,
        send_buffer_bytes=server.send_buffer_bytes,
    )


@dataclass(frozen=True, slots=True)
class RealtimeRoutes:
    """The handlers, with all that they need."""

    config: Config
    registry: SessionRegistry
    gate: Gate
    secrets: SecretStore
    rules: SessionRules
    make_endpoint: MakeEndpoint
    open_session: OpenSession
    join: Join | None = None
    """What `?call_id=` means; None: there are no calls."""

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/realtime`: one session over one WebSocket; with `call_id`, another connection of that call."""
        if "call_id" in request.query and self.join is not None:
            return await self.join(request)
        identity = await self.identify(request)
        if "call_id" in request.query:
            return no_such_call()
        if asks_for_beta(request.headers):
            return failure(
                400,
                "beta_api_shape_disabled",
                "The beta dialect is not supported: connect without the 'OpenAI-Beta' header.",
            )
        key = identity.session
        context = context_of(request, None if key is None else key.session, self.rules.video)
        response = websocket_response(websocket_limits(self.config))
        if not response.can_prepare(request):
            return failure(
                400, "websocket_required", "This URL speaks WebSocket: GET with Upgrade."
            )
        with self.registry.admit() as connection:
            context = replace(context, session_id=connection.session_id)
            async with self.open_session(connection.session_id):
                await self._serve(request, response, connection, context)
        return response

    async def _serve(
        self,
        request: web.Request,
        response: web.WebSocketResponse,
        connection: Connection,
        context: ConnectionContext,
    ) -> None:
        def begin(outbox: Outbox) -> Endpoint:
            connection.outbox = outbox
            connection.endpoint = self.make_endpoint(outbox, context)
            return connection.endpoint

        await serve_websocket(request, response, websocket_limits(self.config), begin)

    async def mint(self, request: web.Request) -> web.Response:
        """`POST /v1/realtime/client_secrets`."""
        if (await self.identify(request)).grant is Grant.CLIENT_SECRET:
            raise error_codes.invalid_api_key()  # an ephemeral key mints no further ones
        raw = await request.read()
        wanted = parse_client_secret_request(raw, self.rules)
        value, expires_at = await self.secrets.mint(_session_part(raw), wanted.life_s)
        body = client_secret_body(
            wanted,
            value=value,
            expires_at=expires_at,
            session_id=random_id("sess"),
            model=wanted.model or self.config.server.model,
        )
        return web.Response(body=body, content_type="application/json")

    async def identify(self, request: web.Request) -> Identity:
        """Who asks; raises ClientFault `invalid_api_key` (HTTP 401)."""
        identity = await self.gate.identify(credentials(request.headers))
        if identity is None:
            raise error_codes.invalid_api_key()
        return identity


def _session_part(body: bytes) -> JsonObject | None:
    """The `session` object of a body that was found valid."""
    parsed = read_json(body or b"{}")
    session = parsed.get("session") if isinstance(parsed, dict) else None
    return session if isinstance(session, dict) else None
