"""What is known of a connection when its session begins: what URL and key say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from session_server.protocol import error_codes
from session_server.protocol.extensions import VideoOffer, parse_extensions
from session_server.protocol.values import JsonObject
from session_server.transports.base import Outbox, TalkingEndpoint

_MAX_NAME = 256


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """What the client asked for by URL and credentials.

    `model`: the name that it asked for, to be echoed; None: the default. `extensions`: names, checked.
    `intent`: `transcription` or None. `session`: the session object of its ephemeral key, validated when
    that was minted. `remote`: the peer's address.
    """

    session_id: str
    model: str | None = None
    extensions: tuple[str, ...] = ()
    intent: str | None = None
    session: JsonObject | None = None
    remote: str = ""


MakeEndpoint = Callable[[Outbox, ConnectionContext], TalkingEndpoint]
"""Makes the session of one connection."""


def context_of(
    request: web.Request, session: JsonObject | None, offer: VideoOffer | None
) -> ConnectionContext:
    """What the URL says; raises ClientFault, HTTP 400. `session`: of the client's key. `offer`: of the server's video extension.
    The session id comes with admission."""
    query = request.query
    model = query.get("model") or None
    if model is not None and len(model) > _MAX_NAME:
        raise error_codes.too_long("model", _MAX_NAME, len(model))
    intent = query.get("intent") or None
    if intent not in (None, "transcription", "conversation"):
        raise error_codes.not_an_option("intent", intent, ("transcription",))
    names = query.get("extensions", "")
    parse_extensions(names, offer)
    return ConnectionContext(
        session_id="",
        model=model,
        extensions=tuple(dict.fromkeys(n.strip() for n in names.split(",") if n.strip())),
        intent="transcription" if intent == "transcription" else None,
        session=session,
        remote=request.remote or "",
    )
