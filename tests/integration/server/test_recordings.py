"""Speech that comes inside an item: its words enter the prompt, its sound comes back unchanged."""

from __future__ import annotations

import base64

import pytest

from tests.integration.server.caller import Event, calling
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech

pytestmark = pytest.mark.integration


def recording(sound: bytes, name: str = "rec", **more: object) -> Event:
    part = {"type": "input_audio", "audio": base64.b64encode(sound).decode(), **more}
    item = {"type": "message", "role": "user", "id": name, "content": [part]}
    return {"type": "conversation.item.create", "event_id": "r", "item": item}


@pytest.mark.asyncio
async def test_words_of_a_recording_never_reach_the_prompt(serve: OpenServer) -> None:
    sound = speech(1.5)
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.send(recording(sound))
        await caller.send({"type": "response.create"})
        await caller.fence()
        (created,) = caller.of("response.created")
        ended = await caller.ended(created["response"]["id"])
        said = ended["output"][0]["content"][0]["transcript"]
        assert said.startswith("You said: ")
        assert not said.startswith("You said nothing")
        await caller.send({"type": "conversation.item.retrieve", "item_id": "rec"})
        await caller.fence()
        (item,) = [event["item"] for event in caller.of("conversation.item.retrieved")]
        assert base64.b64decode(item["content"][0]["audio"]) == sound
        assert item["content"][0]["transcript"]


@pytest.mark.asyncio
async def test_a_recording_without_words_in_the_input_of_a_response_is_silently_ignored(
    serve: OpenServer,
) -> None:
    item = recording(speech(0.5))["item"]
    hint = {"type": "input_text", "text": "Listen:"}
    asked = {"type": "response.create", "event_id": "q"}
    async with serve() as server, calling(server.address.ws) as caller:
        wordless = {**item, "content": [hint, *item["content"]]}
        (error,) = await caller.answers_to({**asked, "response": {"input": [wordless]}})
        assert error["error"]["code"] == "invalid_value"
        assert error["error"]["param"] == "response.input[0].content[1].audio"
        assert error["error"]["event_id"] == "q"
        spelled = recording(speech(0.5), transcript="blue parrots")["item"]
        await caller.send({**asked, "response": {"input": [spelled]}})
        created = await caller.wait("response.created")
        ended = await caller.ended(created["response"]["id"])
        assert "blue parrots" in ended["output"][0]["content"][0]["transcript"]


@pytest.mark.asyncio
async def test_most_of_a_spoken_history_is_lost(serve: OpenServer) -> None:
    """Twenty recordings in one burst: each of them gets its words."""
    names = [f"rec-{i}" for i in range(20)]
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.update({"audio": {"input": {"transcription": {"model": "any"}}}})
        for i, name in enumerate(names):
            await caller.send(recording(speech(0.4, seed=i + 1), name))
        await caller.fence()
        kind = "conversation.item.input_audio_transcription."
        await caller.until(
            lambda: len(caller.of(f"{kind}completed") + caller.of(f"{kind}failed")) == 20
        )
        assert not caller.of(f"{kind}failed")
        for name in names:
            assert (await caller.retrieve(name))["content"][0]["transcript"]


@pytest.mark.asyncio
async def test_every_part_of_an_item_gives_back_the_last_recording(serve: OpenServer) -> None:
    sounds = [speech(0.3 + i / 10, seed=i + 1) for i in range(3)]
    parts = [recording(s, transcript=str(i))["item"]["content"][0] for i, s in enumerate(sounds)]
    item = {**recording(b"", "three")["item"], "content": parts}
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.send({"type": "conversation.item.create", "item": item})
        content = (await caller.retrieve("three"))["content"]
        assert [base64.b64decode(part["audio"]) for part in content] == sounds
        assert [part["transcript"] for part in content] == ["0", "1", "2"]


@pytest.mark.asyncio
async def test_endless_recording_gets_an_error_and_no_item(serve: OpenServer) -> None:
    async with serve() as server, calling(server.address.ws) as caller:
        await caller.send(recording(bytes(61 * 48_000)))
        await caller.fence()
        (error, _fence) = caller.of("error")
        assert error["error"]["code"] == "invalid_value"
        assert error["error"]["param"] == "item.content[0].audio"
        assert not caller.of("conversation.item.added")
