"""The `response` object of response.create."""

from __future__ import annotations

import pytest

from session_server.protocol.items import InputText, ItemReference, MessagePayload
from session_server.protocol.response_config import ResponseConfig, parse_response
from session_server.protocol.session_config import TRANSCRIPTION
from session_server.protocol.session_update import initial_config
from session_server.types.errors import ClientFault
from session_server.types.tools import ToolChoice

pytestmark = pytest.mark.unit

TOOL = {"type": "function", "name": "f"}


@pytest.fixture
def parse(config, rules):
    def call(response: dict, session=config, **options) -> ResponseConfig:
        return parse_response(response, session, rules, **options)

    return call


def voice(name: object) -> dict:
    return {"audio": {"output": {"voice": name}}}


def test_an_empty_response_keeps_everything(parse):
    assert parse({}) == ResponseConfig()
    assert (
        parse(dict.fromkeys(("audio", "tools", "metadata", "input", "modalities")))
        == ResponseConfig()
    )


def test_everything_can_be_overridden(parse):
    got = parse(
        {
            "conversation": "none",
            "output_modalities": ["text"],
            "instructions": "x",
            "audio": {"output": {"voice": "bella", "format": {"type": "audio/pcm", "rate": 24000}}},
            "tools": [TOOL],
            "tool_choice": {"type": "function", "name": "f"},
            "max_output_tokens": "inf",
            "metadata": {"a": "1", "b": "2"},
            "parallel_tool_calls": True,
            "reasoning": {"effort": "low"},
            "prompt": {"id": "p", "variables": {"a": "b"}, "version": "2"},
            "input": [
                {"type": "item_reference", "id": "i"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}],
                },
            ],
        }
    )
    assert got.out_of_band
    assert got.modality == "text"
    assert got.instructions == "x"
    assert got.voice == "bella"
    assert got.tools is not None
    assert [tool.name for tool in got.tools] == ["f"]
    assert got.tool_choice == ToolChoice("function", "f")
    assert got.max_output_tokens == "inf"
    assert got.metadata == (("a", "1"), ("b", "2"))
    assert got.input == (
        ItemReference("i"),
        MessagePayload(None, "user", "completed", (InputText("a"),)),
    )


def test_no_context_is_not_the_conversation(parse):
    assert parse({"input": []}).input == ()
    assert parse({"conversation": "auto"}).input is None


def test_a_greeting_can_be_protected(parse):
    assert parse({}).interruptible
    assert parse({"metadata": {"interruptible": "true"}}).interruptible
    assert not parse({"metadata": {"interruptible": "false"}}).interruptible


def test_a_named_tool_may_be_the_sessions(parse, config, update):
    choice = {"tool_choice": {"type": "function", "name": "f"}}
    assert parse(choice, update(config, {"tools": [TOOL]})).tool_choice == ToolChoice(
        "function", "f"
    )


@pytest.mark.parametrize(
    ("session", "response", "param"),
    [
        ({}, {"tool_choice": "required"}, "response.tool_choice"),
        ({"tools": [TOOL]}, {"tool_choice": "required", "tools": []}, "response.tool_choice"),
        ({"tools": [TOOL], "tool_choice": "required"}, {"tools": []}, "response.tools"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "f"}},
            {"tools": []},
            "response.tools",
        ),
    ],
)
def test_a_choice_that_the_responses_tools_cannot_meet_is_a_fault(
    parse, config, update, session, response, param
):
    with pytest.raises(ClientFault) as caught:
        parse(response, update(config, session))
    assert (caught.value.code, caught.value.param) == ("invalid_value", param)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "nope"}])
def test_a_sessions_choice_without_its_tools_is_kept_for_later(parse, config, update, choice):
    session = update(config, {"tool_choice": choice})
    assert parse({}, session).tool_choice is None
    assert parse({"tools": [], "tool_choice": "none"}, session).tools == ()


def test_metadata_up_to_its_limits(parse):
    full = {f"{i:02d}" + "k" * 62: "v" * 512 for i in range(16)}
    assert parse({"metadata": full}).metadata == tuple(full.items())


@pytest.mark.parametrize(
    ("response", "code", "param"),
    [
        ({"modalities": ["text"]}, "unknown_parameter", "response.modalities"),
        ({"conversation": "side"}, "invalid_value", "response.conversation"),
        ({"output_modalities": ["audio", "text"]}, "invalid_value", "response.output_modalities"),
        ({"instructions": 1}, "invalid_type", "response.instructions"),
        (voice("nobody"), "invalid_value", "response.audio.output.voice"),
        ({"audio": {"input": {}}}, "unknown_parameter", "response.audio.input"),
        ({"audio": {"output": {"speed": 1}}}, "unknown_parameter", "response.audio.output.speed"),
        (
            {"audio": {"output": {"format": {"type": "audio/pcmu"}}}},
            "invalid_value",
            "response.audio.output.format",
        ),
        ({"tools": [{}]}, "missing_required_parameter", "response.tools[0].name"),
        (
            {"tool_choice": {"type": "function", "name": "f"}},
            "invalid_value",
            "response.tool_choice.name",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}},
            "invalid_value",
            "response.tool_choice.name",
        ),
        ({"max_output_tokens": 5000}, "invalid_value", "response.max_output_tokens"),
        ({"metadata": {str(i): "" for i in range(17)}}, "invalid_value", "response.metadata"),
        ({"metadata": {"k" * 65: ""}}, "string_above_max_length", "response.metadata"),
        ({"metadata": {"k": "v" * 513}}, "string_above_max_length", "response.metadata.k"),
        ({"metadata": {"k": 5}}, "invalid_type", "response.metadata.k"),
        ({"metadata": []}, "invalid_type", "response.metadata"),
        ({"input": {}}, "invalid_type", "response.input"),
        ({"input": [{"type": "x"}]}, "invalid_value", "response.input[0].type"),
        (
            {"input": [{"type": "message", "role": "user", "content": [{"type": "output_text"}]}]},
            "invalid_value",
            "response.input[0].content[0].type",
        ),
        ({"reasoning": {"effort": "x"}}, "invalid_value", "response.reasoning.effort"),
        ({"prompt": {}}, "missing_required_parameter", "response.prompt.id"),
        ({"parallel_tool_calls": "x"}, "invalid_type", "response.parallel_tool_calls"),
    ],
)
def test_mistakes_are_named_by_their_full_path(response, code, param, parse, fault_of):
    fault = fault_of(parse, response, event_id="e")
    assert (fault.code, fault.param, fault.event_id) == (code, param, "e")


def test_the_voice_lock_holds_in_the_conversation_only(parse, config, fault_of):
    fault = fault_of(parse, voice("bella"), voice_locked=True)
    assert (fault.code, fault.param) == ("cannot_update_voice", "response.audio.output.voice")
    assert parse(voice(config.output.voice), voice_locked=True).voice == config.output.voice
    assert parse({**voice("bella"), "conversation": "none"}, voice_locked=True).voice == "bella"


def test_a_transcription_session_has_no_responses(parse, rules, fault_of):
    fault = fault_of(parse, {}, initial_config(rules, kind=TRANSCRIPTION), event_id="e")
    assert (fault.code, fault.event_id) == ("invalid_event", "e")
