"""A small client of our own server: what `demo`, `talk`, `offline` and `check` speak through.

Owns one WebSocket: a reader task that stamps every event with the time of its arrival and feeds the
loudspeaker, and a microphone task that sends 20 ms frames on absolute deadlines. Speaks the public protocol
only, with the playback extension. Times are nanoseconds of the monotonic clock.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from session_server.client.sound import PlayedPart, Speaker
from session_server.http.tls import client_tls
from session_server.process.clock import Clock, MonotonicClock
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE
from session_server.types.errors import ConfigError, SessionServerError

FRAME_MS = 20
FRAME_BYTES = OUTPUT_RATE * FRAME_MS // 1000 * 2
_KEPT_EVENTS = 4096
_KEPT_PARTS = 16
_MAX_FRAME = 4 * 1024 * 1024

Event = Mapping[str, Any]


class ClientError(SessionServerError):
    """The server did not do what was asked, or is not there. One line."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event of the server; `number` counts from 0 over the connection's life."""

    number: int
    at: int
    event: Event

    @property
    def type(self) -> str:
        return str(self.event.get("type", ""))


class RealtimeClient:
    """One live connection. Make it with `connected`."""

    def __init__(self, socket: ClientConnection, clock: Clock) -> None:
        self.speaker = Speaker()
        self.parts: dict[str, PlayedPart] = {}
        """The newest spoken part of each of the last responses."""
        self.clock = clock
        self.on_event: Callable[[Arrived], None] | None = None
        self._socket = socket
        self._events: deque[Arrived] = deque(maxlen=_KEPT_EVENTS)
        self._count = 0
        self._news = asyncio.Event()
        self._closed: str | None = None
        self._speech: deque[bytes] = deque()
        self._spoken = asyncio.Event()
        self._spoken_at = 0
        self._live: asyncio.Queue[bytes] | None = None

    # -- events

    @property
    def count(self) -> int:
        """Events so far: where a later `wait` may start looking."""
        return self._count

    @property
    def closed(self) -> str | None:
        """Why the connection is gone, once it is."""
        return self._closed

    async def send(self, event: Mapping[str, object]) -> None:
        """Send one client event."""
        try:
            await self._socket.send(msgspec.json.encode(event).decode())
        except ConnectionClosed as closed:
            raise ClientError(f"the connection closed: {_why(closed)}") from None

    def find(
        self, kind: str, start: int = 0, where: Callable[[Event], bool] | None = None
    ) -> Arrived | None:
        """The first event of this type (or of one of several, with | between them) from number `start` on, if it came."""
        kinds = kind.split("|")
        for arrived in self._events:
            wanted = arrived.number >= start and arrived.type in kinds
            if wanted and (where is None or where(arrived.event)):
                return arrived
        return None

    def last(self, kind: str, before: int) -> Arrived | None:
        """The last event of this type with a number below `before`, as far as they are kept."""
        found = None
        for arrived in self._events:
            if arrived.number < before and arrived.type == kind:
                found = arrived
        return found

    def texts(self, kind: str, response_id: str) -> list[str]:
        """The deltas of this type of one response, as far as they are kept."""
        return [
            str(a.event["delta"])
            for a in self._events
            if a.type == kind and a.event["response_id"] == response_id
        ]

    async def wait(
        self,
        kind: str,
        start: int = 0,
        where: Callable[[Event], bool] | None = None,
        within_s: float = 30.0,
    ) -> Arrived:
        """The first such event from number `start` on. Raises ClientError when it doesn't come."""
        deadline = self.clock.now() + int(within_s * NS_PER_S)
        while (found := self.find(kind, start, where)) is None:
            if self._closed is not None:
                raise ClientError(f"the connection closed ({self._closed}) before {kind}")
            try:
                await self.next_event((deadline - self.clock.now()) / NS_PER_S)
            except TimeoutError:
                said = self._complaint(start)
                raise ClientError(f"no {kind} within {within_s:g} s{said}") from None
        return found

    async def next_event(self, within_s: float) -> None:
        """Return when anything new arrived, or the connection ended. Raises TimeoutError."""
        if self._closed is not None:
            return
        self._news.clear()
        async with asyncio.timeout(max(0.0, within_s)):
            await self._news.wait()

    def _complaint(self, start: int) -> str:
        """The server's own words, if it sent an error since."""
        error = self.find("error", start)
        return f"; the server said: {error.event['error']['message']}" if error else ""

    async def update(self, session: Mapping[str, object]) -> Event:
        """`session.update`, and the effective session."""
        start = self._count
        await self.send({"type": "session.update", "session": {"type": "realtime", **session}})
        updated: Event = (await self.wait("session.updated", start, within_s=10)).event["session"]
        return updated

    # -- tasks

    async def read(self) -> None:
        """The reader task."""
        try:
            async for frame in self._socket:
                event: Event = msgspec.json.decode(frame)
                self._take(event)
        except ConnectionClosed as closed:
            self._closed = _why(closed)
        else:
            self._closed = f"{self._socket.close_code} {self._socket.close_reason}".strip()
        finally:
            self._closed = self._closed or "cancelled"
            self._news.set()
            self._spoken.set()

    def _take(self, event: Event) -> None:
        kind = event.get("type")
        if kind == "response.output_audio.delta":
            pcm = base64.b64decode(event["delta"])
            where = (event["response_id"], event["item_id"], event["content_index"])
            self.parts[where[0]] = self.speaker.push(*where, pcm)
            while len(self.parts) > _KEPT_PARTS:
                del self.parts[next(iter(self.parts))]
            event = {**event, "delta": "", "samples": len(pcm) // 2}
        elif kind == "response.done":
            self.speaker.complete(event["response"]["id"])
        elif kind == "output_audio_buffer.cleared":
            self.speaker.cut(event["response_id"])
        elif kind in ("playback.mute", "playback.play"):
            self.speaker.mute(kind == "playback.mute")
        arrived = Arrived(self._count, self.clock.now(), event)
        self._count += 1
        self._events.append(arrived)
        self._news.set()
        if self.on_event is not None:
            self.on_event(arrived)

    async def run_microphone(self, *, play: bool = True) -> None:
        """The microphone task: a frame each 20 ms, speech when there is some, else silence. `play`: also pull
        the loudspeaker at the same pace (no sound device does)."""
        start, n = self.clock.now(), 0
        frame_ns = FRAME_MS * NS_PER_MS
        while self._closed is None:
            await self._send_frame(self._next_frame())
            if play:
                self.speaker.pull(FRAME_BYTES // 2)
            for ack in self.speaker.acks(self.clock.now()):
                await self.send(ack)
            n += 1
            late_ns = self.clock.now() - (start + n * frame_ns)
            await asyncio.sleep(max(0.0, -late_ns / NS_PER_S))

    def _next_frame(self) -> bytes:
        if self._live is not None:
            sound = bytearray()
            while not self._live.empty():
                sound += self._live.get_nowait()
            return bytes(sound)
        if not self._speech:
            return bytes(FRAME_BYTES)
        frame = self._speech.popleft()
        if not self._speech:
            self._spoken_at = self.clock.now()
            self._spoken.set()
        return frame

    async def _send_frame(self, frame: bytes) -> None:
        if frame:
            await self.send(append(frame))

    # -- speech

    def listen_to(self, frames: asyncio.Queue[bytes]) -> None:
        """Take the microphone's sound from a device instead."""
        self._live = frames

    async def say(self, pcm: bytes) -> int:
        """Speak at real time; returns when the last sample was sent (the instant)."""
        self._spoken.clear()
        self._speech.extend(
            pcm[k : k + FRAME_BYTES].ljust(FRAME_BYTES, b"\0")
            for k in range(0, len(pcm), FRAME_BYTES)
        )
        await self._spoken.wait()
        if self._closed is not None:
            raise ClientError(f"the connection closed ({self._closed}) while speaking")
        return self._spoken_at


def _refused(refusal: InvalidStatus) -> str:
    """One line about an HTTP answer that is no upgrade: what to do, or in the server's own words."""
    response = refusal.response
    if response.status_code == 401:
        return "HTTP 401: the server wants a key, or another one: --key, or OPENAI_API_KEY"
    try:
        said = str(msgspec.json.decode(response.body or b"")["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        said = response.reason_phrase or "refused"
    wait = response.headers.get("Retry-After")
    again = f" Try again in {wait} s." if wait else ""
    return f"HTTP {response.status_code}: {said}{again}"


def append(pcm: bytes) -> dict[str, object]:
    """`input_audio_buffer.append` of s16le at OUTPUT_RATE."""
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}


def _why(closed: ConnectionClosed) -> str:
    if closed.rcvd is not None:
        return f"{closed.rcvd.code} {closed.rcvd.reason}".strip()
    return "lost"


_SCHEMES = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}
_PATHS = {"": "/v1/realtime", "/": "/v1/realtime", "/v1": "/v1/realtime", "/v1/": "/v1/realtime"}


def websocket_url(address: str) -> str:
    """The WebSocket that `address` means: HOST:PORT, or a URL of http, https, ws or wss; without a path, that
    of the realtime endpoint. Raises ConfigError."""
    scheme, found, rest = address.strip().partition("://")
    if not found:
        scheme, rest = "ws", scheme
    try:
        parts = urlsplit(f"//{rest}")
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half an IPv6 address
        named = False
    wanted = _SCHEMES.get(scheme.lower())
    if wanted is None or not named:
        raise ConfigError(f"{address}: not a server's address; give HOST:PORT or ws://HOST:PORT")
    path = _PATHS.get(parts.path, parts.path)
    return urlunsplit((wanted, parts.netloc, path, parts.query, ""))


@asynccontextmanager
async def connected(
    url: str,
    *,
    key: str | None = None,
    clock: Clock | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[RealtimeClient]:
    """Connect to what `websocket_url` makes of `url`, read, and wait for `session.created`. `tls` None: `client_tls()`.
    Raises ClientError when there is no such server."""
    url = websocket_url(url)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    query = "&" if "?" in url else "?"
    try:
        socket = await connect(
            f"{url}{query}extensions=playback",
            additional_headers=headers,
            compression=None,
            proxy=None,
            ssl=(tls or client_tls()) if url.startswith("wss:") else None,
            max_size=_MAX_FRAME,
            close_timeout=2,
        )
    except ssl.SSLCertVerificationError as error:
        raise ClientError(
            f"cannot connect to {url}: its certificate is not trusted: {error.verify_message}"
        ) from None
    except InvalidStatus as refusal:
        raise ClientError(f"cannot connect to {url}: {_refused(refusal)}") from None
    except (OSError, InvalidHandshake, InvalidURI, TimeoutError) as error:
        raise ClientError(f"cannot connect to {url}: {error}") from None
    client = RealtimeClient(socket, clock or MonotonicClock())
    reader = asyncio.create_task(client.read())
    try:
        await client.wait("session.created", within_s=10)
        yield client
    finally:
        await socket.close()
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reader


@asynccontextmanager
async def microphone(client: RealtimeClient, *, play: bool = True) -> AsyncIterator[None]:
    """Run the microphone while the block lasts."""
    task = asyncio.create_task(client.run_microphone(play=play))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ClientError):
            await task
