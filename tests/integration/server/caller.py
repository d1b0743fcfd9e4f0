"""A client for tests: raw WebSocket, every event kept with its time of arrival and checked as it comes.

`Caller` speaks the public protocol and nothing else. Sound is s16le at 24 kHz. Times are the event loop's, in seconds: in these
tests the process's own time, under which nothing is late because the machine is busy.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.integration.server.wire_check import WireCheck
from tests.until import PATIENCE_S

Event = dict[str, Any]

RATE = 24_000
FRAME_MS = 20
"""How long anything may take that has to happen: no bar, a limit for what hangs."""


@dataclass(slots=True)
class Stream:
    """One response's audio: its bytes, and when how many samples of it had come."""

    pcm: bytearray
    arrivals: list[tuple[float, int]]

    def longest_wait_s(self) -> float:
        """The longest time from one delta to the next."""
        return max((b - a for (a, _), (b, _) in pairwise(self.arrivals)), default=0.0)

    def longest_gap_s(self) -> float:
        """The longest silence of a listener that plays from the first delta on."""
        start, gap, had = self.arrivals[0][0], 0.0, 0
        for at, total in self.arrivals:
            dry_at = start + had / RATE
            if at > dry_at:
                gap = max(gap, at - dry_at)
                start += at - dry_at
            had = total
        return gap


def longest_overtaking_s(streams: Sequence[Stream]) -> float:
    """The most audio, in seconds, that any of them got while another one that had begun got nothing."""
    had, since, most = [0] * len(streams), [[0] * len(streams)] * len(streams), 0
    arrivals = [(at, i, total) for i, s in enumerate(streams) for at, total in s.arrivals]
    for _, i, total in sorted(arrivals):
        if had[i]:
            most = max(most, *(now - before for now, before in zip(had, since[i], strict=True)))
        had[i] = total
        since[i] = list(had)
    return most / RATE


class Caller:
    """One connection that reads all the time. Make it with `calling`."""

    def __init__(self, socket_: ClientConnection, *, strict: bool = True) -> None:
        self.socket = socket_
        self.events: list[Event] = []
        self.streams: dict[str, Stream] = {}
        self.check = WireCheck(strict=strict)
        self.close: tuple[int, str] | None = None
        """Code and reason of the server's close, once the connection is gone."""
        self._news = asyncio.Event()
        self._fences = 0
        self._answered: dict[str, int] = {}
        """Where the errors are that answer events with an id."""

    # -- reading

    async def read(self) -> None:
        """The reader task: ends with the connection."""
        try:
            async for frame in self.socket:
                assert isinstance(frame, str), "a binary frame from the server"
                self._take(self.check.feed(frame))
        except ConnectionClosed:
            pass
        finally:
            code, reason = self.socket.close_code, self.socket.close_reason
            self.close = (1006 if code is None else code, reason or "")
            self._news.set()

    def _take(self, event: Event) -> None:
        if event["type"] == "response.output_audio.delta":
            stream = self.streams.setdefault(event["response_id"], Stream(bytearray(), []))
            stream.pcm += base64.b64decode(event["delta"])
            now = asyncio.get_running_loop().time()
            stream.arrivals.append((now, len(stream.pcm) // 2))
        if event["type"] == "error" and event["error"]["event_id"] is not None:
            self._answered[event["error"]["event_id"]] = len(self.events)
        self.events.append(event)
        self._news.set()

    @property
    def session_id(self) -> str:
        return str(self.events[0]["session"]["id"])

    def types(self, start: int = 0) -> list[str]:
        return [event["type"] for event in self.events[start:]]

    def of(self, kind: str, start: int = 0) -> list[Event]:
        return [event for event in self.events[start:] if event["type"] == kind]

    async def until(self, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Wait for something that an event of the server makes true."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    if self.close is not None:
                        raise AssertionError(f"closed ({self.close}) after {self.types()[-8:]}")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"waited in vain; the last were {self.types()[-12:]}") from None

    async def wait(self, kind: str, start: int = 0, within_s: float = PATIENCE_S) -> Event:
        """The first event of this kind from number `start` on."""
        await self.until(lambda: bool(self.of(kind, start)), within_s)
        return self.of(kind, start)[0]

    async def ended(self, response_id: str) -> Event:
        """The response as its `response.done` shows it."""

        def found() -> list[Event]:
            ends = [event["response"] for event in self.of("response.done")]
            return [response for response in ends if response["id"] == response_id]

        await self.until(lambda: bool(found()))
        return found()[0]

    async def closed(self, within_s: float = PATIENCE_S) -> tuple[int, str]:
        """Wait for the end of the connection."""
        try:
            async with asyncio.timeout(within_s):
                while self.close is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"still open; the last were {self.types()[-8:]}") from None
        return self.close

    def pcm(self, response_id: str) -> bytes:
        stream = self.streams.get(response_id)
        return b"" if stream is None else bytes(stream.pcm)

    # -- writing

    async def send(self, event: Event | str | bytes) -> None:
        await self.socket.send(json.dumps(event) if isinstance(event, dict) else event)

    async def fence(self) -> list[Event]:
        """Everything that came before the answer to a request that is always refused: when it returns, all that
        was sent before has been dealt with."""
        self._fences += 1
        name, start = f"fence-{self._fences}", len(self.events)
        await self.send(
            {"type": "conversation.item.retrieve", "item_id": "nobody", "event_id": name}
        )
        await self.until(lambda: name in self._answered)
        return self.events[start : self._answered[name]]

    async def answers_to(self, *events: Event | str | bytes) -> list[Event]:
        """What comes back for these events, in order."""
        for event in events:
            await self.send(event)
        return await self.fence()

    async def update(self, session: Event) -> Event:
        """`session.update`, and the session that it gives."""
        start = len(self.events)
        await self.send({"type": "session.update", "session": {"type": "realtime", **session}})
        shown: Event = (await self.wait("session.updated", start))["session"]
        return shown

    async def detect(self, detection: Event | None) -> None:
        await self.update({"audio": {"input": {"turn_detection": detection}}})

    async def say(self, text: str, *, item_id: str | None = None) -> None:
        """A typed message; nothing answers it by itself."""
        content = [{"type": "input_text", "text": text}]
        item = {"type": "message", "role": "user", "content": content}
        if item_id is not None:
            item["id"] = item_id
        await self.send({"type": "conversation.item.create", "item": item})

    async def ask(self, text: str, **response: Any) -> str:
        """Type something and ask for an answer; the id of the response."""
        start = len(self.events)
        await self.say(text)
        await self.send({"type": "response.create", "response": response})
        created = await self.wait("response.created", start)
        return str(created["response"]["id"])

    async def begin_long_answer(self, heard_s: float) -> str:
        """Ask for an answer of half a minute, and hear that much of it; the id of the response."""
        name = await self.ask("something long")
        await self.hear(name, heard_s)
        return name

    async def hear(self, response_id: str, seconds: float) -> None:
        """Wait for that much more audio of a response."""
        wanted = len(self.pcm(response_id)) + int(seconds * RATE) * 2
        await self.until(lambda: len(self.pcm(response_id)) >= wanted)

    async def commit(self) -> str:
        """Commit the input buffer; the id of the item."""
        answer = await self.answers_to({"type": "input_audio_buffer.commit"})
        assert answer[0]["type"] == "input_audio_buffer.committed", answer
        return str(answer[0]["item_id"])

    async def retrieve(self, item_id: str) -> Event:
        start = len(self.events)
        await self.send({"type": "conversation.item.retrieve", "item_id": item_id})
        item: Event = (await self.wait("conversation.item.retrieved", start))["item"]
        return item

    # -- speaking

    async def append(self, pcm: bytes) -> None:
        await self.send(append(pcm))

    async def speak(self, *pieces: bytes) -> None:
        """Speak in real time, in frames of 20 ms on absolute deadlines."""
        pcm = b"".join(pieces)
        loop, size = asyncio.get_running_loop(), RATE * FRAME_MS // 1000 * 2
        start = loop.time()
        for number, at in enumerate(range(0, len(pcm), size)):
            await asyncio.sleep(max(0.0, start + number * FRAME_MS / 1000 - loop.time()))
            await self.append(pcm[at : at + size])

    # -- going

    def hang_up(self) -> None:
        """Vanish: the peer gets a TCP reset, no close frame."""
        raw = self.socket.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.transport.abort()

    def assert_lawful(self, *, open_ends: bool = False) -> None:
        """The stream of events kept every rule; `open_ends`: it was cut in the middle."""
        assert self.check.problems == []
        if not open_ends:
            assert self.check.open_ends() == []


def append(pcm: bytes) -> Event:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}


def silence(seconds: float) -> bytes:
    return bytes(int(seconds * RATE) * 2)


@asynccontextmanager
async def calling(
    url: str,
    *,
    key: str | None = None,
    strict: bool = True,
    lawful: bool = True,
    at: Path | None = None,
) -> AsyncIterator[Caller]:
    """Connect, and read `session.created`. At the end, close and check what came; `lawful=False`: do not check. `at`: to the
    server that listens on this Unix socket."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    way: dict[str, Any] = {} if at is None else {"unix": True, "path": str(at)}
    connection = await connect(
        url,
        **way,
        additional_headers=headers,
        compression=None,
        proxy=None,
        max_size=None,
        close_timeout=2,
    )
    caller = Caller(connection, strict=strict)
    reader = asyncio.create_task(caller.read())
    try:
        await caller.wait("session.created")
        yield caller
        if lawful:
            caller.assert_lawful(open_ends=True)
    finally:
        await connection.close()
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader


def contains(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether `wanted` comes in `found` in this order, perhaps with others between."""
    rest = iter(found)
    return all(kind in rest for kind in wanted)
