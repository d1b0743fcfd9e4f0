"""Spoken conversation over the wire, on simulated engines: turns, barge-in by both rules, backchannels, protection.

The simulated recogniser gives one word for each tenth of a second that is loud, or a text of the test's choice; the speech
is syllables that the light detector takes for a voice. Speech over an answer is sent in real time.
"""

from __future__ import annotations

import asyncio
import base64

import pytest

from engines.sim.wave import verify
from tests.integration.server.caller import RATE, Caller, Event, calling, contains, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech

pytestmark = pytest.mark.integration

TURN = (
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "conversation.item.done",
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
)
SEMANTIC: Event = {"type": "semantic_vad"}
SERVER: Event = {"type": "server_vad", "silence_duration_ms": 320}
SENTENCE = "This goes on and on. "
CHARS_PER_S = 80
TRANSCRIBE: Event = {"audio": {"input": {"transcription": {"model": "any"}}}}


def transcript(response: Event) -> str:
    return str(response["output"][0]["content"][0]["transcript"])


async def talk(caller: Caller, seconds: float, **response: object) -> str:
    """Get an answer that lasts about so long; returns as soon as it sounds."""
    name = await caller.ask(SENTENCE * round(seconds * CHARS_PER_S / len(SENTENCE)), **response)
    await caller.hear(name, 0.2)
    return name


async def answer_after(caller: Caller, start: int) -> Event:
    """The next response that was created from event `start` on, when it has ended."""
    created = await caller.wait("response.created", start)
    return await caller.ended(created["response"]["id"])


# -- turns


@pytest.mark.asyncio
@pytest.mark.parametrize("speculate", [True, False], ids=["drafted", "not drafted"])
@pytest.mark.parametrize("detection", [SERVER, SEMANTIC], ids=["server_vad", "semantic_vad"])
async def test_a_spoken_turn_is_answered_in_the_order_of_the_protocol(
    serve: OpenServer, detection: Event, speculate: bool
):
    async with (
        serve(core__speculate=speculate) as server,
        calling(server.address.ws) as caller,
    ):
        await caller.update(TRANSCRIBE)
        await caller.detect(detection)
        await caller.append(speech(0.6))
        await caller.speak(silence(0.8))
        response = await answer_after(caller, 0)
        assert contains(TURN, caller.types())
        words = await caller.wait("conversation.item.input_audio_transcription.completed")
        assert words["transcript"].startswith("one two three")
        assert words["item_id"] == caller.of("input_audio_buffer.speech_started")[0]["item_id"]
        assert transcript(response).startswith(f"You said: {words['transcript']}.")
        assert verify(caller.pcm(response["id"]), response["id"]).complete
        assert len(caller.of("response.created")) == 1
        caller.assert_lawful()


@pytest.mark.asyncio
async def test_a_pause_inside_a_turn_does_not_end_it_and_nothing_of_the_draft_is_heard(
    serve: OpenServer,
):
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.append(speech(0.5))
        await caller.speak(silence(0.35), speech(0.3, 2))
        await caller.append(silence(0.7))
        response = await answer_after(caller, 0)
        assert len(caller.of("input_audio_buffer.committed")) == 1
        assert len(caller.of("response.created")) == 1
        assert response["status"] == "completed"
        assert verify(caller.pcm(response["id"]), response["id"]).complete


@pytest.mark.asyncio
async def test_the_item_holds_the_audio_from_before_its_first_sample(serve: OpenServer):
    """What was spoken is in the turn from the padding on, bit for bit."""
    pcm = silence(1.0) + speech(0.6) + silence(0.7)
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.append(pcm)
        await caller.wait("response.done")
        started = caller.of("input_audio_buffer.speech_started")[0]
        stopped = caller.of("input_audio_buffer.speech_stopped")[0]
        assert 650 <= started["audio_start_ms"] <= 950
        item = await caller.retrieve(started["item_id"])
        kept = base64.b64decode(item["content"][0]["audio"])
        at = pcm.find(kept, started["audio_start_ms"] * RATE // 1000 * 2 - 100)
        assert at >= 0
        assert abs(at / 2 / RATE * 1000 - started["audio_start_ms"]) <= 1
        assert abs((at + len(kept)) / 2 / RATE * 1000 - stopped["audio_end_ms"]) <= 1


@pytest.mark.asyncio
async def test_manual_turns_are_the_clients(serve: OpenServer):
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.update(TRANSCRIBE)
        await caller.detect(None)
        await caller.append(speech(0.6) + silence(1.0))
        assert "input_audio_buffer.speech_started" not in caller.types()
        await caller.commit()
        assert caller.of("response.created") == []
        await caller.send({"type": "response.create"})
        response = await answer_after(caller, 0)
        assert transcript(response).startswith("You said: one two")
        assert verify(caller.pcm(response["id"]), response["id"]).complete


@pytest.mark.asyncio
async def test_create_response_false_only_commits(serve: OpenServer):
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.detect({**SERVER, "create_response": False})
        await caller.append(speech(0.6) + silence(0.7))
        await caller.wait("conversation.item.done")
        await caller.fence()
        assert caller.of("response.created") == []
        await caller.send({"type": "response.create"})
        assert transcript(await answer_after(caller, 0)).startswith("You said: one two")


@pytest.mark.asyncio
async def test_a_clear_in_mid_speech_drops_the_turn(serve: OpenServer):
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.append(speech(0.5))
        await caller.wait("input_audio_buffer.speech_started")
        await caller.send({"type": "input_audio_buffer.clear"})
        await caller.append(silence(1.5))
        await caller.fence()
        assert "input_audio_buffer.cleared" in caller.types()
        assert "input_audio_buffer.committed" not in caller.types()
        start = len(caller.events)
        await caller.append(speech(0.5, 3) + silence(0.7))
        assert (await answer_after(caller, start))["status"] == "completed"


@pytest.mark.asyncio
async def test_a_microphone_that_stops_in_mid_speech_ends_the_turn(serve: OpenServer):
    async with (
        serve(core__input_gap_ms=300) as server,
        calling(server.address.ws) as caller,
    ):
        await caller.append(speech(0.6))
        assert (await answer_after(caller, 0))["status"] == "completed"
        assert contains(TURN, caller.types())


@pytest.mark.asyncio
async def test_a_transcription_session_hears_and_never_answers(serve: OpenServer):
    async with serve() as server:
        url = f"{server.address.ws}?intent=transcription"
        async with calling(url) as caller:
            assert caller.events[0]["session"]["type"] == "transcription"
            await caller.append(speech(0.6) + silence(0.8))
            await caller.wait("conversation.item.input_audio_transcription.completed")
            await caller.fence()
            assert caller.of("response.created") == []


# -- barge-in


async def assert_barged_in(caller: Caller, name: str, start: int) -> None:
    """The answer was stopped by the speech: cut where it was, and nothing of it came later."""
    response = await caller.ended(name)
    assert response["status"] == "cancelled"
    assert response["status_details"]["reason"] == "turn_detected"
    report = verify(caller.pcm(name), name)
    assert report.intact
    had = report.samples
    following = await answer_after(caller, start)
    assert following["status"] == "completed"
    assert verify(caller.pcm(following["id"]), following["id"]).complete
    assert len(caller.pcm(name)) // 2 == had
    kinds = [
        e["type"]
        for e in caller.events[start:]
        if e.get("response_id") == name or e["type"] == "input_audio_buffer.speech_started"
    ]
    assert "response.output_audio.delta" not in kinds[kinds.index("response.output_audio.done") :]


@pytest.mark.asyncio
@pytest.mark.parametrize("detection", [SERVER, SEMANTIC], ids=["server_vad", "semantic_vad"])
async def test_speech_stops_the_answer_and_is_the_next_turn(serve: OpenServer, detection: Event):
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.detect(detection)
        name = await talk(caller, 20)
        start = len(caller.events)
        await caller.speak(speech(0.7), silence(0.8))
        await assert_barged_in(caller, name, start)
        caller.assert_lawful()


@pytest.mark.asyncio
async def test_what_is_remembered_is_what_was_heard(serve: OpenServer):
    """Of an answer that was cut after about a second, only words of that second are kept."""
    async with serve() as server, calling(server.address.ws) as caller:
        name = await talk(caller, 20)
        item_id = caller.of("response.output_item.added")[-1]["item"]["id"]
        start = len(caller.events)
        await caller.speak(silence(0.4), speech(0.5))
        await caller.append(silence(0.6))
        await assert_barged_in(caller, name, start)
        item = await caller.retrieve(item_id)
        assert item["status"] == "incomplete"
        kept = item["content"][0]["transcript"]
        said = caller.of("response.output_audio_transcript.done")[0]["transcript"]
        all_text = "You said: " + SENTENCE * 10
        assert kept
        assert all_text.startswith(kept[:60])
        assert said.startswith(kept), "the done text is the sum of its deltas, the item holds less"
        sent_s = len(caller.pcm(name)) / 2 / RATE
        assert len(kept) <= sent_s * 80 + 10
        assert len(kept) < 80 * 1.9, "it holds what was only sent ahead"


@pytest.mark.asyncio
@pytest.mark.parametrize("word", ["mhm", "yeah okay"])
async def test_a_backchannel_does_not_stop_the_answer(serve: OpenServer, word: str):
    async with (
        serve({"asr": {"text": word}}) as server,
        calling(server.address.ws) as caller,
    ):
        await caller.detect(SEMANTIC)
        name = await talk(caller, 2.2)
        start = len(caller.events)
        await caller.speak(speech(0.45), silence(0.8))
        response = await caller.ended(name)
        assert response["status"] == "completed"
        assert verify(caller.pcm(name), name).complete
        kinds = set(caller.types(start))
        assert "input_audio_buffer.speech_started" not in kinds
        assert "response.created" not in kinds
        caller.assert_lawful()


@pytest.mark.asyncio
async def test_a_cough_does_not_stop_the_answer_and_loses_nothing(serve: OpenServer):
    """Voice without words: the answer pauses, and goes on where it was."""
    async with (
        serve({"asr": {"loud": 2.0}}) as server,
        calling(server.address.ws) as caller,
    ):
        await caller.detect(SEMANTIC)
        name = await talk(caller, 2)
        await caller.speak(speech(0.35), silence(0.8))
        assert (await caller.ended(name))["status"] == "completed"
        assert verify(caller.pcm(name), name).complete
        assert caller.of("input_audio_buffer.speech_started") == []


@pytest.mark.asyncio
async def test_bursts_of_noise_do_not_starve_the_answer(serve: OpenServer):
    async with serve({"asr": {"loud": 2.0}}) as server, calling(server.address.ws) as caller:
        await caller.detect(SEMANTIC)
        name = await talk(caller, 2.4)
        await caller.speak(*(speech(0.3, seed) + silence(0.45) for seed in range(3)))
        assert (await caller.ended(name))["status"] == "completed"
        assert verify(caller.pcm(name), name).complete
        caller.assert_lawful()


@pytest.mark.asyncio
async def test_interrupt_response_false_lets_the_answer_end_and_queues_one(serve: OpenServer):
    async with (
        serve() as server,
        calling(server.address.ws) as caller,
    ):
        await caller.detect({**SERVER, "interrupt_response": False})
        name = await talk(caller, 3)
        start = len(caller.events)
        await caller.speak(speech(0.35), silence(0.5), speech(0.35, 2), silence(0.5))
        assert len(caller.of("input_audio_buffer.committed", start)) == 2
        assert caller.of("response.created", start) == [], "the first one still runs"
        assert (await caller.ended(name))["status"] == "completed"
        assert verify(caller.pcm(name), name).complete
        following = await answer_after(caller, start)
        assert verify(caller.pcm(following["id"]), following["id"]).complete
        await caller.fence()
        assert len(caller.of("response.created", start)) == 1
        caller.assert_lawful()


@pytest.mark.asyncio
async def test_speech_over_a_protected_answer_is_kept_and_answered_later(serve: OpenServer):
    async with (
        serve() as server,
        calling(server.address.ws) as caller,
    ):
        name = await talk(caller, 2, metadata={"interruptible": "false"})
        start = len(caller.events)
        await caller.speak(speech(0.5), silence(0.8))
        assert (await caller.ended(name))["status"] == "completed"
        assert verify(caller.pcm(name), name).complete
        speaking = asyncio.ensure_future(caller.speak(silence(3)))
        following = await answer_after(caller, start)
        assert transcript(following).startswith("You said: one two")
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)


@pytest.mark.asyncio
async def test_typed_text_does_not_stop_speech(serve: OpenServer):
    async with (
        serve() as server,
        calling(server.address.ws) as caller,
    ):
        name = await talk(caller, 1.5)
        await caller.say("by the way")
        assert (await caller.ended(name))["status"] == "completed"
        assert verify(caller.pcm(name), name).complete


@pytest.mark.asyncio
async def test_a_tool_call_survives_a_barge_in(serve: OpenServer):
    """The call stays in the conversation, its late output is taken, and the answer quotes it."""
    tool = {
        "type": "function",
        "name": "weather",
        "description": "The weather.",
        "parameters": {"type": "object", "properties": {}},
    }
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.update({"tools": [tool]})
        response = await caller.ended(await caller.ask("What is the weather"))
        (call,) = response["output"]
        assert (call["type"], call["name"]) == ("function_call", "weather")
        name = await talk(caller, 20)
        start = len(caller.events)
        await caller.speak(speech(0.5))
        await caller.append(silence(0.6))
        await assert_barged_in(caller, name, start)
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        start = len(caller.events)
        await caller.send({"type": "conversation.item.create", "item": output})
        await caller.send({"type": "response.create"})
        assert transcript(await answer_after(caller, start)) == "The tool weather says sunny."


# -- the playback extension


@pytest.mark.asyncio
async def test_a_change_of_format_in_mid_answer_corrupts_acknowledgements(serve: OpenServer):
    """The answer goes on at 24 kHz, and that is how the client counts."""
    async with (
        serve() as server,
        calling(f"{server.address.ws}?extensions=playback") as caller,
    ):
        name = await caller.begin_long_answer(0.7)
        await caller.update({"audio": {"output": {"format": {"type": "audio/pcmu"}}}})
        item_id = caller.of("response.output_item.added")[-1]["item"]["id"]
        ack = {"type": "playback.ack", "response_id": name, "item_id": item_id}
        await caller.send({**ack, "played_samples": 6_000, "buffered_ms": 0})
        told = await caller.wait("playback.acknowledged")
        assert (told["accepted"], told["reason"]) == (True, None)
        assert (told["played_samples"], told["played_ms"]) == (6_000, 250)
        assert told["sent_samples"] >= 6_000
        await caller.send({"type": "response.cancel"})
        await caller.ended(name)


@pytest.mark.asyncio
async def test_with_acknowledgements_the_cut_is_where_the_listener_was(serve: OpenServer):
    async with (
        serve() as server,
        calling(f"{server.address.ws}?extensions=playback") as caller,
    ):
        name = await talk(caller, 20)
        item_id = caller.of("response.output_item.added")[-1]["item"]["id"]
        ack = {"type": "playback.ack", "response_id": name, "item_id": item_id}
        await caller.send({**ack, "played_ms": 0, "buffered_ms": 300})
        await caller.send({**ack, "played_ms": 250, "buffered_ms": 0})
        await caller.send({**ack, "played_ms": 100})
        answers = await caller.fence()
        told = [a for a in answers if a["type"] == "playback.acknowledged"]
        assert [a["accepted"] for a in told] == [True, True, False]
        assert told[-1]["reason"] == "stale"
        start = len(caller.events)
        await caller.speak(speech(0.5))
        await caller.append(silence(0.6))
        await caller.ended(name)
        kinds = caller.types(start)
        assert contains(
            ["output_audio_buffer.cleared", "conversation.item.truncated", "response.done"],
            kinds,
        )
        cut = caller.of("conversation.item.truncated", start)[0]
        assert cut["audio_end_ms"] == 250
        following = await answer_after(caller, start)
        await caller.send({**ack, "played_ms": 400, "final": True})
        assert following["status"] == "completed"
        assert verify(caller.pcm(following["id"]), following["id"]).complete
