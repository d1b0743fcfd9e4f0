"""Minimal values for schemas of tools."""

import json

import pytest

from engines.sim.thinker import minimal_json

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, {}),
        ({"type": "object"}, {}),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": ""}),
        ({"properties": {"a": {"const": 7}}, "required": ["a"]}, {"a": 7}),
        ({"enum": ["red", "blue"]}, "red"),
        ({"type": "string", "minLength": 3}, "xxx"),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "integer", "maximum": -5}, -5),
        ({"type": "number", "minimum": 0.5}, 0.5),
        ({"type": "boolean"}, False),
        ({"type": "null"}, None),
        ({"type": ["integer", "null"]}, 0),
        ({"type": "array", "items": {"type": "integer"}}, []),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [0, 0]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 0),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ""),
        ({"$ref": "#/$defs/P", "$defs": {"P": {"type": "boolean"}}}, False),
        ({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}, {"a": 0, "b": ""}),
    ],
)  # fmt: skip
def test_the_value_fits_the_schema(schema: dict[str, object], value: object) -> None:
    assert json.loads(minimal_json(json.dumps(schema))) == value


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}
    assert json.loads(minimal_json(json.dumps(schema)))["n"]["n"]


def test_an_empty_text_means_no_arguments() -> None:
    assert minimal_json("") == "{}"
