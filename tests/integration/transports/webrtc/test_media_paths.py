"""Both media paths carry a call; a fault in the audio of one call ends that call; losses on the way in are made up."""

from __future__ import annotations

import random
from typing import Any

import pytest

from session_server.transports.webrtc.media import MediaPath
from session_server.transports.webrtc.opus import Encoder
from session_server.transports.webrtc.outgoing_audio import DirectAudio
from tests.aiortc_inside import lose_sent
from tests.integration.server.caller import contains
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.integration.transports.webrtc.rtc_caller import (
    ONLY_LOOPBACK,
    RtcCaller,
    calling,
    offering,
    post_offer,
)
from tests.integration.transports.webrtc.test_calls import decoders
from tests.until import until

pytestmark = pytest.mark.integration

PLAYBACK = {"type": "realtime", "extensions": {"playback": {}}}


@pytest.mark.asyncio
@pytest.mark.parametrize("path", list(MediaPath))
async def test_a_spoken_turn_is_answered_aloud_on_either_path(serve: OpenServer, path: MediaPath):
    async with (
        serve(**ONLY_LOOPBACK, webrtc__media_path=path.value) as server,
        calling(server, PLAYBACK) as caller,
    ):
        assert server.calls is not None
        media = server.calls.media
        assert {p: media.live[p] for p in MediaPath} == {p: int(p is path) for p in MediaPath}
        assert len(media.ticker) == (path is MediaPath.CHEAP)
        for one in MediaPath:
            assert server.metrics.value("webrtc_calls", path=one.value) == int(one is path)
        theirs = 2  # the caller's own: it reads a track
        assert decoders() == theirs - (path is MediaPath.CHEAP)
        await caller.talk(speech(0.8))
        stopped = await caller.wait("output_audio_buffer.stopped")
        assert (await caller.ended(stopped["response_id"]))["status"] == "completed"
        said = len(caller.of("response.output_audio_transcript.done")[0]["transcript"])
        assert caller.loud_frames() == pytest.approx(said / 80 / 0.02, rel=0.15)
        play = await caller.wait("playback.play")
        assert play["rtp_timestamp"] is not None
        assert server.metrics.value("webrtc_send_lateness_seconds_count") > 30
        await until_reported(caller)
    assert not any(media.live.values())
    assert len(media.ticker) == 0


async def until_reported(caller: RtcCaller) -> None:
    """Reports go both ways: the caller hears of what came of its packets, and of the server's clock."""
    while True:
        kinds = {entry.type: entry for entry in (await caller.peer.getStats()).values()}
        theirs, ours = kinds.get("remote-inbound-rtp"), kinds.get("remote-outbound-rtp")
        if theirs is not None and ours is not None and ours.packetsSent:
            assert theirs.packetsLost <= 1
            assert ours.bytesSent > 0
            return
        at = len(caller.ear)
        await caller.until(lambda at=at: len(caller.ear) > at + 5)


@pytest.mark.asyncio
async def test_a_fault_in_the_audio_of_one_call_ends_that_call_alone(
    serve: OpenServer, monkeypatch: pytest.MonkeyPatch
):
    encode = Encoder.encode
    broken: list[Encoder] = []

    def sometimes(self: Encoder, pcm: bytes) -> bytes:
        if self in broken:
            raise ValueError("no packet of it")
        return encode(self, pcm)

    monkeypatch.setattr(Encoder, "encode", sometimes)
    seats: list[DirectAudio] = []
    begin = DirectAudio._begin

    async def noted(self: DirectAudio, parameters: Any) -> None:
        seats.append(self)
        await begin(self, parameters)

    monkeypatch.setattr(DirectAudio, "_begin", noted)
    async with (
        serve(**ONLY_LOOPBACK, expect="audio failed") as server,
        calling(server) as well,
    ):
        async with calling(server, lawful=False) as ill:
            broken.append(seats[1]._encoder._encoder)  # type: ignore[attr-defined]
            await ill.ask("something long")
            await ill.closed()
            await until(lambda: len(server.registry) == 1)
        await well.talk(speech(0.8))
        await well.wait("output_audio_buffer.stopped")
        assert server.calls is not None
        assert len(server.calls.media.ticker) == 1


@pytest.mark.asyncio
async def test_a_second_channel_of_the_same_name_does_not_take_over(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        second = caller.peer.createDataChannel("oai-events")
        got: list[str] = []
        second.on("message", got.append)
        await caller.until(lambda: second.readyState == "closed" and bool(caller.ear))
        await caller.fence()
        assert got == []
        await caller.talk(speech(0.8))
        await caller.wait("output_audio_buffer.stopped")
        assert len(server.registry) == 1


class Lossy:
    """What a caller's packets go through: some are lost. Everything that is not audio arrives."""

    def __init__(self, caller: RtcCaller, share: float, seed: int) -> None:
        self.lost = 0
        rng = random.Random(seed)

        def loses(data: bytes) -> bool:
            audio = 127 < data[0] < 192 and not 192 <= data[1] <= 208
            gone = audio and rng.random() < share
            self.lost += gone
            return gone

        lose_sent(caller.peer.getSenders()[0], loses)


@pytest.mark.asyncio
async def test_losses_on_the_way_in_leave_the_turn_whole(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        lossy = Lossy(caller, 0.1, seed=4)
        await caller.talk(speech(3.0))
        stopped = await caller.wait("output_audio_buffer.stopped")
        assert (await caller.ended(stopped["response_id"]))["status"] == "completed"
        assert lossy.lost > 5
        assert contains(
            ["input_audio_buffer.speech_started", "input_audio_buffer.committed"], caller.types()
        )
        (started,), (ended,) = (
            caller.of(f"input_audio_buffer.speech_{x}") for x in ("started", "stopped")
        )
        assert ended["audio_end_ms"] - started["audio_start_ms"] == pytest.approx(3000, abs=700)


@pytest.mark.asyncio
async def test_calls_are_refused_while_frames_leave_too_late(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, offering() as (_, offer):
        assert server.calls is not None
        for _ in range(3000):
            server.calls.media.left(0.05)
        status, headers, body = await post_offer(server, offer)
        assert (status, headers["Retry-After"]) == (503, "5")
        assert "late" in body
        assert server.metrics.value("sessions_rejected_total", reason="late") == 1
        assert len(server.registry) == 0


@pytest.mark.asyncio
async def test_many_calls_at_once_are_spread_over_the_ticker_and_free_their_places(
    serve: OpenServer,
):
    async with serve(**ONLY_LOOPBACK, scheduler__max_sessions=20) as server:
        assert server.calls is not None
        ticker = server.calls.media.ticker
        callers = [calling(server) for _ in range(8)]
        for one in callers:
            await one.__aenter__()
        assert [len(slot) for slot in ticker._slots] == [2, 2, 2, 2]
        for one in callers:
            await one.__aexit__(None, None, None)
        await until(lambda: len(ticker) == 0)
        assert ticker._timer is None
