"""The HTTP side of WebRTC: calls begin and end here, and sideband connections join them.

`POST /v1/realtime/calls` takes the offer raw (`application/sdp`) or as a form (`sdp`, and `session` as JSON) and answers 201 with
the answer and the call's URL. Order of the checks: credentials (401), the body (400, 415), admission (503). The session of an
ephemeral key comes first, what the request says goes over it. A request about a call of another process is passed on to it
(`pass_on`); a call that is nowhere is 404.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from aiohttp import web

from session_server.config import Config
from session_server.http.auth import Gate, credentials
from session_server.http.calls import Calls, LiveCall
from session_server.http.errors import failure, no_such_call
from session_server.http.realtime_routes import websocket_limits
from session_server.http.session_factory import context_of
from session_server.http.worker_identity import PassOn, nowhere
from session_server.protocol import error_codes
from session_server.protocol.client_secrets import parse_first_session
from session_server.protocol.session_config import SessionRules
from session_server.protocol.values import JsonObject, json_object, read_json
from session_server.transports.base import Outbox
from session_server.transports.webrtc.offer import read_offer
from session_server.transports.websocket import serve_websocket, websocket_response
from session_server.types.errors import ClientFault

SDP = "application/sdp"
FORM = "multipart/form-data"
CALLS = "/v1/realtime/calls"
MAX_SIDEBANDS = 8
"""Connections that join one call: each is sent every event."""

_NOT_SIP = ("accept", "reject", "refer")


@runtime_checkable
class Joinable(Protocol):
    """A session that a second connection can join."""

    def greeting(self) -> bytes:
        """The first event of a connection that joins."""
        ...


@dataclass(frozen=True, slots=True)
class CallRoutes:
    """The handlers, with all that they need."""

    config: Config
    calls: Calls
    gate: Gate
    rules: SessionRules
    pass_on: PassOn = nowhere

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Their URLs."""
        for root in ("/v1/realtime", "/realtime"):
            router.add_post(root, self.call)
            router.add_post(f"{root}/calls", self.call)
            router.add_post(f"{root}/calls/{{call_id}}/hangup", self.hang_up)
            for verb in _NOT_SIP:
                router.add_post(f"{root}/calls/{{call_id}}/{verb}", self.not_sip)

    async def call(self, request: web.Request) -> web.Response:
        """`POST /v1/realtime/calls`: an offer; the answer."""
        context = context_of(request, await self._identify(request), self.rules.video)
        if request.content_type == SDP:
            sdp, session = await request.read(), None
        elif request.content_type == FORM:
            sdp, session = await _read_form(request)
        else:
            return failure(
                415,
                "unsupported_content_type",
                f"Send the offer as {SDP}, or as {FORM} with the fields 'sdp' and 'session'.",
            )
        offer = read_offer(sdp)
        context = replace(context, session=_over(context.session, session))
        parse_first_session(context.session, self.rules)
        call_id, answer = await self.calls.begin(offer, context)
        return web.Response(
            status=201,
            body=answer.encode(),
            content_type=SDP,
            headers={"Location": f"{CALLS}/{call_id}"},
        )

    async def hang_up(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/realtime/calls/{id}/hangup`."""
        await self._identify(request)
        call_id = request.match_info["call_id"]
        if self.calls.hang_up(call_id):
            return web.Response()
        return await self.pass_on(request, call_id) or no_such_call()

    async def not_sip(self, request: web.Request) -> web.Response:
        await self._identify(request)
        return failure(501, "not_implemented", "This server takes no SIP calls.")

    async def join(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/realtime?call_id=`: a second control connection of a call."""
        await self._identify(request)
        call_id = request.query["call_id"]
        live = self.calls.find(call_id)
        if live is None:
            return await self.pass_on(request, call_id) or no_such_call()
        limits = websocket_limits(self.config)
        response = websocket_response(limits)
        if not response.can_prepare(request):
            return failure(
                400, "websocket_required", "This URL speaks WebSocket: GET with Upgrade."
            )
        if live.sidebands >= MAX_SIDEBANDS:
            text = f"The call has {MAX_SIDEBANDS} connections beside it already: close one first."
            return failure(429, "too_many_connections", text, param="call_id")
        live.sidebands += 1
        try:
            await serve_websocket(request, response, limits, lambda outbox: _Sideband(live, outbox))
        finally:
            live.sidebands -= 1
        return response

    async def _identify(self, request: web.Request) -> JsonObject | None:
        """The session object of the client's key; raises ClientFault `invalid_api_key` (HTTP 401)."""
        identity = await self.gate.identify(credentials(request.headers))
        if identity is None:
            raise error_codes.invalid_api_key()
        return identity.session.session if identity.session is not None else None


class _Sideband:
    """An `Endpoint` of a WebSocket that shares a call's session: its frames go in, every event comes out."""

    def __init__(self, live: LiveCall, outbox: Outbox) -> None:
        self._live = live
        self._outbox = outbox
        if isinstance(live.endpoint, Joinable):
            outbox.send(live.endpoint.greeting())
        live.call.outbox.followers.append(outbox)

    def on_frame(self, frame: str | bytes) -> None:
        self._live.endpoint.on_frame(frame)

    def on_audio_written(self, response_id: str, end_sample: int) -> None:
        """No audio goes this way."""

    def on_closed(self) -> None:
        self._live.call.outbox.followers.remove(self._outbox)


async def _read_form(request: web.Request) -> tuple[bytes, JsonObject | None]:
    """The offer and the session of a form; raises ClientFault."""
    try:
        form = await request.post()
    except (ValueError, AssertionError, RuntimeError):
        raise ClientFault("invalid_form", "The form cannot be read.") from None
    sdp, session = _field(form.get("sdp")), _field(form.get("session"))
    if sdp is None:
        raise error_codes.missing("sdp")
    if session is None:
        return sdp, None
    return sdp, json_object(read_json(session), "session")


def _field(value: str | bytes | bytearray | web.FileField | None) -> bytes | None:
    if isinstance(value, web.FileField):
        return value.file.read()
    return value.encode() if isinstance(value, str) else None if value is None else bytes(value)


def _over(below: JsonObject | None, above: JsonObject | None) -> JsonObject | None:
    """One session object that says what both say, one after the other: objects merge key by key."""
    if below is None or above is None:
        return below if above is None else above
    merged = dict(below)
    for key, value in above.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _over(before, value)
        else:
            merged[key] = value
    return merged
