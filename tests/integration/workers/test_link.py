"""Both ends of a link in one process: order, bounds, and the one word about its end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from session_server.host.messages import Chunk, SessionOpened, ToSession
from session_server.workers import link
from session_server.workers.control import Minted, pack, read_from_supervisor
from session_server.workers.link import Link, frame, linked

pytestmark = pytest.mark.integration


class End:
    """One end: what came, and how often it was lost."""

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.losses = 0
        self.news = asyncio.Event()
        self.link: Link[Any] | None = None

    def take(self, message: Any) -> None:
        self.came.append(message)
        self.news.set()

    def lost(self) -> None:
        self.losses += 1
        self.news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.came) < count and not self.losses:
                self.news.clear()
                await self.news.wait()


async def ends() -> tuple[End, End]:
    made = [End(), End()]
    for end, raw in zip(made, socket.socketpair(), strict=True):
        end.link = await linked(raw, read_from_supervisor, end.take, end.lost)
    return made[0], made[1]


def chunk(index: int, size: int = 4800) -> ToSession:
    return Chunk("s", "r", "default", 1, index, index * size, 24_000, bytes([index % 256]) * size)


@pytest.mark.asyncio
@pytest.mark.parametrize("value", [Minted(1, "ek", 2**64), Minted(1, "\ud800", 5)])
async def test_a_message_that_cannot_be_written_is_dropped_alone(value: Minted):
    a, b = await ends()
    assert a.link is not None
    a.link.send(value)
    a.link.send(SessionOpened("s"))
    await b.until(1)
    assert b.came == [SessionOpened("s")]
    assert (a.losses, b.losses) == (0, 0)
    a.link.close()


@pytest.mark.asyncio
async def test_messages_come_in_order_with_every_byte_of_sound():
    a, b = await ends()
    messages = [SessionOpened("s"), *(chunk(k) for k in range(200)), Minted(1, "ek_x", 5)]
    for message in messages:
        a.link.send(message)
    await b.until(len(messages))
    assert b.came == messages
    a.link.close()
    await a.until(1)
    await b.until(len(messages) + 1)
    assert (a.losses, b.losses) == (1, 1)


@pytest.mark.asyncio
async def test_what_was_sent_before_the_close_still_comes():
    a, b = await ends()
    for k in range(50):
        a.link.send(chunk(k, 100_000))
    a.link.close()
    await b.until(51)
    assert len(b.came) == 50
    assert b.losses == 1


@pytest.mark.asyncio
async def test_a_peer_that_does_not_read_is_given_up_at_the_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(link, "MAX_WAITING", 2_000_000)
    a, b = await ends()
    assert b.link is not None
    transport = b.link._transport
    assert transport is not None
    transport.pause_reading()
    for k in range(100):
        a.link.send(chunk(k, 100_000))
        await asyncio.sleep(0)
        if a.losses:
            break
    await a.until(1)
    assert a.losses == 1
    assert "has not read 2000000 bytes" in caplog.text
    a.link.send(chunk(1))  # nobody is there: nothing happens
    b.link.abort()
    await b.until(1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "stream",
    [frame(b"\xff\xff"), frame(pack(SessionOpened("s"))[:-1]), b"\xff\xff\xff\xff", frame(b"")],
)
async def test_a_stream_that_cannot_be_read_ends_the_link_once(
    stream: bytes, caplog: pytest.LogCaptureFixture
):
    ours, theirs = socket.socketpair()
    end = End()
    end.link = await linked(ours, read_from_supervisor, end.take, end.lost)
    theirs.sendall(stream)
    await end.until(1)
    assert (end.came, end.losses) == ([], 1)
    assert "the link between host and worker ends" in caplog.text
    theirs.close()
