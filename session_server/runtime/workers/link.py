"""One end of the socket pair between the supervisor and a worker.

Owns the socket. Messages leave in the order in which they were sent, those of one turn of the loop in one write; they are handed over
in order, on the loop's thread. Invariants: nothing waits here beyond `MAX_WAITING` bytes (a peer that does not read for so long is
given up), and a message that cannot be written is logged and dropped alone; whatever ends the link, `lost` is called exactly once, and afterwards `send` does nothing. A message that cannot be
read ends the link: both ends are of one version.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from session_server.runtime.workers.control import pack
from session_server.runtime.workers.framing import MAX_FRAME, BadFrame, FrameReader, frame

_log = logging.getLogger(__name__)

MAX_WAITING = 2 * MAX_FRAME

Incoming = TypeVar("Incoming")


class Link(asyncio.Protocol, Generic[Incoming]):
    """Make it with `linked`."""

    def __init__(
        self,
        read: Callable[[bytes], Incoming],
        take: Callable[[Incoming], None],
        lost: Callable[[], None],
    ) -> None:
        self._read = read
        self._take = take
        self._lost: Callable[[], None] | None = lost
        self._frames = FrameReader()
        self._outgoing: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def send(self, message: msgspec.Struct) -> None:
        """Never raises, never waits."""
        if self._transport is None:
            return
        try:
            piece = frame(pack(message))
        except BadFrame as fault:
            self._give_up(str(fault))
            return
        except (ArithmeticError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            _log.exception("a %s cannot be put on the link: dropped", type(message).__name__)
            return
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(piece)

    def close(self) -> None:
        """What was sent still leaves. Idempotent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Now. Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if not outgoing or self._transport is None:
            return
        self._transport.write(b"".join(outgoing))
        if self._transport.get_write_buffer_size() > MAX_WAITING:
            self._give_up(f"the other side has not read {MAX_WAITING} bytes")

    def _give_up(self, why: str) -> None:
        _log.error("the link between host and worker ends: %s", why)
        self.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._frames.feed(data):
                self._take(self._read(payload))
        except (BadFrame, msgspec.MsgspecError) as fault:
            self._give_up(str(fault))

    def connection_lost(self, fault: Exception | None) -> None:
        self._transport = None
        self._outgoing.clear()
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()


async def linked(
    end: socket.socket,
    read: Callable[[bytes], Incoming],
    take: Callable[[Incoming], None],
    lost: Callable[[], None],
) -> Link[Incoming]:
    """Begin to read `end`, which the link now owns."""
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    link = Link(read, take, lost)
    await loop.create_unix_connection(lambda: link, sock=end)
    return link
