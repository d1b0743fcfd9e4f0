"""Frames that make no sense: each gets its one answer, and the session beside it hears nothing of it."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from itertools import pairwise

import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.server.bystander import assert_answers, bystander, calling_beside
from tests.integration.server.caller import Event, append, calling, silence
from tests.integration.server.conftest import OpenServer
from tests.until import until

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
DEEP = "[" * 50_000

MALFORMED: list[tuple[str | bytes, str]] = [
    ("", "invalid_json"),
    ("{nope", "invalid_json"),
    ('{"type": "response.create"', "invalid_json"),
    ('{"type": "response.create"} {}', "invalid_json"),
    ("\0\0\0\0", "invalid_json"),
    ('{"type": "response.create", "x": NaN}', "invalid_json"),
    (DEEP, "invalid_json"),
    ('{"type":' * 50_000, "invalid_json"),
    ("[1, 2]", "invalid_event"),
    ("null", "invalid_event"),
    ("17", "invalid_event"),
    ('"response.create"', "invalid_event"),
    ("{}", "invalid_event"),
    ('{"type": null}', "invalid_event"),
    ('{"type": 5}', "invalid_event"),
    ('{"type": {"type": "response.create"}}', "invalid_event"),
    ('{"type": ""}', "invalid_event"),
    (b"\0\1", "invalid_event"),
    (b'{"type": "response.create"}', "invalid_event"),
    (b"", "invalid_event"),
]

WRONG: list[tuple[Event, str, str | None]] = [
    ({"type": "foo.bar"}, "invalid_event", "type"),
    ({"type": "x" * 100_000}, "invalid_event", "type"),
    ({"type": "response.done"}, "invalid_event", "type"),
    ({"type": "input_audio_buffer.append"}, "missing_required_parameter", "audio"),
    ({"type": "input_audio_buffer.append", "audio": 7}, "invalid_type", "audio"),
    ({"type": "input_audio_buffer.append", "audio": ["AAAA"]}, "invalid_type", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "@@@"}, "invalid_value", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA\nAAAA"}, "invalid_value", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "A"}, "invalid_value", "audio"),
    ({"type": "session.update"}, "missing_required_parameter", "session"),
    ({"type": "session.update", "session": []}, "invalid_type", "session"),
    ({"type": "session.update", "session": {"type": 1}}, "invalid_type", "session.type"),
    (
        {"type": "session.update", "session": {"type": "realtime", "instructions": 5}},
        "invalid_type",
        "session.instructions",
    ),
    (
        {"type": "session.update", "session": {"type": "realtime", "audio": {"input": 3}}},
        "invalid_type",
        "session.audio.input",
    ),
    (
        {"type": "session.update", "session": {"type": "realtime", "tools": {"a": 1}}},
        "invalid_type",
        "session.tools",
    ),
    ({"type": "response.create", "response": "now"}, "invalid_type", "response"),
    ({"type": "response.create", "response": {"loud": True}}, "unknown_parameter", "response.loud"),
    ({"type": "response.cancel", "response_id": 5}, "invalid_type", "response_id"),
    ({"type": "conversation.item.create"}, "missing_required_parameter", "item"),
    ({"type": "conversation.item.create", "item": 1}, "invalid_type", "item"),
    ({"type": "conversation.item.create", "item": {}}, "missing_required_parameter", "item.type"),
    (
        {"type": "conversation.item.create", "item": {"type": "message", "role": "user"}},
        "missing_required_parameter",
        "item.content",
    ),
    ({"type": "conversation.item.delete", "item_id": None}, "invalid_type", "item_id"),
    (
        {"type": "conversation.item.delete", "item_id": "x" * 600},
        "string_above_max_length",
        "item_id",
    ),
    (
        {
            "type": "conversation.item.truncate",
            "item_id": "x",
            "content_index": 0,
            "audio_end_ms": -1,
        },
        "integer_below_min_value",
        "audio_end_ms",
    ),
    (
        {
            "type": "conversation.item.truncate",
            "item_id": "x",
            "content_index": 0,
            "audio_end_ms": 2**60,
        },
        "integer_above_max_value",
        "audio_end_ms",
    ),
    (
        {
            "type": "conversation.item.truncate",
            "item_id": "x",
            "content_index": "0",
            "audio_end_ms": 1,
        },
        "invalid_type",
        "content_index",
    ),
    ({"type": "playback.ack", "response_id": "x"}, "invalid_event", "type"),
]


def codes(events: list[Event]) -> list[str]:
    return [event["error"]["code"] for event in events]


@pytest.mark.asyncio
async def test_malformed_frames_get_one_error_each_and_the_session_goes_on(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        for frame, code in MALFORMED:
            answer = await caller.answers_to(frame)
            assert [event["type"] for event in answer] == ["error"], frame[:60]
            assert codes(answer) == [code], frame[:60]
        await assert_answers(caller, "Still there")


@pytest.mark.asyncio
async def test_wrong_types_and_unknown_events_get_one_error_that_names_the_field(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        for number, (event, code, param) in enumerate(WRONG):
            answer = await caller.answers_to({**event, "event_id": f"mine-{number}"})
            assert [e["type"] for e in answer] == ["error"], event
            error = answer[0]["error"]
            assert (error["code"], error["param"]) == (code, param), event
            assert error["event_id"] == f"mine-{number}"
            assert error["type"] == "invalid_request_error"
        await assert_answers(caller, "Still there")


@pytest.mark.asyncio
async def test_an_event_id_that_cannot_be_one_is_an_error_without_an_echo(serve: OpenServer):
    async with serve() as server, calling(server.address.ws) as caller:
        for bad, code in (
            (5, "invalid_type"),
            ("e" * 600, "string_above_max_length"),
            ([], "invalid_type"),
        ):
            answer = await caller.answers_to({"type": "input_audio_buffer.clear", "event_id": bad})
            assert codes(answer) == [code]
            assert (answer[0]["error"]["param"], answer[0]["error"]["event_id"]) == (
                "event_id",
                None,
            )


@pytest.mark.asyncio
async def test_a_frame_of_16_mib_of_audio_is_heard(serve: OpenServer):
    pcm = silence(12 * MIB / 48_000)
    frame = json.dumps(append(pcm))
    assert len(frame) > 16 * MIB
    async with calling_beside(serve) as (_, caller):
        await caller.detect(None)
        assert await caller.answers_to(frame) == []
        answer = await caller.answers_to({"type": "input_audio_buffer.commit"})
        assert [e["type"] for e in answer] == [
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
        ]


@pytest.mark.asyncio
async def test_16_mib_of_nonsense_is_one_error(serve: OpenServer):
    frames = [
        ('{"type": "' + "x" * 16 * MIB + '"}', "invalid_event"),
        ("x" * 16 * MIB, "invalid_json"),
        (
            json.dumps({"type": "input_audio_buffer.append", "audio": "@" * 16 * MIB}),
            "invalid_value",
        ),
        (json.dumps(append(bytes(16 * MIB))), "invalid_value"),
    ]
    async with calling_beside(serve) as (_, caller):
        for frame, code in frames:
            assert codes(await caller.answers_to(frame)) == [code]
        await assert_answers(caller, "Still there")


@pytest.mark.asyncio
async def test_text_that_could_never_be_echoed_is_refused_and_not_kept(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        await caller.say("x" * 4 * MIB, item_id="big")
        assert codes(await caller.fence()) == ["string_above_max_length"]
        update = {"type": "realtime", "instructions": "x" * 4 * MIB}
        answer = await caller.answers_to({"type": "session.update", "session": update})
        assert codes(answer) == ["string_above_max_length"]
        gone = await caller.answers_to({"type": "conversation.item.retrieve", "item_id": "big"})
        assert codes(gone) == ["item_retrieve_invalid_item_id"]


@pytest.mark.asyncio
async def test_a_frame_above_the_maximum_closes_with_1009(serve: OpenServer):
    async with serve(server__max_message_bytes=20 * MIB) as server, bystander(server.address.ws):
        async with calling(server.address.ws) as caller:
            with suppress(ConnectionClosed):
                await caller.send("x" * (20 * MIB + 1))
            assert (await caller.closed())[0] == 1009
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
@pytest.mark.parametrize("frame", [b"\xff\xfe\xfd", b"\xed\xa0\x80"], ids=["bytes", "surrogate"])
async def test_text_that_is_not_utf8_closes_with_1007(serve: OpenServer, frame: bytes):
    async with serve() as server, bystander(server.address.ws):
        async with calling(server.address.ws) as caller:
            await caller.socket.send(frame, text=True)
            assert (await caller.closed())[0] == 1007
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
async def test_bytes_that_are_no_websocket_frame_close_with_1002(serve: OpenServer):
    async with serve() as server, bystander(server.address.ws):
        async with calling(server.address.ws) as caller:
            caller.socket.transport.write(b"\xff" * 64)
            assert (await caller.closed())[0] == 1002
        await until(lambda: len(server.registry) == 1)


@pytest.mark.asyncio
async def test_lone_surrogates_in_json_do_no_harm(serve: OpenServer):
    async with calling_beside(serve) as (_, caller):
        content = '[{"type":"input_text","text":"a\\ud800b"}]'
        item = f'{{"type":"message","role":"user","content":{content}}}'
        frame = f'{{"type":"conversation.item.create","item":{item}}}'
        assert codes(await caller.answers_to(frame)) == ["invalid_json"]
        await caller.send({"type": "response.create", "event_id": "\ud83d\ude00 \x00"})
        created = await caller.wait("response.created")
        await caller.ended(created["response"]["id"])


@pytest.mark.asyncio
async def test_a_burst_of_two_thousand_errors_is_answered_in_order(serve: OpenServer):
    async with calling_beside(serve, strict=False) as (_, caller):
        for number in range(2_000):
            await caller.send(f'{{"type":"nope","event_id":"{number}"}}')
        answer = await caller.fence()
        assert [int(e["error"]["event_id"]) for e in answer] == list(range(2_000))


@pytest.mark.asyncio
async def test_odd_pcm_bytes_are_put_together_again(serve: OpenServer):
    """The half sample at the end of one append is the first half of the next one's first sample."""
    pcm = bytes(range(256)) * 45
    async with calling_beside(serve) as (_, caller):
        await caller.detect(None)
        cuts = [0, 1, 2, 5, 1000, 4801, 4802, 9999, len(pcm)]
        for begin, end in pairwise(cuts):
            await caller.append(pcm[begin:end])
        item = await caller.retrieve(await caller.commit())
        assert base64.b64decode(item["content"][0]["audio"]) == pcm


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["audio/pcmu", "audio/pcma"])
async def test_odd_bytes_of_companded_audio_are_samples(serve: OpenServer, kind: str):
    async with calling_beside(serve) as (_, caller):
        await caller.update(
            {"audio": {"input": {"format": {"type": kind}, "turn_detection": None}}}
        )
        for size in (1, 3, 801, 997):
            await caller.append(b"\x55" * size)
        item = await caller.retrieve(await caller.commit())
        assert item["content"][0]["type"] == "input_audio"
