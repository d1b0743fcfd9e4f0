"""One end of the socket pair between the supervisor and a worker, and its frames.

Owns the socket. A frame is a length of four bytes (big endian), then that many bytes. Messages
leave in the order in which they were sent, those of one turn of the loop in one write; they are
handed over in order, on the loop's thread.

Invariants: a frame is never longer than `MAX_FRAME`, so a stream that is out of step ends at once
instead of waiting for gigabytes. Nothing waits here beyond `MAX_WAITING` bytes (a peer that does
not read for that long is given up). Whatever ends the link, `lost` is called exactly once, and
afterwards `send` does nothing.

Units: bytes.

Errors: a message that cannot be written is logged and dropped alone; a message that cannot be read
ends the link: both ends are of one version.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

import msgspec

from session_server.workers.control import pack

MAX_FRAME = 128 * 1024 * 1024
"""The longest host message is the input of one turn: `core.max_input_ms` of s16le at 16 kHz."""

_HEAD = 4


class BadFrame(Exception):
    """The peer does not speak this language."""


def frame(payload: bytes) -> bytes:
    """One message, ready for the stream; raises BadFrame for one that nobody would take."""
    if len(payload) > MAX_FRAME:
        raise BadFrame(f"a message of {len(payload)} bytes is too long")
    return len(payload).to_bytes(_HEAD, "big") + payload


class FrameReader:
    """Cuts a stream into messages, however it comes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The messages that are complete with this piece. Raises BadFrame."""
        buffer = self._buffer
        buffer += piece
        at = 0
        try:
            while len(buffer) - at >= _HEAD:
                length = int.from_bytes(buffer[at : at + _HEAD], "big")
                if length > MAX_FRAME:
                    raise BadFrame(f"a message of {length} bytes is announced")
                end = at + _HEAD + length
                if len(buffer) < end:
                    break
                payload = bytes(memoryview(buffer)[at + _HEAD : end])
                at = end
                yield payload
        finally:
            del buffer[:at]


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
