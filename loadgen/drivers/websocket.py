"""Virtual users over real WebSockets: one asyncio process, microphones on absolute deadlines.

Each user sends its 20 ms frame at `start + k * 20 ms` of its own clock. When the process is late, frames
go out at once and the lateness is reported: figures of a late driver are not to be trusted. Sockets are
neither compressed nor proxied.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import Callable

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode

from loadgen.drivers.camera_feed import filming
from loadgen.drivers.load_run import (
    LEAD_EVERY_NS,
    LEAD_SAMPLES,
    OPEN_S,
    LoadOutcome,
    LoadPlan,
    LoadRun,
    RefusedCall,
    refusal,
)
from loadgen.drivers.wire import NOT_TRUSTED, REFUSED, decode
from loadgen.drivers.wire_client import ClipSets, WireClient
from loadgen.server_probe import ServerProbe
from session_server.process.clock import Clock
from session_server.types.audio import NS_PER_S, OUTPUT_RATE

MAX_FRAME = 4 * 1024 * 1024


class WsDriver:
    """Runs a load against one server. `outcome`: what there is so far; of a run that was cancelled, all there is."""

    def __init__(
        self,
        load: LoadPlan,
        probe: ServerProbe,
        *,
        progress: Callable[[int], None] = lambda turns: None,
        clock: Clock | None = None,
    ) -> None:
        self._run = LoadRun(load, probe, progress, clock)
        self._clock = self._run.clock

    @property
    def outcome(self) -> LoadOutcome:
        return self._run.outcome

    async def run(self) -> LoadOutcome:
        """Raises RunFailed when not one session could be opened."""
        return await self._run.run(self._session)

    async def _session(self, index: int, lines: ClipSets, rng: random.Random) -> int | None:
        load = self._run.load
        try:
            async with connect(
                load.url,
                additional_headers=load.headers or None,
                compression=None,
                proxy=None,
                max_size=MAX_FRAME,
                open_timeout=OPEN_S,
                close_timeout=2.0,
            ) as socket:
                self.outcome.sessions += 1
                await self._converse(socket, index, lines, rng)
        except (OSError, InvalidHandshake, TimeoutError) as fault:
            return self._run.refuse(*describe(fault, load.url), _refused(fault))
        return None

    async def _converse(
        self, socket: ClientConnection, index: int, lines: ClipSets, rng: random.Random
    ) -> None:
        run, now = self._run, self._clock.now()
        user = WireClient(index, run.load.plan, lines, run.room, run.ids, rng, now)
        reading = asyncio.create_task(self._read(socket, user))
        try:
            await self._send(socket, user.start())
            async with filming(run.feed(index), user, _Way(socket), run.clock):
                await self._speak(socket, user, now, watched=index == 0)
        except ConnectionClosed:
            await reading
        except (
            asyncio.CancelledError
        ):  # the run is being stopped: what this user saw until now counts
            self.outcome.records.append(user.finish())
            raise
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
        user.closed(why_closed(socket), self._clock.now())
        self.outcome.records.append(user.finish())

    async def _speak(
        self, socket: ClientConnection, user: WireClient, begun: int, *, watched: bool
    ) -> None:
        async for due in self._run.frames(user, begun):
            await self._send(socket, user.tick(due))
            if (
                watched
                and (due - begun) % LEAD_EVERY_NS == 0
                and len(self.outcome.lead) < LEAD_SAMPLES
            ):
                at_s = (due - self._run.began) / NS_PER_S
                self.outcome.lead.append((at_s, user.buffered(due) / OUTPUT_RATE))
        if user.lost:
            socket.transport.abort()

    async def _read(self, socket: ClientConnection, user: WireClient) -> None:
        """Until the connection is gone."""
        with contextlib.suppress(ConnectionClosed):
            async for frame in socket:
                now = self._clock.now()
                try:
                    event = decode(frame)
                except msgspec.MsgspecError:
                    user.record.errors["unreadable_event"] += 1
                    continue
                await self._send(socket, user.receive(event, now))

    async def _send(self, socket: ClientConnection, messages: list[str]) -> None:
        for message in messages:
            await socket.send(message)


class _Way:
    """A camera's way out: the socket beside the microphone."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def waiting(self) -> int:
        return self._socket.transport.get_write_buffer_size()

    async def send(self, message: str) -> None:
        with contextlib.suppress(ConnectionClosed):  # `_speak` sees that
            await self._socket.send(message)


def why_closed(socket: ClientConnection) -> str:
    """For `error_kinds`: the server's close code, or what ended the connection without one."""
    sent, received = socket.protocol.close_sent, socket.protocol.close_rcvd
    if received is None and sent is not None and sent.code == CloseCode.INTERNAL_ERROR:
        return "closed:no pong"  # ours: the server answered no ping in time
    return f"closed:{socket.close_code if socket.close_code is not None else 'lost'}"


def _refused(fault: Exception) -> RefusedCall | None:
    """What a server said that takes no more sessions now."""
    if not isinstance(fault, InvalidStatus) or fault.response.status_code != 503:
        return None
    response = fault.response
    return refusal((response.body or b"").decode(errors="replace"), response.headers)


def describe(fault: Exception, url: str) -> tuple[str, str]:
    """(one line for people, key for `error_kinds`) of why a session could not be opened."""
    if isinstance(fault, InvalidStatus):
        status = fault.response.status_code
        reason = {
            **REFUSED,
            404: "nothing is served at this path",
        }.get(status, "the server refused the connection")
        return f"{url}: HTTP {status}: {reason}", f"http:{status}"
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"{url}: {NOT_TRUSTED}", "connect:certificate"
    if isinstance(fault, TimeoutError):
        return f"{url}: no answer within {OPEN_S:.0f} s", "connect:timeout"
    if isinstance(fault, InvalidHandshake):
        return f"{url}: not a WebSocket server ({fault})", "connect:handshake"
    return f"{url}: cannot connect: is the server running? ({fault})", "connect:refused"
