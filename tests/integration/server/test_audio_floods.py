"""Audio that no microphone sends: hours of silence, ten times real time, more than can be heard."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed

from engines.sim.wave import verify
from session_server.audio.formats import Int16
from session_server.audio.vad_webrtc import WebRtcVad
from tests.integration.server.bystander import assert_answers, bystander, calling_beside
from tests.integration.server.caller import append, calling, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.inside import input_held_s, task_of
from tests.integration.server.sounds import speech
from tests.until import until

pytestmark = pytest.mark.integration

PCMU_SILENCE = b"\xff"
SECOND = 48_000


async def stay_silent(serve: OpenServer, minutes: int) -> None:
    minute = json.dumps(append(PCMU_SILENCE * 8000 * 60))
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.update({"audio": {"input": {"format": {"type": "audio/pcmu"}}}})
        for _ in range(minutes):
            await caller.send(minute)
            await caller.fence()
            assert input_held_s(task_of(server, caller)) <= 10.2
        assert caller.of("input_audio_buffer.speech_started") == []
        await caller.update({"audio": {"input": {"format": {"type": "audio/pcm"}}}})
        start = len(caller.events)
        await caller.append(speech(0.6) + silence(0.7))
        started = await caller.wait("input_audio_buffer.speech_started", start)
        assert -400 <= started["audio_start_ms"] - minutes * 60_000 <= 100
        response = await caller.wait("response.done", start)
        assert response["response"]["status"] == "completed"


@pytest.mark.asyncio
async def test_minutes_of_silence_keep_ten_seconds_and_the_next_turn_is_heard(serve: OpenServer):
    """Fed as fast as it is taken. The time line goes on counting: the turn after it begins at its end."""
    await stay_silent(serve, 5)


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.asyncio
@pytest.mark.skipif(
    "SESSION_SERVER_SOAK" not in os.environ, reason="SESSION_SERVER_SOAK is not set"
)
async def test_an_hour_of_silence(serve: OpenServer):
    await stay_silent(serve, 60)


@pytest.mark.asyncio
async def test_silence_as_fast_as_it_is_taken_disturbs_nobody(serve: OpenServer):
    frame = json.dumps(append(silence(10)))
    async with calling_beside(serve) as (_, caller):
        for _ in range(12):
            await caller.send(frame)
        await caller.fence()
        assert len(caller.of("error")) == 1
        await assert_answers(caller, "Still there")


@pytest.mark.asyncio
async def test_turns_at_ten_times_real_time_are_taken_one_by_one(serve: OpenServer):
    """Turns are decided in the audio's own time, so a flood of them is only a fast conversation."""
    turns = 12
    pcm = b"".join(speech(0.6, seed) + silence(0.7) for seed in range(1, turns + 1))
    async with calling_beside(serve) as (server, caller):
        loop, size = asyncio.get_running_loop(), SECOND // 50
        begun = loop.time()
        for number, at in enumerate(range(0, len(pcm), size)):
            await asyncio.sleep(max(0.0, begun + number * 0.002 - loop.time()))
            await caller.append(pcm[at : at + size])
            if number % 50 == 0:
                assert input_held_s(task_of(server, caller)) <= 12
        await caller.fence()
        commits = caller.of("input_audio_buffer.committed")
        assert turns - 2 <= len(commits) <= turns
        await caller.until(lambda: not caller.check.open_ends())
        responses = [event["response"]["id"] for event in caller.of("response.created")]
        assert len(responses) == len(commits)
        for name in responses:
            assert verify(caller.pcm(name), name).intact
        assert verify(caller.pcm(responses[-1]), responses[-1]).complete


@pytest.mark.asyncio
async def test_more_audio_than_can_be_heard_closes_with_1008(
    serve: OpenServer, monkeypatch: pytest.MonkeyPatch
):
    """The detector takes a millisecond for a frame: a fast processor would hear it all."""
    heard = WebRtcVad.probability

    def slow(self: WebRtcVad, frame: Int16) -> float:
        time.sleep(0.001)
        return heard(self, frame)

    monkeypatch.setattr(WebRtcVad, "probability", slow)
    frame = json.dumps(append(silence(16)))
    async with serve() as server, bystander(server.address.ws):
        async with calling(server.address.ws) as caller:
            with suppress(ConnectionClosed):
                for _ in range(300):
                    await caller.send(frame)
            assert (await caller.closed())[0] == 1008
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
async def test_a_detector_that_breaks_ends_only_its_own_session(
    serve: OpenServer, monkeypatch: pytest.MonkeyPatch
):
    """A fault of ours in hearing is told, and closes with 1011; it does not leave a session that is deaf."""
    heard = WebRtcVad.probability

    def broken(self: WebRtcVad, frame: Int16) -> float:
        if frame.max() > 30_000:
            raise FloatingPointError("the detector broke")
        return heard(self, frame)

    monkeypatch.setattr(WebRtcVad, "probability", broken)
    async with (
        serve(expect="input audio could not be heard") as server,
        bystander(server.address.ws),
    ):
        async with calling(server.address.ws) as caller:
            await caller.append(silence(30) + b"\xff\x7f" * 2400 + silence(1))
            assert (await caller.closed())[0] == 1011
            assert caller.events[-1]["error"]["code"] == "server_error"
        await until(lambda: len(server.registry) == 1)
