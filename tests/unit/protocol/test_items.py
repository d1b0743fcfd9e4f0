"""Items in both directions."""

from __future__ import annotations

import json

import msgspec
import pytest

from session_server.protocol.items import (
    FunctionCallOutputPayload,
    FunctionCallPayload,
    InputAudioPayload,
    InputImage,
    InputText,
    ItemReference,
    MessagePayload,
    OutputAudio,
    OutputText,
    item,
    item_or_reference,
    without_payloads,
)

pytestmark = pytest.mark.unit

PNG = "data:image/png;base64,iVBORw0KGgo="


def message(role: str, *content: dict, **more) -> dict:
    return {"type": "message", "role": role, "content": list(content), **more}


def wire(value: object) -> dict:
    return json.loads(msgspec.json.encode(value))


@pytest.mark.parametrize(
    ("sent", "want"),
    [
        (
            message("system", {"type": "input_text", "text": "a"}, id="s", object="realtime.item"),
            MessagePayload("s", "system", "completed", (InputText("a"),)),
        ),
        (
            message("user", {"type": "input_audio", "audio": "AAE"}, status="in_progress"),
            MessagePayload(None, "user", "completed", (InputAudioPayload(None, b"\0\1"),)),
        ),
        (
            message("user", {"type": "input_audio", "transcript": "hi", "audio": None}),
            MessagePayload(None, "user", "completed", (InputAudioPayload("hi"),)),
        ),
        (
            message("user", {"type": "input_image", "image_url": PNG, "detail": "low"}),
            MessagePayload(None, "user", "completed", (InputImage(PNG, "low"),)),
        ),
        (
            message(
                "assistant",
                {"type": "output_text", "text": "a"},
                {"type": "output_audio", "transcript": "b", "audio": "AA"},
                {"type": "output_audio"},
                status="incomplete",
            ),
            MessagePayload(
                None,
                "assistant",
                "incomplete",
                (OutputText("a"), OutputAudio("b"), OutputAudio("")),
            ),
        ),
        (message("user"), MessagePayload(None, "user", "completed", ())),
        (
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
            FunctionCallPayload(None, "c", "f", "{}", "completed"),
        ),
        (
            {"type": "function_call", "name": "f", "arguments": "{}"},
            FunctionCallPayload(None, None, "f", "{}", "completed"),
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "x", "id": "o"},
            FunctionCallOutputPayload("o", "c", "x", "completed"),
        ),
    ],
)
def test_items_that_clients_send(sent, want):
    assert item(sent, "item") == want


def test_nulls_of_dumped_models_and_unknown_keys_do_no_harm():
    part = {"type": "input_text", "text": "a", "audio": None, "image_url": None, "phase": "x"}
    sent = message("user", part, id=None, status=None, object=None, colour="red")
    assert item(sent, "item") == MessagePayload(None, "user", "completed", (InputText("a"),))


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ({}, "missing_required_parameter", "item.type"),
        ({"type": "mcp_call"}, "invalid_value", "item.type"),
        ({"type": "item_reference", "id": "x"}, "invalid_value", "item.type"),
        ("x", "invalid_type", "item"),
        (message("user", id="x" * 33), "string_above_max_length", "item.id"),
        (message("user", id=""), "invalid_value", "item.id"),
        (message("user", id=1), "invalid_type", "item.id"),
        (message("developer"), "invalid_value", "item.role"),
        ({"type": "message", "content": []}, "missing_required_parameter", "item.role"),
        ({"type": "message", "role": "user"}, "missing_required_parameter", "item.content"),
        ({"type": "message", "role": "user", "content": "a"}, "invalid_type", "item.content"),
        (message("user", status="cancelled"), "invalid_value", "item.status"),
        (message("user", "a"), "invalid_type", "item.content[0]"),
        (message("user", {"text": "a"}), "missing_required_parameter", "item.content[0].type"),
        (
            message("assistant", {"type": "input_text", "text": "a"}),
            "invalid_value",
            "item.content[0].type",
        ),
        (
            message("system", {"type": "input_audio", "audio": ""}),
            "invalid_value",
            "item.content[0].type",
        ),
        (
            message("user", {"type": "input_text", "text": "a"}, {"type": "text", "text": "a"}),
            "invalid_value",
            "item.content[1].type",
        ),
        (
            message("user", {"type": "input_text"}),
            "missing_required_parameter",
            "item.content[0].text",
        ),
        (
            message("user", {"type": "input_text", "text": None}),
            "invalid_type",
            "item.content[0].text",
        ),
        (
            message("user", {"type": "input_audio"}),
            "missing_required_parameter",
            "item.content[0].audio",
        ),
        (
            message("user", {"type": "input_audio", "audio": "A A="}),
            "invalid_value",
            "item.content[0].audio",
        ),
        (
            message("user", {"type": "input_image"}),
            "missing_required_parameter",
            "item.content[0].image_url",
        ),
        (
            message("user", {"type": "input_image", "image_url": "https://example.org/a.png"}),
            "invalid_value",
            "item.content[0].image_url",
        ),
        (
            message("user", {"type": "input_image", "image_url": "data:image/png;base64,@"}),
            "invalid_value",
            "item.content[0].image_url",
        ),
        (
            message("user", {"type": "input_image", "image_url": PNG, "detail": "full"}),
            "invalid_value",
            "item.content[0].detail",
        ),
        (
            message("user", *[{"type": "input_text", "text": ""}] * 65),
            "invalid_value",
            "item.content",
        ),
        (
            {"type": "function_call", "name": "f"},
            "missing_required_parameter",
            "item.arguments",
        ),
        (
            {"type": "function_call", "name": "f", "arguments": {}},
            "invalid_type",
            "item.arguments",
        ),
        (
            {"type": "function_call_output", "output": "x"},
            "missing_required_parameter",
            "item.call_id",
        ),
    ],
)
def test_mistakes_are_named_by_their_full_path(sent, code, param, fault_of):
    fault = fault_of(item, sent, "item")
    assert (fault.code, fault.param) == (code, param)


def test_a_text_that_could_never_be_echoed_is_refused_at_once(fault_of):
    fault = fault_of(item, message("user", {"type": "input_text", "text": "é" * 100_000}), "item")
    assert (fault.code, fault.param) == ("string_above_max_length", "item")


def test_a_big_picture_is_no_reason_to_refuse_an_item():
    url = "data:image/jpeg;base64," + "A" * 400_000
    parsed = item(message("user", {"type": "input_image", "image_url": url}), "item")
    assert parsed.content == (InputImage(url),)


def test_references_stand_for_items_in_a_response_only():
    assert item_or_reference({"type": "item_reference", "id": "x"}, "p") == ItemReference("x")
    assert item_or_reference(message("user"), "p") == MessagePayload(None, "user", "completed", ())


def test_a_user_message_on_the_wire_has_what_clients_throw_without():
    said = MessagePayload(
        "i", "user", "completed", (InputAudioPayload(None), InputAudioPayload("x", b"\0"))
    )
    assert wire(said) == {
        "type": "message",
        "id": "i",
        "object": "realtime.item",
        "role": "user",
        "status": "completed",
        "content": [
            {"type": "input_audio", "transcript": None},
            {"type": "input_audio", "transcript": "x", "audio": "AA=="},
        ],
    }


def test_pictures_on_the_wire():
    assert wire(InputImage(PNG, "low"))["detail"] == "low"
    assert wire(InputImage(None)) == {"type": "input_image", "image_url": None}


def test_an_item_without_payloads_keeps_its_words_and_its_shape():
    parts = (InputText("a"), InputAudioPayload("b", b"\0"), InputImage(PNG, "low"))
    bare = without_payloads(MessagePayload("i", "user", "completed", parts))
    assert bare.content == (InputText("a"), InputAudioPayload("b"), InputImage(None, "low"))
    call = FunctionCallPayload("i", "c", "f", "{}", "completed")
    assert without_payloads(call) is call
