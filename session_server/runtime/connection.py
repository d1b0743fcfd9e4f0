"""What is known of a connection when its session begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from session_server.protocol.values import JsonObject
from session_server.transports.base import Endpoint, Outbox


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


MakeEndpoint = Callable[[Outbox, ConnectionContext], Endpoint]
"""Makes the session of one upgraded connection."""
