"""A call over WebRTC: it connects, talks, is heard, can be interrupted; what ends it frees everything."""

from __future__ import annotations

import asyncio
import threading

import aiohttp
import pytest

from session_server.http.server import Server
from tests.integration.server.caller import contains
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.integration.transports.webrtc.rtc_caller import (
    ONLY_LOOPBACK,
    RtcCaller,
    calling,
    offering,
    post_offer,
    vanish,
)
from tests.until import until

pytestmark = pytest.mark.integration

PLAYBACK = {"type": "realtime", "extensions": {"playback": {}}}


def decoders() -> int:
    return sum(thread.name.endswith("-decoder") for thread in threading.enumerate())


async def playing(caller: RtcCaller, words: str = "something long", frames: int = 25) -> str:
    """An answer that sounds at the ear; its id."""
    before = caller.loud_frames()
    name = await caller.ask(words)
    await caller.until(lambda: caller.loud_frames() >= before + frames)
    return name


def truncated_ms(caller: RtcCaller) -> list[int]:
    return [event["audio_end_ms"] for event in caller.of("conversation.item.truncated")]


@pytest.mark.asyncio
async def test_a_spoken_turn_is_answered_aloud(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        await caller.until(lambda: len(caller.ear) >= 10)
        assert caller.loud_frames() == 0, (
            "the wire never stops, and is silent where nothing is said"
        )
        await caller.talk(speech(0.8))
        stopped = await caller.wait("output_audio_buffer.stopped")
        response = await caller.ended(stopped["response_id"])
        assert response["status"] == "completed"
        assert contains(
            [
                "session.created",
                "input_audio_buffer.speech_started",
                "input_audio_buffer.committed",
                "response.created",
                "output_audio_buffer.started",
                "output_audio_buffer.stopped",
            ],
            caller.types(),
        )
        assert "response.output_audio.delta" not in caller.types()
        said = len(caller.of("response.output_audio_transcript.done")[0]["transcript"])
        spoken_frames = said / 80 / 0.02  # the simulated talker says 80 characters a second
        assert caller.loud_frames() == pytest.approx(spoken_frames, rel=0.15)
        await assert_recording_returns(caller)


async def assert_recording_returns(caller: RtcCaller) -> None:
    """What was said comes back in the client's format."""
    (started,), (ended,) = (
        caller.of(f"input_audio_buffer.speech_{x}") for x in ("started", "stopped")
    )
    length_ms = ended["audio_end_ms"] - started["audio_start_ms"]
    audio = (await caller.retrieve(started["item_id"]))["content"][0]["audio"]
    assert len(audio) * 3 / 4 / 48 == pytest.approx(length_ms, abs=60)


@pytest.mark.asyncio
async def test_a_barge_in_silences_the_wire_and_truncates_at_the_listener(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        name = await playing(caller)
        start = len(caller.events)
        await caller.talk(speech(0.6))
        await caller.wait("output_audio_buffer.cleared", start)
        at_cut = len(caller.ear)
        response = await caller.ended(name)
        assert response["status_details"]["reason"] == "turn_detected"
        after = caller.types(start)
        assert contains(
            [
                "output_audio_buffer.cleared",
                "conversation.item.truncated",
                "response.done",
                "input_audio_buffer.speech_started",
            ],
            after,
        )
        await caller.wait("output_audio_buffer.started", start)
        sounding = [heard.loudness > 300 for heard in caller.ear[at_cut:]]
        quiet = sounding.index(False)
        assert quiet <= 10, "what was on its way when the fence fell may end, nothing more"
        (cut_ms,) = truncated_ms(caller)
        heard_ms = 20 * (sum(h.loudness > 300 for h in caller.ear[: at_cut + quiet]))
        assert abs(cut_ms - heard_ms) < 250
        assert server.metrics.value("frontier_cuts_total", source="estimate") == 1


@pytest.mark.asyncio
async def test_clear_stops_what_plays(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        name = await playing(caller)
        await caller.send({"type": "output_audio_buffer.clear"})
        cleared = await caller.wait("output_audio_buffer.cleared")
        assert cleared["response_id"] == name
        assert (await caller.ended(name))["status"] == "cancelled"


@pytest.mark.asyncio
async def test_reports_of_the_client_move_the_frontier(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server, PLAYBACK) as caller:
        name = await playing(caller)
        play = await caller.wait("playback.play")
        item = (await caller.wait("response.output_item.added"))["item"]["id"]
        asked = {"type": "playback.ack", "response_id": name, "item_id": item}
        for ms in (200, 400):
            timestamp = (play["rtp_timestamp"] + ms * 48) % 2**32
            await caller.send({**asked, "rtp_timestamp": timestamp, "output_latency_ms": 50})
        await caller.until(lambda: len(caller.of("playback.acknowledged")) == 2)
        got = [(e["accepted"], e["played_ms"]) for e in caller.of("playback.acknowledged")]
        assert [accepted for accepted, _ in got] == [True, True]
        assert got[0][1] >= 150
        assert got[1][1] >= 350
        at = len(caller.ear)
        await caller.until(lambda: len(caller.ear) > at + 2)
        await caller.send({"type": "response.cancel"})
        await caller.ended(name)
        assert server.metrics.value("frontier_cuts_total", source="client") == 1
        assert caller.of("playback.mute")


@pytest.mark.asyncio
async def test_a_pause_goes_on_where_it_was(serve: OpenServer):
    """`semantic_vad`: a short sound holds the wire, and nothing of the answer is missing afterwards."""
    async with (
        serve({"asr": {"text": "mhm"}}, **ONLY_LOOPBACK) as server,
        calling(server) as caller,
    ):
        await caller.detect({"type": "semantic_vad"})
        await playing(caller, "something long")
        at = len(caller.ear)
        await caller.talk(speech(0.35))
        await caller.until(lambda: len(caller.ear) >= at + 80)
        sounding = [heard.loudness > 300 for heard in caller.ear[at:]]
        assert not all(sounding), "the answer was not held"
        assert sounding[-1], "the answer did not go on"
        assert not caller.of("output_audio_buffer.cleared")


@pytest.mark.asyncio
async def test_hanging_up_over_http_ends_the_call(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        await playing(caller)
        assert await hang_up(server, caller.call_id) == 200
        await caller.closed()
        await until(lambda: len(server.registry) == 0)
        assert await hang_up(server, caller.call_id) == 404


async def hang_up(server: Server, call_id: str) -> int:
    assert server.address is not None
    url = f"{server.address.http}/v1/realtime/calls/{call_id}/hangup"
    async with aiohttp.ClientSession() as http, http.post(url) as answer:
        return answer.status


@pytest.mark.asyncio
async def test_a_client_that_closes_is_gone_at_once_and_leaves_nothing(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK, webrtc__silence_s=60) as server:
        tasks, threads = len(asyncio.all_tasks()), decoders()
        for _ in range(2):
            async with calling(server) as caller:
                await playing(caller, frames=5)
            await until(lambda: len(server.registry) == 0)
        assert server.calls is not None
        await until(lambda: not len(server.calls))
        await until(lambda: decoders() == threads)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)


@pytest.mark.asyncio
async def test_a_client_that_vanishes_is_noticed(serve: OpenServer):
    async with (
        serve(**ONLY_LOOPBACK, webrtc__silence_s=0.5) as server,
        calling(server, lawful=False) as caller,
    ):
        await playing(caller, frames=5)
        await vanish(caller)
        await until(lambda: len(server.registry) == 0)


@pytest.mark.asyncio
async def test_a_client_without_a_microphone_that_is_there_is_kept(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK, webrtc__silence_s=0.6) as server, calling(server) as caller:
        await caller.until(lambda: len(caller.ear) > 5)
        caller.peer.getSenders()[0].replaceTrack(None)
        at = len(caller.ear)
        await caller.until(lambda: len(caller.ear) > at + 90)
        assert len(server.registry) == 1
        await caller.fence()


@pytest.mark.asyncio
async def test_an_answer_that_nobody_uses_frees_its_slot(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK, webrtc__connect_s=1) as server:
        async with offering() as (_, offer):
            status, _, _ = await post_offer(server, offer)
        assert status == 201
        assert len(server.registry) == 1
        await until(lambda: len(server.registry) == 0)


@pytest.mark.asyncio
async def test_a_server_that_goes_down_says_so_and_closes(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server, calling(server) as caller:
        name = await playing(caller)
        for connection in server.registry.connections():
            connection.endpoint.shut_down()
        response = await caller.ended(name)
        assert response["status"] == "failed"
        await caller.closed()
