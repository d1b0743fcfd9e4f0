"""Spoken conversations over a real WebSocket with real models: what is asked, said, interrupted and remembered."""

from __future__ import annotations

import json
import re

import pytest

from engines.base import JobKey, StepRequest, Transcript, UtteranceJob
from engines.registry import factory
from session_server.audio.formats import InputDecoder
from session_server.client.sound import Synthesiser
from session_server.http.server import Server, model_store
from session_server.types.audio import AudioFormat
from tests.integration.server.caller import RATE, Caller, calling, silence

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.models,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="session"),
]

SERVER_VAD = {"type": "server_vad", "silence_duration_ms": 320}
SEMANTIC_VAD = {"type": "semantic_vad"}
STORY = "Tell me a long story about a cat."


def words(text: str) -> list[str]:
    return re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()


def recognise(server: Server, pcm: bytes) -> list[str]:
    """The words of speech at 24 kHz, by an ASR engine of the test's own."""
    engine = factory("cpu.moonshine")({}, model_store(server.config))
    engine.load()
    decoder = InputDecoder(AudioFormat.PCM)
    heard = decoder.push(pcm).tobytes() + decoder.flush().tobytes()
    engine.start(JobKey("test", "w"), UtteranceJob(heard))
    (result,) = engine.step([StepRequest(JobKey("test", "w"), 1)])
    engine.close()
    assert isinstance(result.output, Transcript)
    return words(result.output.text)


async def configure(caller: Caller, detection: dict[str, object]) -> None:
    listening = {"turn_detection": detection, "transcription": {"model": "whisper-1"}}
    await caller.update({"audio": {"input": listening}})


async def answer_to(caller: Caller, speech: bytes, start: int) -> tuple[dict, str]:
    """Speak, wait for the whole answer: (response, transcript of the question)."""
    await caller.speak(silence(0.2), speech, silence(1.6))
    created = await caller.wait("response.created", start)
    response = await caller.ended(created["response"]["id"])
    heard = await caller.wait("conversation.item.input_audio_transcription.completed", start)
    return response, heard["transcript"]


@pytest.mark.parametrize("detection", [SERVER_VAD, SEMANTIC_VAD], ids=["server", "semantic"])
async def test_spoken_question_gets_a_wrong_or_unintelligible_answer(
    server: Server, synthesiser: Synthesiser, detection: dict[str, object]
) -> None:
    async with calling(server.address.ws) as caller:
        await configure(caller, detection)
        question = synthesiser.say("What is the capital of France?")
        response, heard = await answer_to(caller, question, 0)
        assert response["status"] == "completed"
        assert "capital" in heard.lower()
        said = response["output"][0]["content"][0]["transcript"]
        assert "Paris" in said
        spoken = recognise(server, caller.pcm(response["id"]))
        wrong = sum(word not in spoken for word in words(said))
        assert wrong <= max(1, len(words(said)) // 10), (said, spoken)
        caller.assert_lawful()


async def test_words_that_were_never_heard_are_remembered(
    server: Server, synthesiser: Synthesiser
) -> None:
    """Barge-in on a long answer: its item keeps a prefix of what was said, about as long as what was heard."""
    async with calling(server.address.ws) as caller:
        await configure(caller, SERVER_VAD)
        name = await caller.ask(STORY)
        await caller.hear(name, 3.0)
        start = len(caller.events)
        await caller.speak(synthesiser.say("What is the capital of Italy?"), silence(1.6))
        cut = await caller.ended(name)
        assert (cut["status"], cut["status_details"]["reason"]) == ("cancelled", "turn_detected")
        item = cut["output"][0]["id"]
        said = "".join(
            event["delta"]
            for event in caller.of("response.output_audio_transcript.delta")
            if event["item_id"] == item
        )
        kept = (await caller.retrieve(item))["content"][0]["transcript"]
        assert said.startswith(kept)
        heard = recognise(server, caller.pcm(name))
        assert 4 <= len(words(kept)) <= len(heard) + 1
        assert len(words(kept)) < len(words(said))
        created = await caller.wait("response.created", start)
        after = await caller.ended(created["response"]["id"])
        assert "Rome" in after["output"][0]["content"][0]["transcript"]


async def test_short_noise_ends_an_answer_for_good(
    server: Server, synthesiser: Synthesiser
) -> None:
    """semantic_vad: a word of assent ducks at most; the answer goes on to its end."""
    async with calling(server.address.ws) as caller:
        await configure(caller, SEMANTIC_VAD)
        name = await caller.ask(STORY)
        await caller.hear(name, 2.0)
        await caller.speak(synthesiser.say("Okay."), silence(2.5))
        assert not caller.of("input_audio_buffer.speech_started")
        await caller.hear(name, 6.0)
        assert len(caller.pcm(name)) >= 2 * 6 * RATE
        await caller.send({"type": "response.cancel"})
        assert (await caller.ended(name))["status"] == "cancelled"


async def test_forced_call_has_invalid_arguments(server: Server) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "name": "get_weather", "parameters": schema}
    async with calling(server.address.ws) as caller:
        await caller.update({"tools": [tool], "audio": {"input": {"turn_detection": None}}})
        name = await caller.ask("What is the weather in Paris?", tool_choice="required")
        response = await caller.ended(name)
        (call,) = response["output"]
        assert (call["type"], call["name"]) == ("function_call", "get_weather")
        arguments = json.loads(call["arguments"])
        assert set(arguments) == {"city", "unit"}
        assert arguments["unit"] in ("celsius", "fahrenheit")
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await caller.send({"type": "conversation.item.create", "item": output})
        created = await caller.ask("Tell me.", tool_choice="none")
        assert (await caller.ended(created))["status"] == "completed"
