"""Passes a request about a call on to the worker that has it, which its id names.

The kernel gives each connection to any worker, so hang-ups and second connections of a call arrive anywhere. Each worker also
listens on a Unix socket of its own in the server's private folder; a request goes there with its headers (the other worker asks for the
key again) and the answer comes back as it is. Invariants: a request is passed on at most once, since only the worker that an id
names is ever asked; nothing is queued here: a frame is taken from one side when the other has taken the last one, and a side that
does not take a frame within `outbox_wait_s` ends both. A worker that is not there has no calls; one that
gives no answer within `_TIMEOUT` is 503. On the way down the connections that are open here end with their calls, or at the bounds
of the drain (`finish`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
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

from session_server.http.drain import CLOSE_GOING_AWAY, FORCED_CLOSE_S, REASON
from session_server.http.errors import failure
from session_server.http.worker_identity import slot_of
from session_server.transports.read_budget import LoopTurns
from session_server.transports.websocket import WebSocketLimits, websocket_response

_log = logging.getLogger(__name__)

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-encoding",  # a body is passed on as it was read, decoded
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
_TIMEOUT = ClientTimeout(total=10.0)
"""For an answer; a WebSocket that is open has none."""


def socket_of(folder: Path, slot: int) -> Path:
    """Where the worker of this number listens."""
    return folder / f"worker{slot}.sock"


class Relay:
    """A `worker_identity.PassOn`. `limits`: of the second connections."""

    def __init__(self, folder: Path, slot: int, workers: int, limits: WebSocketLimits) -> None:
        self._folder = folder
        self._slot = slot
        self._workers = workers
        self._limits = limits
        self._joined = 0
        self._none_joined = asyncio.Event()
        self._none_joined.set()
        self._over = asyncio.Event()

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

    async def finish(self, within_s: float, forced: asyncio.Event) -> None:
        """The way down: second connections may end with their calls; those still open after `within_s`, or FORCED_CLOSE_S
        after `forced`, close with 1001."""
        ended = asyncio.ensure_future(self._none_joined.wait())
        hurry = asyncio.ensure_future(forced.wait())
        try:
            await asyncio.wait(
                {ended, hurry}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
            if hurry.done():
                await asyncio.wait({ended}, timeout=FORCED_CLOSE_S)
            self._over.set()
            closing_s = self._limits.close_wait_s
            closing_s = min(closing_s, FORCED_CLOSE_S) if forced.is_set() else closing_s
            await asyncio.wait({ended}, timeout=closing_s)
        finally:
            ended.cancel()
            hurry.cancel()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._joined += 1
        self._none_joined.clear()
        try:
            yield
        finally:
            self._joined -= 1
            if not self._joined:
                self._none_joined.set()

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
        except TimeoutError:
            return _silent()
        except ClientConnectionError:
            return None
        async with other:
            with self._counted():
                await here.prepare(request)
                try:
                    await _both_ways(here, other, self._limits.outbox_wait_s, self._over)
                finally:
                    if request.transport is not None:
                        request.transport.abort()
        return here


def _silent() -> web.Response:
    """The worker that has the call is there and says nothing: it stands still, and will be replaced."""
    text = "The process that has this call does not answer."
    return failure(503, "server_error", text, headers={"Retry-After": "1"})


async def _post(request: web.Request, there: ClientSession) -> web.Response | None:
    body = await request.read() or None
    try:
        async with there.request(request.method, request.path_qs, data=body) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)
    except TimeoutError:
        return _silent()
    except ClientConnectionError:
        return None


Socket = web.WebSocketResponse | ClientWebSocketResponse


async def _both_ways(
    here: web.WebSocketResponse,
    other: ClientWebSocketResponse,
    wait_s: float,
    over: asyncio.Event,
) -> None:
    """Until either side closes, or it is `over`."""
    ways = [
        asyncio.create_task(_one_way(here, other, wait_s)),
        asyncio.create_task(_one_way(other, here, wait_s)),
    ]
    told = asyncio.ensure_future(over.wait())
    closed: set[asyncio.Task[None]] = set()
    try:
        await asyncio.wait({*ways, told}, return_when=asyncio.FIRST_COMPLETED)
        closed = {way for way in ways if way.done()}
    finally:
        told.cancel()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    if not closed:
        await asyncio.gather(
            *(_close(side, CLOSE_GOING_AWAY, REASON, wait_s) for side in (here, other))
        )


async def _one_way(source: Socket, target: Socket, wait_s: float) -> None:
    """Frames of `source` to `target`, then the close of `source`."""
    code, reason, turns = CLOSE_GOING_AWAY, "", LoopTurns()
    try:
        while True:
            message = await source.receive()
            if message.type is WSMsgType.CLOSE:
                code, reason = message.data, message.extra or ""
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                text = message.data
                frame = text.encode() if isinstance(text, str) else text
                async with asyncio.timeout(wait_s):
                    await target.send_frame(frame, message.type)
            elif message.type is WSMsgType.PING:
                await source.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                break
            await turns.after(len(message.data))
    except (TimeoutError, ConnectionError, RuntimeError):
        _log.debug("one side of a call's second connection is gone", exc_info=True)
    await _close(target, _sendable(code), reason, wait_s)


async def _close(target: Socket, code: int, reason: str, wait_s: float) -> None:
    with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):
        async with asyncio.timeout(wait_s):
            await target.close(code=code, message=reason.encode())


def _sendable(code: int) -> int:
    """A code that may stand in a close frame; some only say that there was none."""
    reserved = (1004, 1005, 1006, 1015)
    return code if 1000 <= code < 5000 and code not in reserved else CLOSE_GOING_AWAY
