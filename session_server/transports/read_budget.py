"""How much one peer may have read in a turn of the event loop, in frames and in bytes.

A flood of one peer leaves room for all others. Reading does not suspend while frames are buffered,
so the loop turns at least once between any two frames of a peer; unless its turns are so long that
a microphone would be read more slowly than it speaks, and a ping behind it answered too late: then
a few small frames are taken at once, and no longer than a frame lasts.

uvloop reads a socket up to 32 times in a turn, 256 KiB each. Where those hold nothing that a reader
is given (the empty continuation frames of a message that never ends), aiohttp parses 8 MiB at once,
and all other sessions stand still for 0.1 s of CPU time. So after each large read the socket is
left alone until the next turn. Small reads, as of a client that speaks, cost nothing more.

`take_turns` puts a protocol of ours in front of the connection's own; both sides are asyncio's
public interface.

Invariants: the protocol behind may stop and go on with reading as before: it stops only while it is
given bytes, when we have not stopped it; and bytes that come although we have stopped say that it
went on.

Units: seconds of the event loop's clock, bytes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

_FRAME_S = 0.005
"""A peer that speaks in real time sends fewer than one frame in that time."""
_MOST_AT_ONCE = 16
_SMALL_BYTES = 16 * 1024


class LoopTurns:
    """One peer's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._at_once = 0
        self._until = 0.0

    async def after(self, size: int) -> None:
        """A frame of that size was dealt with."""
        if self._at_once > 0 and size <= _SMALL_BYTES and self._loop.time() < self._until:
            self._at_once -= 1
            return
        before = self._loop.time()
        await asyncio.sleep(0)
        now = self._loop.time()
        self._at_once = min(_MOST_AT_ONCE, int((now - before) / _FRAME_S))
        self._until = now + _FRAME_S


LARGE_BYTES = 16 * 1024


def take_turns(transport: asyncio.Transport) -> None:
    """From now on, for this connection."""
    behind = cast("asyncio.Protocol", transport.get_protocol())
    transport.set_protocol(_Turns(transport, behind))


class _Turns(asyncio.Protocol):
    def __init__(self, transport: asyncio.Transport, behind: asyncio.Protocol) -> None:
        self._transport = transport
        self._behind = behind
        self._loop = asyncio.get_running_loop()
        self._going_on: asyncio.Handle | None = None

    def data_received(self, data: bytes) -> None:
        self._forget()
        self._behind.data_received(data)
        transport = self._transport
        if len(data) < LARGE_BYTES or transport.is_closing() or not transport.is_reading():
            return
        with suppress(RuntimeError):  # uvloop's, where the transport closes
            transport.pause_reading()
            self._going_on = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._going_on = None
        if not self._transport.is_closing():
            with suppress(RuntimeError):
                self._transport.resume_reading()

    def _forget(self) -> None:
        if self._going_on is not None:
            self._going_on.cancel()
            self._going_on = None

    def eof_received(self) -> bool | None:
        return self._behind.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._behind.connection_lost(exc)

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()
