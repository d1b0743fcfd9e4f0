"""The realtime routes: the WebSocket and the minting of ephemeral keys.

Order of the checks before an upgrade, each with its own HTTP answer: credentials (401), dialect, URL, upgrade
headers (400), admission (503). After the upgrade every fault is an event or a close code.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from aiohttp import web

from session_server.clock import unix_seconds
from session_server.config import Config
from session_server.errors import ClientFault
from session_server.protocol import error_codes
from session_server.runtime.auth import Gate, Grant, Identity, asks_for_beta, credentials
from session_server.runtime.client_secrets import MAX_LIFE_S, MIN_LIFE_S, ClientSecrets
from session_server.runtime.connection import ConnectionContext, MakeEndpoint
from session_server.runtime.http_errors import failure
from session_server.runtime.registry import Connection, Registry
from session_server.transports.base import Endpoint, Outbox
from session_server.transports.websocket import (
    WebSocketLimits,
    serve_websocket,
    websocket_response,
)

KNOWN_EXTENSIONS = frozenset({"playback"})
_MAX_NAME = 256

EffectiveSession = Callable[[object], Mapping[str, object]]
"""Validates a client's `session` object (None: absent) and gives the effective one; raises ClientFault."""

OpenSession = Callable[[str], Awaitable[None]]
"""Asks the engine host to admit a session; raises NotAdmitted."""


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
    registry: Registry
    gate: Gate
    secrets: ClientSecrets
    make_endpoint: MakeEndpoint
    effective_session: EffectiveSession
    open_session: OpenSession | None = None

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/realtime`: one session over one WebSocket."""
        identity = self.identify(request)
        if asks_for_beta(request.headers):
            return failure(
                400,
                "beta_api_shape_disabled",
                "The beta dialect is not supported: connect without the 'OpenAI-Beta' header.",
            )
        context = _context(request, identity)
        response = websocket_response(websocket_limits(self.config))
        if not response.can_prepare(request):
            return failure(
                400, "websocket_required", "This URL speaks WebSocket: GET with Upgrade."
            )
        with self.registry.admit() as connection:
            context = replace(context, session_id=connection.session_id)
            if self.open_session is not None:
                await self.open_session(connection.session_id)
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
        value, expires_at, session = await self._mint(request)
        return web.json_response({"value": value, "expires_at": expires_at, "session": session})

    async def mint_beta(self, request: web.Request) -> web.Response:
        """`POST /v1/realtime/sessions`: the older spelling of the same."""
        value, expires_at, session = await self._mint(request)
        secret = {"value": value, "expires_at": expires_at}
        return web.json_response({**session, "client_secret": secret})

    async def _mint(self, request: web.Request) -> tuple[str, int, Mapping[str, object]]:
        if self.identify(request).grant is Grant.CLIENT_SECRET:
            raise error_codes.invalid_api_key()  # an ephemeral key mints no further ones
        body = await json_object(request)
        for key in body:
            if key not in ("expires_after", "session"):
                raise error_codes.unknown_parameter(key)
        life_s = _life_s(body.get("expires_after"), self.config.auth.secret_default_s)
        wanted = body.get("session")
        effective = self.effective_session(wanted)
        kept = wanted if isinstance(wanted, dict) else None
        value, expires_at = self.secrets.mint(kept, life_s, unix_seconds())
        return value, expires_at, effective

    def identify(self, request: web.Request) -> Identity:
        """Who asks; raises ClientFault `invalid_api_key` (HTTP 401)."""
        identity = self.gate.identify(credentials(request.headers), unix_seconds())
        if identity is None:
            raise error_codes.invalid_api_key()
        return identity


async def json_object(request: web.Request) -> dict[str, object]:
    """The body as a JSON object; an empty body is an empty one."""
    raw = await request.read()
    if not raw.strip():
        return {}
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise ClientFault("invalid_json", "The request body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise error_codes.invalid_type("body", "an object", type(body).__name__)
    return body


def _context(request: web.Request, identity: Identity) -> ConnectionContext:
    query = request.query
    if "call_id" in query:
        raise ClientFault("invalid_value", "There is no such call.", param="call_id")
    model = query.get("model") or None
    if model is not None and len(model) > _MAX_NAME:
        raise error_codes.too_long("model", _MAX_NAME, len(model))
    intent = query.get("intent") or None
    if intent not in (None, "transcription", "conversation"):
        raise error_codes.not_an_option("intent", intent, ("transcription",))
    session = identity.session.session if identity.session is not None else None
    return ConnectionContext(
        session_id="",
        model=model,
        extensions=_extensions(query.get("extensions", "")),
        intent="transcription" if intent == "transcription" else None,
        session=session,
        remote=request.remote or "",
    )


def _extensions(text: str) -> tuple[str, ...]:
    names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in KNOWN_EXTENSIONS:
            raise error_codes.unsupported_extension("extensions", name)
    return tuple(names)


def _life_s(value: object, default_s: int) -> int:
    if value is None:
        return default_s
    if not isinstance(value, dict):
        raise error_codes.invalid_type("expires_after", "an object", type(value).__name__)
    for key in value:
        if key not in ("anchor", "seconds"):
            raise error_codes.unknown_parameter(f"expires_after.{key}")
    if value.get("anchor", "created_at") != "created_at":
        raise error_codes.not_an_option(
            "expires_after.anchor", str(value["anchor"]), ("created_at",)
        )
    seconds = value.get("seconds", default_s)
    if type(seconds) is not int:
        raise error_codes.invalid_type(
            "expires_after.seconds", "an integer", type(seconds).__name__
        )
    if not MIN_LIFE_S <= seconds <= MAX_LIFE_S:
        raise error_codes.out_of_range("expires_after.seconds", seconds, MIN_LIFE_S, MAX_LIFE_S)
    return seconds
