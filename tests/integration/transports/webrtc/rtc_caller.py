"""A WebRTC client for tests: aiortc in the same process, events checked as they come, every sound kept with its time.

`RtcCaller` is a `Caller` whose frames travel over the data channel. It has a microphone that is never silent on the wire, and
an ear: mean loudness of every frame that came, by arrival and by RTP time stamp. PCM is s16le at 24 kHz.
"""

from __future__ import annotations

import asyncio
import fractions
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import av
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError

from session_server.http.server import Server
from tests.aiortc_inside import abort_sockets
from tests.integration.server.caller import RATE, Caller, Event
from tests.until import until

SAMPLES = RATE // 50
LOUD = 300.0
"""Mean loudness of a frame of a voice; coded silence stays far below."""

ONLY_LOOPBACK = {"webrtc__host_addresses": ["127.0.0.1"]}


class Microphone(MediaStreamTrack):
    """Frames of 20 ms on absolute deadlines."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[bytes] = deque()
        self._start: float | None = None
        self._count = 0

    def say(self, pcm: bytes) -> None:
        step = 2 * SAMPLES
        self._queue.extend(
            pcm[at : at + step].ljust(step, b"\0") for at in range(0, len(pcm), step)
        )

    @property
    def speaking(self) -> bool:
        return bool(self._queue)

    async def recv(self) -> av.AudioFrame:
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time()
        await asyncio.sleep(max(0.0, self._start + self._count * 0.02 - loop.time()))
        frame = av.AudioFrame(format="s16", layout="mono", samples=SAMPLES)
        frame.sample_rate = RATE
        frame.planes[0].update(self._queue.popleft() if self._queue else bytes(2 * SAMPLES))
        frame.pts = self._count * SAMPLES
        frame.time_base = fractions.Fraction(1, RATE)
        self._count += 1
        return frame


@dataclass(frozen=True, slots=True)
class Heard:
    """A frame at the ear: when it came by the loop's clock, and its root mean square."""

    at: float
    loudness: float


class RtcCaller(Caller):
    """Make it with `calling`."""

    def __init__(
        self,
        peer: RTCPeerConnection,
        channel: RTCDataChannel,
        microphone: Microphone | None = None,
    ) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.peer = peer
        self.channel = channel
        self.microphone = microphone or Microphone()
        self.ear: list[Heard] = []
        self.call_id = ""
        channel.on("message", self._on_message)
        channel.on("close", self._on_close)

    def _on_message(self, message: str) -> None:
        self._take(self.check.feed(message))

    def _on_close(self) -> None:
        self.close = self.close or (1000, "")
        self._news.set()

    async def send(self, event: Event | str | bytes) -> None:
        self.channel.send(json.dumps(event) if isinstance(event, dict) else event)

    async def listen(self, track: MediaStreamTrack) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, av.AudioFrame)
            sound = frame.to_ndarray().astype(np.float64)
            self.ear.append(Heard(loop.time(), float(np.sqrt(np.mean(sound**2)))))
            self._news.set()

    async def talk(self, pcm: bytes) -> None:
        """Say something, and wait until it has left."""
        self.microphone.say(pcm)
        await until(lambda: not self.microphone.speaking, every_s=0.01)

    def loud_frames(self, start: int = 0) -> int:
        """How many frames at the ear, from number `start` on, sounded."""
        return sum(heard.loudness > LOUD for heard in self.ear[start:])


async def post_offer(
    server: Server,
    sdp: str,
    session: Event | None = None,
    *,
    key: str | None = None,
    query: str = "",
    path: str = "/v1/realtime/calls",
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of the answer to an offer."""
    assert server.address is not None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body: Any
    if session is None:
        body, headers["Content-Type"] = sdp, "application/sdp"
    else:
        body = form({"sdp": sdp, "session": json.dumps(session)})
    url = f"{server.address.http}{path}{query}"
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, data=body, headers=headers) as answer,
    ):
        return answer.status, dict(answer.headers), await answer.text()


def form(fields: dict[str, str]) -> aiohttp.MultipartWriter:
    """As a browser sends a `FormData`."""
    writer = aiohttp.MultipartWriter("form-data")
    for name, text in fields.items():
        part = writer.append(text)
        part.headers.popall("Content-Type")
        part.set_content_disposition("form-data", name=name)
    return writer


async def offer_of(peer: RTCPeerConnection) -> str:
    await peer.setLocalDescription(await peer.createOffer())
    return str(peer.localDescription.sdp)


@asynccontextmanager
async def offering() -> AsyncIterator[tuple[RTCPeerConnection, str]]:
    """A peer with a microphone and a channel, and its offer, which it means."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peer.addTrack(Microphone())
    peer.createDataChannel("oai-events")
    try:
        yield peer, await offer_of(peer)
    finally:
        await peer.close()


@asynccontextmanager
async def calling(
    server: Server,
    session: Event | None = None,
    *,
    key: str | None = None,
    query: str = "",
    lawful: bool = True,
    microphone: Microphone | None = None,
    camera: MediaStreamTrack | None = None,
) -> AsyncIterator[RtcCaller]:
    """Call the server, and read `session.created`. At the end hang up, and check the events that came."""
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    caller = RtcCaller(peer, peer.createDataChannel("oai-events"), microphone)
    peer.addTrack(caller.microphone)
    if camera is not None:
        peer.addTrack(camera)
    readers: list[asyncio.Task[None]] = []
    peer.on("track", lambda t: readers.append(asyncio.ensure_future(caller.listen(t))))
    try:
        offer = await offer_of(peer)
        status, headers, body = await post_offer(server, offer, session, key=key, query=query)
        assert status == 201, body
        caller.call_id = headers["Location"].rsplit("/", 1)[1]
        await peer.setRemoteDescription(RTCSessionDescription(body, "answer"))
        await caller.wait("session.created")
        yield caller
        if lawful:
            caller.assert_lawful(open_ends=True)
    finally:
        await peer.close()
        for reader in readers:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader


async def vanish(caller: RtcCaller) -> None:
    """Be gone without a word: the sockets close, nothing is sent."""
    abort_sockets(caller.peer)
