"""Virtual users over real WebSockets: one asyncio process, microphones on absolute deadlines.

Each user sends its 20 ms frame at `start + k * 20 ms` of its own clock. When the process is late, frames
go out at once and the lateness is reported: figures of a late driver are not to be trusted. Sockets are
neither compressed nor proxied.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from loadgen.records import ResponseIds, UserRecord
from loadgen.server_probe import Sample, ServerProbe
from loadgen.speech import Material, room_noise, share
from loadgen.users.player import QUANTUM_NS
from loadgen.wire import decode
from loadgen.wire_client import Lines, Plan, WireClient
from session_server.clock import Clock, MonotonicClock
from session_server.errors import SessionServerError
from session_server.media import NS_PER_S, OUTPUT_RATE

OPEN_S = 10.0
PROBE_EVERY_S = 2.0
LEAD_EVERY_NS = 5 * QUANTUM_NS
LEAD_SAMPLES = 600
MAX_FRAME = 4 * 1024 * 1024


class RunFailed(SessionServerError):
    """No session could be opened. One line that says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to run. `starts`: seconds from the beginning, one a user; each user opens `rounds` sessions in turn."""

    url: str
    plan: Plan
    material: Material
    starts: Sequence[float]
    seed: int
    rounds: int = 1
    api_key: str | None = None


@dataclass(slots=True)
class Outcome:
    """What a run gave. `looks`: (sessions ended so far, the server then). `lead`: (second of the run, seconds of audio that had
    arrived and were not played yet) of the first user, for its first minute or so."""

    records: list[UserRecord] = field(default_factory=list)
    late_ns: list[int] = field(default_factory=list)
    looks: list[tuple[int, Sample]] = field(default_factory=list)
    lead: list[tuple[float, float]] = field(default_factory=list)
    sessions: int = 0


class WsDriver:
    """Runs a load against one server. `outcome`: what there is so far; of a run that was cancelled, all there is."""

    def __init__(
        self,
        load: Load,
        probe: ServerProbe,
        *,
        progress: Callable[[int], None] = lambda turns: None,
        clock: Clock | None = None,
    ) -> None:
        self._load = load
        self._probe = probe
        self._progress = progress
        self._clock = clock if clock is not None else MonotonicClock()
        self._ids = ResponseIds()
        self._room = room_noise(load.seed)
        self.outcome = Outcome()
        self._refusals: list[str] = []
        self._ended_turns = 0
        self._began = 0

    async def run(self) -> Outcome:
        """Raises RunFailed when not one session could be opened."""
        self._began = self._clock.now()
        await self._look()
        looking = asyncio.create_task(self._keep_looking())
        try:
            async with asyncio.TaskGroup() as group:
                for index, start in enumerate(self._load.starts):
                    group.create_task(self._user(index, start))
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        if not self.outcome.sessions:
            raise RunFailed(self._refusals[0] if self._refusals else "no session could be opened")
        await self._look()
        return self.outcome

    async def _user(self, index: int, start: float) -> None:
        await asyncio.sleep(start)
        users = len(self._load.starts)
        for lap in range(self._load.rounds):
            rng = random.Random(f"{self._load.seed}/{index}/{lap}")
            material = self._load.material
            lines = Lines(
                share(material.questions, index, users, rng),
                share(material.interruptions, index, users, rng),
                share(material.backchannels, index, users, rng) if material.backchannels else (),
            )
            await self._session(index, lines, rng)

    async def _session(self, index: int, lines: Lines, rng: random.Random) -> None:
        key = self._load.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else None
        try:
            async with connect(
                self._load.url,
                additional_headers=headers,
                compression=None,
                proxy=None,
                max_size=MAX_FRAME,
                open_timeout=OPEN_S,
                close_timeout=2.0,
            ) as socket:
                self.outcome.sessions += 1
                await self._converse(socket, index, lines, rng)
        except (OSError, InvalidHandshake, TimeoutError) as fault:
            self._refuse(fault)

    async def _converse(
        self, socket: ClientConnection, index: int, lines: Lines, rng: random.Random
    ) -> None:
        now = self._clock.now()
        plan = self._load.plan
        user = WireClient(index, plan, lines, self._room, self._ids, rng, now)
        reading = asyncio.create_task(self._read(socket, user))
        try:
            await self._send(socket, user.start())
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
        user.closed(_why(socket), self._clock.now())
        self.outcome.records.append(user.finish())

    async def _speak(
        self, socket: ClientConnection, user: WireClient, begun: int, *, watched: bool
    ) -> None:
        due = begun
        ended = 0
        while not user.done:
            due += QUANTUM_NS
            wait = due - self._clock.now()
            if wait > 0:
                await asyncio.sleep(wait / NS_PER_S)
            self.outcome.late_ns.append(max(0, self._clock.now() - due))
            await self._send(socket, user.tick(due))
            if (
                watched
                and (due - begun) % LEAD_EVERY_NS == 0
                and len(self.outcome.lead) < LEAD_SAMPLES
            ):
                at_s = (due - self._began) / NS_PER_S
                self.outcome.lead.append((at_s, user.buffered(due) / OUTPUT_RATE))
            turns = user.user.turns_ended
            if turns != ended:
                self._ended_turns += turns - ended
                ended = turns
                self._progress(self._ended_turns)
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

    def _refuse(self, fault: Exception) -> None:
        why, kind = describe(fault, self._load.url)
        self._refusals.append(why)
        record = UserRecord()
        record.errors[kind] += 1
        self.outcome.records.append(record)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        sample = await asyncio.to_thread(self._probe.sample)
        if sample is not None:
            self.outcome.looks.append((len(self.outcome.records), sample))


def _why(socket: ClientConnection) -> str:
    return f"closed:{socket.close_code if socket.close_code is not None else 'lost'}"


def describe(fault: Exception, url: str) -> tuple[str, str]:
    """(one line for people, key for `error_kinds`) of why a session could not be opened."""
    if isinstance(fault, InvalidStatus):
        status = fault.response.status_code
        reason = {
            401: "the server wants a key, or another one (--api-key)",
            404: "nothing is served at this path",
            503: "the server takes no more sessions now",
        }.get(status, "the server refused the connection")
        return f"{url}: HTTP {status}: {reason}", f"http:{status}"
    if isinstance(fault, TimeoutError):
        return f"{url}: no answer within {OPEN_S:.0f} s", "connect:timeout"
    if isinstance(fault, InvalidHandshake):
        return f"{url}: not a WebSocket server ({fault})", "connect:handshake"
    return f"{url}: cannot connect: is the server running? ({fault})", "connect:refused"
