"""Events to one caller: in order, bounded, never longer than the client takes, copied to whoever follows."""

from __future__ import annotations

import json

import pytest

from session_server.transports.base import PlayoutTransport
from session_server.transports.webrtc.limits import WebRtcLimits
from session_server.transports.webrtc.offer import Offer
from session_server.transports.webrtc.outbox import CallOutbox

pytestmark = pytest.mark.unit


class Channel:
    """A data channel that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.bufferedAmount = 0
        self.readyState = "open"

    def send(self, message: str) -> None:
        self.sent.append(message)


class Follower:
    """A connection beside the call."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed: tuple[int, str] | None = None

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


def made(*, size: int = 0, has_channel: bool = True, **limits: int) -> CallOutbox:
    offer = Offer("", has_channel, size)
    return CallOutbox(offer, WebRtcLimits(**limits), lambda: None)


@pytest.mark.asyncio
async def test_events_wait_for_the_channel_in_order():
    outbox, channel = made(), Channel()
    outbox.send(b'"a"')
    outbox.send(b'"b"')
    assert outbox.queued_bytes == 6
    outbox.opened(channel)
    outbox.send(b'"c"')
    assert channel.sent == ['"a"', '"b"', '"c"']
    assert outbox.queued_bytes == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "limit"), [(1_000, 1_000), (0, 262_144), (10**9, 262_144)])
async def test_no_message_is_longer_than_the_client_takes(size: int, limit: int):
    outbox, channel = made(size=size), Channel()
    outbox.opened(channel)
    outbox.send(json.dumps({"type": "x", "item": {"audio": "A" * 200_000, "id": "i"}}).encode())
    outbox.send(json.dumps({"type": "x", "numbers": list(range(200))}).encode())
    assert all(len(message) <= limit for message in channel.sent)
    assert json.loads(channel.sent[0])["item"]["id"] == "i"


@pytest.mark.asyncio
async def test_what_cannot_be_made_short_enough_is_left_out_and_the_rest_goes_on():
    outbox, channel = made(size=100), Channel()
    outbox.opened(channel)
    outbox.send(json.dumps({"type": "x", "numbers": list(range(200))}).encode())
    outbox.send(b'"after"')
    assert channel.sent == ['"after"']


@pytest.mark.asyncio
async def test_a_client_that_does_not_read_loses_the_call():
    outbox, channel = made(outbox_bytes=1_000), Channel()
    outbox.opened(channel)
    channel.bufferedAmount = 995
    outbox.send(b'"too much"')
    outbox.send(b'"never"')
    assert outbox.closing is not None
    assert outbox.closing[0] == 1013
    assert channel.sent == []


@pytest.mark.asyncio
async def test_without_a_channel_nothing_waits_and_followers_hear_all():
    outbox, follower = made(has_channel=False), Follower()
    outbox.followers.append(follower)
    for _ in range(10):
        outbox.send(b'"a"')
    assert outbox.queued_bytes == 0
    assert len(follower.frames) == 10
    outbox.close(1001, "bye")
    outbox.close(1011, "again")
    assert follower.closed == (1001, "bye")


@pytest.mark.asyncio
async def test_it_is_a_player():
    assert isinstance(made(), PlayoutTransport)
