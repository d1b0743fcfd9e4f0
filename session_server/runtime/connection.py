"""What is known of a connection when its session begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from session_server.transports.base import Endpoint, Outbox


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """The client's wishes from URL and credentials.

    `model`: the name that the client asked for, None for the default. `intent`: `transcription` or None.
    `session`: the session object of the ephemeral key, already validated. `remote`: the peer's address.
    """

    session_id: str
    model: str | None = None
    extensions: tuple[str, ...] = ()
    intent: str | None = None
    session: Mapping[str, object] | None = None
    remote: str = ""


MakeEndpoint = Callable[[Outbox, ConnectionContext], Endpoint]
"""Makes the session of one upgraded connection."""
