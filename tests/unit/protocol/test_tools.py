"""Tools and tool choice."""

from __future__ import annotations

import json

import pytest

from session_server.protocol.tools import (
    NO_PARAMETERS,
    FunctionToolPayload,
    tool_choice,
    tool_choice_to_wire,
    tools,
)
from session_server.types.tools import ToolChoice

pytestmark = pytest.mark.unit

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def test_a_tool_is_kept_as_it_was_sent():
    sent = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}
    (tool,) = tools([sent], "t")
    assert json.loads(tool.parameters) == SCHEMA
    assert tool.to_wire() == sent


def test_a_tool_may_be_a_name_alone():
    assert tools([{"name": "f", "strict": True}], "t") == (
        FunctionToolPayload("f", None, NO_PARAMETERS),
    )
    assert tools([{"name": "f", "parameters": {}}], "t")[0].parameters == "{}"


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ([{}], "missing_required_parameter", "t[0].name"),
        ([{"name": "a b"}], "invalid_value", "t[0].name"),
        ([{"name": ""}], "invalid_value", "t[0].name"),
        ([{"name": 5}], "invalid_type", "t[0].name"),
        ([{"name": "f"}, {"name": "f"}], "invalid_value", "t[1].name"),
        ([{"name": "f", "type": "mcp"}], "invalid_value", "t[0].type"),
        ([{"name": "f", "colour": 1}], "unknown_parameter", "t[0].colour"),
        ([{"name": "f", "parameters": []}], "invalid_type", "t[0].parameters"),
        (
            [{"name": "f", "parameters": {"type": "string"}}],
            "invalid_value",
            "t[0].parameters.type",
        ),
        ([{"name": "f", "description": 1}], "invalid_type", "t[0].description"),
        ([{"name": f"f{i}"} for i in range(129)], "invalid_value", "t"),
        (["f"], "invalid_type", "t[0]"),
    ],
)
def test_mistakes(sent, code, param, fault_of):
    fault = fault_of(tools, sent, "t")
    assert (fault.code, fault.param) == (code, param)


@pytest.mark.parametrize("mode", ["none", "auto", "required"])
def test_choices_by_mode(mode):
    assert tool_choice(mode, "c") == ToolChoice(mode)
    assert tool_choice_to_wire(tool_choice(mode, "c")) == mode


def test_a_choice_by_name():
    sent = {"type": "function", "name": "f"}
    assert tool_choice(sent, "c") == ToolChoice("function", "f")
    assert tool_choice_to_wire(tool_choice(sent, "c")) == sent


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        ("function", "invalid_value", "c"),
        (5, "invalid_type", "c"),
        ({}, "missing_required_parameter", "c.type"),
        ({"type": "mcp", "name": "x"}, "invalid_value", "c.type"),
        ({"type": "function"}, "missing_required_parameter", "c.name"),
    ],
)
def test_mistaken_choices(sent, code, param, fault_of):
    fault = fault_of(tool_choice, sent, "c")
    assert (fault.code, fault.param) == (code, param)
