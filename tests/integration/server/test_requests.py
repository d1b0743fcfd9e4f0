"""What clients ask for, over the wire: one answer each, races that hurt nothing, and no frame too big."""

from __future__ import annotations

import asyncio
import json
import random
from itertools import pairwise
from typing import Any

import pytest

from engines.sim.wave import verify
from tests.integration.server.bystander import assert_answers, calling_beside
from tests.integration.server.caller import Event, append, calling, silence
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech

pytestmark = pytest.mark.integration

CREATE: Event = {"type": "response.create"}
CANCEL: Event = {"type": "response.cancel"}
COMMIT: Event = {"type": "input_audio_buffer.commit"}


def codes(events: list[Event]) -> list[str]:
    return [event["error"]["code"] for event in events if event["type"] == "error"]


def kinds(events: list[Event]) -> list[str]:
    return [event["type"] for event in events if event["type"] != "rate_limits.updated"]


# -- two at once


@pytest.mark.asyncio
async def test_two_response_creates_at_once_give_one_answer_and_one_error(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        await caller.say("hello")
        await asyncio.gather(caller.send(CREATE), caller.send({**CREATE, "event_id": "second"}))
        await caller.fence()
        (created,) = caller.of("response.created")
        (error, _fence) = caller.of("error")
        assert error["error"]["code"] == "conversation_already_has_active_response"
        assert error["error"]["event_id"] == "second"
        name = created["response"]["id"]
        assert name in error["error"]["message"]
        assert (await caller.ended(name))["status"] == "completed"
        assert verify(caller.pcm(name), name).complete
        await assert_answers(caller, "And now it is free")


@pytest.mark.asyncio
async def test_out_of_band_answers_run_beside_the_running_one(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        name = await caller.ask("something long")
        short = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "hi"}],
        }
        aside = {"conversation": "none", "input": [short], "metadata": {"topic": "aside"}}
        for _ in range(3):
            await caller.send({**CREATE, "response": aside})
        await caller.until(lambda: len(caller.of("response.created")) == 4)
        others = [e["response"]["id"] for e in caller.of("response.created")][1:]
        for other in others:
            response = await caller.ended(other)
            assert response["metadata"] == {"topic": "aside"}
            assert response["conversation_id"] is None
        await caller.hear(name, 0.1)
        await caller.send(CANCEL)
        assert (await caller.ended(name))["status"] == "cancelled"
        assert verify(caller.pcm(name), name).intact


@pytest.mark.asyncio
async def test_more_out_of_band_answers_than_allowed_fail_and_say_why(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        await caller.say("something long")
        for _ in range(12):
            await caller.send({**CREATE, "response": {"conversation": "none"}})
        await caller.until(lambda: len(caller.of("response.created")) == 12)
        failed = [
            event["response"]
            for event in caller.of("response.done")
            if event["response"]["status"] == "failed"
        ]
        assert len(failed) == 4
        for response in failed:
            error = response["status_details"]["error"]
            assert error["code"] == "inference_rate_limit_exceeded"
        for event in caller.of("response.created"):
            await caller.send({**CANCEL, "response_id": event["response"]["id"]})
        await caller.until(lambda: len(caller.of("response.done")) == 12)


# -- cancels


@pytest.mark.asyncio
async def test_a_cancel_races_with_the_end_and_nothing_else_changes(serve: OpenServer):
    """A cancel just before, at and after the last event: one end each, and at most one error."""
    async with calling_beside(serve) as (_, caller):
        outcomes = []
        for delay_s in (0.0, 0.005, 0.02, 0.05, 0.1, 0.3):
            start = len(caller.events)
            await caller.say("hi")
            await caller.send(CREATE)
            await asyncio.sleep(delay_s)
            await caller.send({**CANCEL, "event_id": f"cancel {delay_s}"})
            await caller.fence()
            created = (await caller.wait("response.created", start))["response"]["id"]
            status = (await caller.ended(created))["status"]
            refused = codes(caller.events[start:])[:-1]
            assert (status, refused) in (
                ("cancelled", []),
                ("completed", ["response_cancel_not_active"]),
            )
            assert verify(caller.pcm(created), created).intact
            outcomes.append(status)
        assert outcomes[0] == "cancelled"
        await assert_answers(caller, "Still there")


@pytest.mark.asyncio
async def test_a_cancel_right_behind_the_end_is_one_error(serve: OpenServer):
    async with serve() as server, calling(server.address.ws) as caller:
        name = await caller.ask("hello")
        await caller.ended(name)
        for wrong in ({}, {"response_id": name}, {"response_id": "resp_x"}):
            answer = await caller.answers_to({**CANCEL, **wrong, "event_id": "mine"})
            assert codes(answer) == ["response_cancel_not_active"]
            assert answer[0]["error"]["event_id"] == "mine"
        item = (await caller.ended(name))["output"][0]
        assert (await caller.retrieve(item["id"]))["status"] == "completed"


@pytest.mark.asyncio
async def test_no_audio_comes_after_a_cancel(serve: OpenServer):
    """The fence: whatever was on its way when the cancel was taken stays away."""
    async with calling_beside(serve) as (_, caller):
        for heard_s in (0.05, 1.05):
            name = await caller.begin_long_answer(heard_s)
            await caller.send(CANCEL)
            await caller.ended(name)
            had = len(caller.pcm(name))
            await assert_answers(caller, "Next")
            assert len(caller.pcm(name)) == had
            assert verify(caller.pcm(name), name).intact


# -- the session


@pytest.mark.asyncio
async def test_an_update_of_one_field_keeps_all_others(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        before = await caller.update({"audio": {"input": {"transcription": {"model": "m"}}}})
        after = await caller.update({"audio": {"input": {"turn_detection": {"threshold": 0.7}}}})
        expected = json.loads(json.dumps(before))
        expected["audio"]["input"]["turn_detection"]["threshold"] = 0.7
        assert after == expected
        assert await caller.update({}) == expected
        echoed = {k: v for k, v in after.items() if v is not None}
        assert await caller.update(echoed) == expected
        off = await caller.update({"audio": {"input": {"turn_detection": None}}})
        assert off["audio"]["input"]["turn_detection"] is None
        assert off["audio"]["input"]["transcription"] == before["audio"]["input"]["transcription"]


@pytest.mark.asyncio
async def test_a_bad_update_changes_nothing_even_while_an_answer_runs(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        before = await caller.update({"instructions": "Be kind."})
        name = await caller.begin_long_answer(0.1)
        bad = {"type": "realtime", "instructions": "Be rude.", "audio": {"output": {"speed": 9}}}
        answer = await caller.answers_to({"type": "session.update", "session": bad})
        assert codes(answer) == ["invalid_value"]
        other = {"type": "realtime", "audio": {"output": {"voice": "nobody"}}}
        answer = await caller.answers_to({"type": "session.update", "session": other})
        assert codes(answer) == ["invalid_value"]
        assert await caller.update({}) == before
        await caller.hear(name, 0.2)
        assert verify(caller.pcm(name), name).intact


# -- commits


@pytest.mark.asyncio
async def test_a_commit_below_100_ms_is_an_error_and_keeps_the_buffer(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        await caller.detect(None)
        for ms, more in ((0, 0), (20, 20), (60, 40), (99, 39)):
            await caller.append(silence(more / 1000))
            answer = await caller.answers_to({**COMMIT, "event_id": f"at {ms}"})
            assert codes(answer) == ["input_audio_buffer_commit_empty"]
            assert answer[0]["error"]["event_id"] == f"at {ms}"
        await caller.append(silence(0.001))
        item = await caller.retrieve(await caller.commit())
        assert item["content"][0]["type"] == "input_audio"
        answer = await caller.answers_to(COMMIT)
        assert codes(answer) == ["input_audio_buffer_commit_empty"]


# -- each event, one answer


@pytest.mark.asyncio
async def test_every_client_event_gets_exactly_one_answer(serve: OpenServer):
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    item = {"type": "conversation.item.create", "item": {**message, "id": "mine"}}
    truncate = {"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 0}
    async with calling_beside(serve) as (_, caller):
        await caller.detect(None)
        name = await caller.ask("hello")
        spoken = (await caller.ended(name))["output"][0]["id"]
        update = {"type": "session.update", "session": {"type": "realtime"}}
        added = ["conversation.item.added", "conversation.item.done"]
        matrix: list[tuple[Event, list[str]]] = [
            (update, ["session.updated"]),
            (append(silence(0.2)), []),
            (append(b""), []),
            (COMMIT, ["input_audio_buffer.committed", *added]),
            (COMMIT, ["error"]),
            ({"type": "input_audio_buffer.clear"}, ["input_audio_buffer.cleared"]),
            ({"type": "input_audio_buffer.clear"}, ["input_audio_buffer.cleared"]),
            ({"type": "output_audio_buffer.clear"}, ["error"]),
            (item, added),
            (item, ["error"]),
            ({**item, "item": message}, added),
            ({**item, "item": {**message, "id": "first"}, "previous_item_id": "root"}, added),
            ({**item, "item": {**message, "id": "lost"}, "previous_item_id": "nobody"}, ["error"]),
            (
                {"type": "conversation.item.retrieve", "item_id": "mine"},
                ["conversation.item.retrieved"],
            ),
            ({"type": "conversation.item.retrieve", "item_id": "nobody"}, ["error"]),
            ({**truncate, "item_id": spoken}, ["conversation.item.truncated"]),
            ({**truncate, "item_id": spoken}, ["conversation.item.truncated"]),
            ({**truncate, "item_id": "mine"}, ["error"]),
            ({**truncate, "item_id": "nobody"}, ["error"]),
            (
                {"type": "conversation.item.delete", "item_id": "mine"},
                ["conversation.item.deleted"],
            ),
            ({"type": "conversation.item.delete", "item_id": "mine"}, ["error"]),
            (CANCEL, ["error"]),
            ({"type": "playback.ack"}, ["error"]),
        ]
        for number, (event, expected) in enumerate(matrix):
            answer = await caller.answers_to({**event, "event_id": f"mine {number}"})
            assert kinds(answer) == expected, event
            for error in (e for e in answer if e["type"] == "error"):
                assert error["error"]["event_id"] == f"mine {number}"


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", [1, 3])
async def test_any_jumble_of_events_keeps_the_stream_lawful(serve: OpenServer, seed: int):
    """Two hundred events without waiting for an answer, among them speech, cuts and nonsense."""
    rng = random.Random(seed)
    voice, quiet = append(speech(0.3)), append(silence(0.3))
    async with calling_beside(serve, core__max_items=12) as (_, caller):
        for _ in range(200):
            known = [e["item"]["id"] for e in caller.of("conversation.item.added")[-6:]] or ["x"]
            responses = [e["response"]["id"] for e in caller.of("response.created")[-3:]] or ["x"]
            await caller.send(one_of(rng, voice, quiet, rng.choice(known), rng.choice(responses)))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.choice([0.0, 0.001, 0.02]))
        await caller.detect(None)
        while len(caller.of("response.done")) < len(caller.of("response.created")):
            await caller.answers_to(CANCEL)  # each may let a queued one begin
        for event in caller.of("response.done"):
            name = event["response"]["id"]
            assert verify(caller.pcm(name), name).intact
        assert caller.check.problems == []


def one_of(rng: random.Random, voice: Event, quiet: Event, item: str, response: str) -> Any:
    """A client event, lawful or not."""
    text = {"type": "input_text", "text": rng.choice(["hi", "something long", ""])}
    message = {"type": "message", "role": "user", "content": [text]}
    choices: list[Any] = [
        voice,
        voice,
        quiet,
        quiet,
        COMMIT,
        {"type": "input_audio_buffer.clear"},
        {"type": "conversation.item.create", "item": message},
        {"type": "conversation.item.create", "item": message, "previous_item_id": item},
        {"type": "conversation.item.delete", "item_id": item},
        {"type": "conversation.item.retrieve", "item_id": item},
        {
            "type": "conversation.item.truncate",
            "item_id": item,
            "content_index": 0,
            "audio_end_ms": rng.randrange(3000),
        },
        CREATE,
        CREATE,
        {**CREATE, "response": {"conversation": "none", "output_modalities": ["text"]}},
        {**CREATE, "response": {"output_modalities": ["text"]}},
        {**CREATE, "response": {"input": [{"type": "item_reference", "id": item}]}},
        CANCEL,
        {**CANCEL, "response_id": response},
        "nonsense",
        b"\0",
        {
            "type": "session.update",
            "session": {
                "type": "realtime",
                "audio": {
                    "input": {
                        "turn_detection": rng.choice(
                            [None, {"type": "server_vad"}, {"type": "semantic_vad"}]
                        )
                    }
                },
            },
        },
    ]
    return rng.choice(choices)


# -- long answers


@pytest.mark.asyncio
async def test_the_longest_text_comes_back_whole_in_frames_of_the_usual_limit(serve: OpenServer):
    """The answer quotes what was typed; the checker refuses any frame above 256 KiB."""
    typed = "x" * 190_000
    options = {"thinker": {"context_tokens": 100_000}}
    async with calling_beside(serve, options) as (_, caller):
        name = await caller.ask(typed, output_modalities=["text"])
        response = await caller.ended(name)
        text = response["output"][0]["content"][0]["text"]
        assert text.startswith(f"You said: {typed}.")
        item = await caller.retrieve(response["output"][0]["id"])
        assert item["content"][0]["text"] == text


@pytest.mark.asyncio
async def test_audio_comes_in_increments_of_the_same_size(serve: OpenServer):
    """Nothing grows with the length of the answer or of the session."""
    async with serve() as server, calling(server.address.ws) as caller:
        for _ in range(3):
            name = await caller.begin_long_answer(1.05)
            await caller.send(CANCEL)
            await caller.ended(name)
        for stream in caller.streams.values():
            steps = [0, *(total for _, total in stream.arrivals)]
            sizes = [b - a for a, b in pairwise(steps)]
            assert max(sizes) <= 2400
            assert len(sizes) >= 10


@pytest.mark.asyncio
async def test_a_long_conversation_outgrows_the_context_without_an_error(serve: OpenServer):
    options = {"thinker": {"context_tokens": 300, "max_tokens": 100}}
    async with serve(options) as server, calling(server.address.ws, strict=False) as caller:
        for number in range(40):
            await caller.say(f"question {number} " + "word " * 40)
        await assert_answers(caller, "Is there room")
        assert caller.of("error") == []
