"""What a test may see of a server from the inside: what sessions hold, and where their answers are."""

from __future__ import annotations

from session_server.http.server import Server
from session_server.session.registry import Connection
from session_server.session.session_task import SessionTask
from session_server.transports.websocket import WebSocketOutbox
from tests.integration.server.caller import Caller


def connection_of(server: Server, session_id: str) -> Connection:
    found = [c for c in server.registry.connections() if c.session_id == session_id]
    return found[0]


def task_of(server: Server, caller: Caller) -> SessionTask:
    """The session's shell."""
    endpoint = connection_of(server, caller.session_id).endpoint
    assert isinstance(endpoint, SessionTask)
    return endpoint


def outbox_of(server: Server, session_id: str) -> WebSocketOutbox:
    outbox = connection_of(server, session_id).outbox
    assert isinstance(outbox, WebSocketOutbox)
    return outbox


def input_held_s(task: SessionTask) -> float:
    """Seconds of input audio that a session keeps."""
    line = task._ears.audio._ears
    return (line.end - line.begin) / 16_000
