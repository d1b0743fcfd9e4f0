"""Passes a request about a call on to the worker that has it, which its id names.

The kernel gives each connection to any worker, so hang-ups and second connections of a call arrive anywhere. Each worker also
listens on a Unix socket of its own in the server's private folder; a request goes there with its headers (the other worker asks for the
key again) and the answer comes back as it is. Invariants: a request is passed on at most once, since only the worker that an id
names is ever asked; nothing is queued here: a frame is taken from one side when the other has taken the last one, and a side that
does not take a frame within `outbox_wait_s` ends both. A worker that is not there has no calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from aiohttp import (
    ClientConnectionError,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    UnixConnector,
    WSMsgType,
    WSServerHandshakeError,
    web,
)

from session_server.runtime.http_errors import failure
from session_server.runtime.place import slot_of
from session_server.transports.websocket import WebSocketLimits, websocket_response

_log = logging.getLogger(__name__)

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_ANYWHERE = "http://worker"
_CLOSE_GOING_AWAY = 1001
_TIMEOUT = ClientTimeout(total=10.0)
"""For an answer; a WebSocket that is open has none."""


def socket_of(folder: Path, slot: int) -> Path:
    """Where the worker of this number listens."""
    return folder / f"worker{slot}.sock"


class Relay:
    """A `place.PassOn`. `limits`: of the second connections."""

    def __init__(self, folder: Path, slot: int, workers: int, limits: WebSocketLimits) -> None:
        self._folder = folder
        self._slot = slot
        self._workers = workers
        self._limits = limits

    async def __call__(self, request: web.Request, call_id: str) -> web.StreamResponse | None:
        """The other worker's answer; None: no other worker can have this call."""
        slot = slot_of(call_id)
        if slot is None or slot == self._slot or slot >= self._workers:
            return None
        connector = UnixConnector(str(socket_of(self._folder, slot)))
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        async with ClientSession(
            _ANYWHERE, connector=connector, headers=headers, timeout=_TIMEOUT
        ) as there:
            if request.method == "GET":
                return await self._join(request, there)
            return await _post(request, there)

    async def _join(self, request: web.Request, there: ClientSession) -> web.StreamResponse | None:
        """A WebSocket: both sides' frames go to the other, until either closes."""
        here = websocket_response(self._limits)
        if not here.can_prepare(request):
            return failure(
                400, "websocket_required", "This URL speaks WebSocket: GET with Upgrade."
            )
        try:
            other = await there.ws_connect(request.path_qs, max_msg_size=0)
        except WSServerHandshakeError as refused:
            if refused.status == 404:
                return None
            return failure(refused.status, "not_joined", "The call cannot be joined.")
        except ClientConnectionError:
            return None
        async with other:
            await here.prepare(request)
            try:
                await _both_ways(here, other, self._limits.outbox_wait_s)
            finally:
                if request.transport is not None:
                    request.transport.abort()
        return here


async def _post(request: web.Request, there: ClientSession) -> web.Response | None:
    body = await request.read() or None
    try:
        async with there.request(request.method, request.path_qs, data=body) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)
    except (ClientConnectionError, TimeoutError):
        return None


Socket = web.WebSocketResponse | ClientWebSocketResponse


async def _both_ways(
    here: web.WebSocketResponse, other: ClientWebSocketResponse, wait_s: float
) -> None:
    ways = [
        asyncio.create_task(_one_way(here, other, wait_s)),
        asyncio.create_task(_one_way(other, here, wait_s)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _one_way(source: Socket, target: Socket, wait_s: float) -> None:
    """Frames of `source` to `target`, then the close of `source`."""
    code, reason = _CLOSE_GOING_AWAY, ""
    try:
        while True:
            message = await source.receive()
            if message.type is WSMsgType.CLOSE:
                code, reason = message.data, message.extra or ""
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            text = message.data
            frame = text.encode() if isinstance(text, str) else text
            async with asyncio.timeout(wait_s):
                await target.send_frame(frame, message.type)
    except (TimeoutError, ConnectionError, RuntimeError):
        _log.debug("one side of a call's second connection is gone", exc_info=True)
    with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):
        async with asyncio.timeout(wait_s):
            await target.close(code=_sendable(code), message=reason.encode())


def _sendable(code: int) -> int:
    """A code that may stand in a close frame; some only say that there was none."""
    reserved = (1004, 1005, 1006, 1015)
    return code if 1000 <= code < 5000 and code not in reserved else _CLOSE_GOING_AWAY
