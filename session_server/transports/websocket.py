"""The WebSocket transport (server side, on aiohttp): one reader, one writer task, a bounded outbox.

Owns the frames of one connection from upgrade to close. Invariants:

* Frames leave in the order in which they were queued; one task writes.
* `sent` is honest: the user-space write buffer has limit 0, so a frame counts as written when the kernel took
  the whole of it, and at most one frame lies between the outbox and the kernel. `purge` therefore takes back
  everything of a response but that one frame.
* The outbox is bounded in bytes and in time. At either bound the queue is given up and the connection closes
  with 1013; the peer has `close_wait_s` to read what the kernel holds, then the socket is aborted.
* A flood leaves room for all others: the loop turns between a peer's frames, pings included (`read_budget`), and between large
  reads of its bytes, whatever is in them.
* Our own standstill is not counted against the peer: a frame that waited for us still gets `_GRACE_S` of the peer's time.
* Whatever ends the connection, the endpoint hears `on_closed` exactly once, and no task or socket is left.

A peer that vanished is noticed by pings (`heartbeat_s`); a peer that answers them is never closed for
idleness. Units: seconds of the event loop's clock, bytes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import WSMsgType, web

from session_server.transports.base import Endpoint, Outbox
from session_server.transports.read_budget import LoopTurns, take_turns

_log = logging.getLogger(__name__)

_GRACE_S = 1.0

CLOSE_GOING_AWAY = 1001
CLOSE_INTERNAL_ERROR = 1011
CLOSE_TRY_AGAIN_LATER = 1013

SUBPROTOCOL = "realtime"


def _names_no_subprotocols(record: logging.LogRecord) -> bool:
    """aiohttp logs the offered subprotocols when it knows none of them; browsers put their key there."""
    return "overlap" not in str(record.msg)


logging.getLogger("aiohttp.websocket").addFilter(_names_no_subprotocols)


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """Bounds of one connection.

    `send_buffer_bytes` bounds what the kernel may hold for a peer that does not read (0: the system's default).
    """

    max_message_bytes: int = 32 * 1024 * 1024
    outbox_bytes: int = 4 * 1024 * 1024
    outbox_wait_s: float = 10.0
    close_wait_s: float = 5.0
    heartbeat_s: float = 20.0
    send_buffer_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Queued:
    frame: bytes
    queued_at: float
    response_id: str | None = None
    end_sample: int = 0


class WebSocketOutbox:
    """The bounded queue and the writer of one connection; see `transports.base.Outbox`."""

    def __init__(self, socket_: web.WebSocketResponse, limits: WebSocketLimits) -> None:
        self._socket = socket_
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Queued] = deque()
        self._queued_bytes = 0
        self._news = asyncio.Event()
        self._closing: tuple[int, str] | None = None
        self._patience: asyncio.Timeout | None = None

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernel has not taken yet, the frame in flight included."""
        return self._queued_bytes

    @property
    def closing(self) -> tuple[int, str] | None:
        """Code and reason of the close that was asked for, by either side of the outbox."""
        return self._closing

    def send(self, frame: bytes) -> None:
        self._put(_Queued(frame, self._loop.time()))

    def send_audio(self, frame: bytes, response_id: str, end_sample: int) -> None:
        self._put(_Queued(frame, self._loop.time(), response_id, end_sample))

    def purge(self, response_id: str) -> int:
        kept = [entry for entry in self._queue if entry.response_id != response_id]
        dropped = len(self._queue) - len(kept)
        if dropped:
            self._queued_bytes -= sum(
                len(entry.frame) for entry in self._queue if entry.response_id == response_id
            )
            self._queue = deque(kept)
        return dropped

    def close(self, code: int, reason: str) -> None:
        if self._closing is not None:
            return
        self._closing = (code, reason)
        self._news.set()
        if (
            self._patience is not None
        ):  # a frame is in flight: it may not hold up the close for long
            soon = self._loop.time() + self._limits.close_wait_s
            self._patience.reschedule(min(soon, self._patience.when() or soon))

    def _put(self, entry: _Queued) -> None:
        if self._closing is not None:
            return
        if self._queued_bytes + len(entry.frame) > self._limits.outbox_bytes:
            self._give_up("outbox full: the client does not read")
            return
        self._queue.append(entry)
        self._queued_bytes += len(entry.frame)
        self._news.set()

    def _give_up(self, reason: str) -> None:
        self._discard()
        self.close(CLOSE_TRY_AGAIN_LATER, reason)

    def _discard(self) -> None:
        self._queued_bytes -= sum(len(entry.frame) for entry in self._queue)
        self._queue.clear()

    async def run(self, written: Callable[[str, int], None]) -> None:
        """Write until closed; then send the close frame and wait, bounded, for the peer's."""
        try:
            await self._write(written)
        except ConnectionError:
            self.close(CLOSE_GOING_AWAY, "the peer is gone")
        except Exception:
            _log.exception("the writer failed; closing its connection")
            self.close(CLOSE_INTERNAL_ERROR, "internal error")
        self._discard()
        code, reason = self._closing or (CLOSE_GOING_AWAY, "")
        try:
            async with asyncio.timeout(self._limits.close_wait_s):
                await self._socket.close(code=code, message=_close_reason(reason))
        except (TimeoutError, ConnectionError):
            _log.debug("the peer did not take the close frame %d", code)

    async def _write(self, written: Callable[[str, int], None]) -> None:
        while True:
            if not self._queue:
                if self._closing is not None:
                    return
                self._news.clear()
                await self._news.wait()
                continue
            entry = self._queue.popleft()
            try:
                await self._write_one(entry)
            except TimeoutError:
                self._give_up("the client reads too slowly")
                return
            finally:
                self._queued_bytes -= len(entry.frame)
            if entry.response_id is not None:
                written(entry.response_id, entry.end_sample)

    async def _write_one(self, entry: _Queued) -> None:
        now, wait_s = self._loop.time(), self._limits.outbox_wait_s
        due = max(entry.queued_at + wait_s, now + min(wait_s, _GRACE_S))
        if self._closing is not None:
            due = min(due, now + self._limits.close_wait_s)
        try:
            async with asyncio.timeout_at(due) as self._patience:
                await self._socket.send_frame(entry.frame, WSMsgType.TEXT)
        finally:
            self._patience = None


def _close_reason(reason: str) -> bytes:
    """UTF-8 of at most 123 bytes (RFC 6455, 5.5), cut between characters."""
    return reason.encode()[:123].decode(errors="ignore").encode()


def websocket_response(limits: WebSocketLimits) -> web.WebSocketResponse:
    """A response that is ready for the upgrade; compression stays off (audio does not compress). Whoever reads it answers the
    pings, since aiohttp would answer any number of them in one turn of the loop."""
    return web.WebSocketResponse(
        protocols=(SUBPROTOCOL,),
        heartbeat=limits.heartbeat_s or None,
        timeout=limits.close_wait_s,
        autoping=False,
        max_msg_size=limits.max_message_bytes,
        compress=False,
        writer_limit=0,
    )


async def serve_websocket(
    request: web.Request,
    response: web.WebSocketResponse,
    limits: WebSocketLimits,
    make_endpoint: Callable[[Outbox], Endpoint],
) -> None:
    """Upgrade, then carry frames both ways until the connection is gone."""
    await response.prepare(request)
    transport = request.transport
    if transport is None:
        return
    _tune(transport, limits)
    take_turns(transport)
    outbox = WebSocketOutbox(response, limits)
    endpoint: Endpoint | None = None
    writer: asyncio.Task[None] | None = None
    try:
        endpoint = make_endpoint(outbox)
        writer = asyncio.create_task(outbox.run(endpoint.on_audio_written))
        writer.add_done_callback(lambda _: _abort_soon(request, limits))
        await _read(response, outbox, endpoint)
    finally:
        outbox.close(CLOSE_GOING_AWAY, "the connection is gone")
        try:
            if writer is not None:
                await writer  # bounds itself
        finally:
            _abort(request)
            if endpoint is not None:
                endpoint.on_closed()


def _abort_soon(request: web.Request, limits: WebSocketLimits) -> None:
    """The writer has ended. A peer that takes no close frame would let `_read` wait for ever: it may still read what
    the kernel holds, then the socket goes."""
    asyncio.get_running_loop().call_later(limits.close_wait_s, _abort, request)


def _abort(request: web.Request) -> None:
    """Drop the socket and what is buffered for it; `transport.close()` would wait for a peer that does not read."""
    if request.transport is not None:  # None: already lost, and a second abort would fail
        request.transport.abort()


async def _read(
    response: web.WebSocketResponse, outbox: WebSocketOutbox, endpoint: Endpoint
) -> None:
    turns = LoopTurns()
    while True:
        try:
            message = await response.receive()
            if message.type is WSMsgType.PING:
                await response.pong(message.data)
        except (ConnectionError, RuntimeError):
            return
        if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            _take(message.data, outbox, endpoint)
        elif message.type not in (WSMsgType.PING, WSMsgType.PONG):
            return
        await turns.after(len(message.data))


def _take(frame: str | bytes, outbox: WebSocketOutbox, endpoint: Endpoint) -> None:
    if outbox.closing is not None:
        return  # the peer may still talk while we flush; nobody listens
    try:
        endpoint.on_frame(frame)
    except Exception:
        _log.exception("a frame raised in the session; closing it")
        outbox.close(CLOSE_INTERNAL_ERROR, "internal error")


def _tune(transport: asyncio.Transport, limits: WebSocketLimits) -> None:
    # a TLS transport pauses at the limit, not above it: with 0 it would pause when nothing waits, and nothing would wake it
    tls = transport.get_extra_info("sslcontext") is not None
    transport.set_write_buffer_limits(high=int(tls), low=0)
    raw: socket.socket | None = transport.get_extra_info("socket")
    if raw is None:
        return
    try:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer_bytes:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
    except OSError:
        _log.debug("the socket refused an option", exc_info=True)
