"""Virtual users over WebRTC: the same users, as light callers of one asyncio process.

Speech is encoded before the run; of what comes, only loudness is looked at (`judge_every`: of one call in so many, whose
neighbours take every packet for audible). Each user sends its 20 ms packet at `start + k * 20 ms` of its own clock; lateness is reported
as over WebSocket. Whatever ends a call, its connection and its thread are freed before the user goes on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import aiohttp
import msgspec
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection

from loadgen.call_reception import BadNetwork, CallFigures
from loadgen.drivers.camera_feed import filming
from loadgen.drivers.load_run import OPEN_S, LoadOutcome, LoadPlan, LoadRun, refusal
from loadgen.drivers.opus import OpusBook, OpusLoudness
from loadgen.drivers.rtc_client import RtcClient
from loadgen.drivers.rtp_port import RtpPort, SilentTrack
from loadgen.drivers.signalling import (
    CHANNEL,
    CallRefused,
    close,
    describe,
    negotiate,
    offer_addresses,
)
from loadgen.drivers.wire import decode
from loadgen.drivers.wire_client import ClipSets
from loadgen.server_probe import ServerProbe
from loadgen.users.player import QUANTUM_NS
from session_server.process.clock import Clock
from session_server.types.audio import NS_PER_S

SILENT_NS = 5 * NS_PER_S
"""A server sends audio without a pause: one that does not for so long is gone. ICE would take half a minute."""


class RtcDriver:
    """Runs a load against one server's calls. `outcome`: what there is so far; of a run that was cancelled, all there is.
    `live`: the calls that are connected now."""

    def __init__(
        self,
        load: LoadPlan,
        probe: ServerProbe,
        *,
        network: BadNetwork | None = None,
        judge_every: int = 1,
        progress: Callable[[int], None] = lambda turns: None,
        clock: Clock | None = None,
    ) -> None:
        self._run = LoadRun(load, probe, progress, clock)
        self._run.outcome.calls = []
        self._network = network if network is not None else BadNetwork()
        self._judge_every = judge_every
        self._book = OpusBook(load.material, self._run.room, loss=self._network.loss)
        self.live: set[Caller] = set()
        offer_addresses(load.url)

    @property
    def outcome(self) -> LoadOutcome:
        return self._run.outcome

    async def run(self) -> LoadOutcome:
        """Raises RunFailed when not one call was answered."""
        async with aiohttp.ClientSession() as self._http:
            return await self._run.run(self._session)

    async def _session(self, index: int, lines: ClipSets, rng: random.Random) -> int | None:
        run = self._run
        caller = Caller(index, run, lines, rng, self._judge(index))
        try:
            try:
                await caller.connect(self._http, self._network)
            except (CallRefused, aiohttp.ClientError, OSError, TimeoutError) as fault:
                refused = None
                if isinstance(fault, CallRefused) and fault.status == 503:
                    refused = refusal(fault.body, fault.headers)
                return run.refuse(*describe(fault, run.load.url), refused)
            self.live.add(caller)
            run.outcome.sessions += 1
            await caller.converse(self._book)
            return None
        finally:
            self.live.discard(caller)
            await caller.close()

    def _judge(self, index: int) -> Callable[[bytes], bytes] | None:
        return OpusLoudness().loud if index % self._judge_every == 0 else None


class Caller:
    """One call of one user."""

    def __init__(
        self,
        index: int,
        run: LoadRun,
        lines: ClipSets,
        rng: random.Random,
        loud: Callable[[bytes], bytes] | None,
    ) -> None:
        self.figures = CallFigures()
        self._index = index
        self._run = run
        self._clock = run.clock
        self._rng = rng
        self._begun = self._answered = self._clock.now()
        plan = run.load.plan
        self.client = RtcClient(index, plan, lines, run.room, run.ids, rng, self._begun, loud)
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._peer.addTrack(SilentTrack())
        self._channel: RTCDataChannel = self._peer.createDataChannel(CHANNEL)
        self._port: RtpPort | None = None
        self._ready = asyncio.Event()
        self._over: str | None = None
        self._fault: Exception | None = None
        self._channel.on("message", self._on_message)
        self._channel.on("close", lambda: self._end("closed:call"))
        self._peer.on("connectionstatechange", self._on_state)
        self._peer.on("iceconnectionstatechange", self._on_ice)

    async def connect(self, http: aiohttp.ClientSession, network: BadNetwork) -> None:
        """Until the session is there. Raises CallRefused, TimeoutError, OSError, or aiohttp.ClientError."""
        load = self._run.load
        async with asyncio.timeout(OPEN_S):
            agreed = await negotiate(http, load.url, load.headers, self._peer, self._on_answer)
            took, rng = self.client.packet, random.Random(self._rng.random())
            self._port = RtpPort(
                self._peer, agreed.payload_type, agreed.ssrc, took, self._clock, network, rng
            )
            self.figures.arrivals = self._port.arrivals
            await self._ready.wait()
        if self._over is not None:
            raise TimeoutError(self._over)
        self.figures.connect_ns = self._clock.now() - self._begun

    async def converse(self, book: OpusBook) -> None:
        """Be this user until it has done, or the call is over."""
        client, run = self.client, self._run
        assert run.outcome.calls is not None
        run.outcome.calls.append(self.figures)
        try:
            self._say(client.start())
            async with filming(run.feed(self._index), client, self, self._clock):
                await self._speak(book)
            if self._fault is not None:
                raise self._fault
            client.closed(self._over or "closed:lost", self._clock.now())
        finally:  # a run that is being stopped, too: what this user saw until now counts
            self._note_figures()
            run.outcome.records.append(client.finish())

    async def _speak(self, book: OpusBook) -> None:
        client, port, run = self.client, self._port, self._run
        assert port is not None
        begun = self._begun + (self._clock.now() - self._begun) // QUANTUM_NS * QUANTUM_NS
        async for due in run.frames(client, begun, lambda: self._over is not None):
            messages, frame = client.tick(due)
            self._say(messages)
            port.send(book[frame])
            if self._clock.now() - port.heard_at > SILENT_NS:
                self._end("closed:lost")
        if client.lost:
            port.vanish()

    async def close(self) -> None:
        """Free the connection; bounded."""
        await close(self._peer)

    # -- the camera's way out: the data channel

    def waiting(self) -> int:
        return self._channel.bufferedAmount

    async def send(self, message: str) -> None:
        self._say([message])

    def _say(self, messages: list[str]) -> None:
        if self._channel.readyState == "open":
            for message in messages:
                self._channel.send(message)

    def _on_message(self, message: str | bytes) -> None:
        try:
            self._ready.set()
            self._say(self.client.receive(decode(message), self._clock.now()))
        except msgspec.MsgspecError:
            self.client.record.errors["unreadable_event"] += 1
        except Exception as fault:  # ours: raised where the user is carried, not inside aiortc
            self._fault = fault
            self._end("fault")

    def _on_answer(self) -> None:
        self._answered = self._clock.now()

    def _on_ice(self) -> None:
        if self._peer.iceConnectionState == "completed" and not self.figures.ice_ns:
            self.figures.ice_ns = self._clock.now() - self._answered

    def _on_state(self) -> None:
        state = self._peer.connectionState
        if state == "connected" and not self.figures.media_ns:
            self.figures.media_ns = self._clock.now() - self._answered
        elif state in ("closed", "failed"):
            self._end(f"closed:{state}")

    def _end(self, why: str) -> None:
        self._over = self._over or why
        self._ready.set()

    def _note_figures(self) -> None:
        figures, port, client = self.figures, self._port, self.client
        assert port is not None
        figures.received, figures.lost = port.received, port.lost
        figures.late, figures.concealed = client.ear.late, client.concealed
        figures.depth_ns = client.ear.depth_ns
