"""Reading JSON values."""

from __future__ import annotations

import pytest

from session_server.protocol import values

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "an integer"),
        (1.5, "a decimal"),
        ("", "a string"),
        ([], "an array"),
        ({}, "an object"),
    ],
)
def test_a_wrong_type_is_named_in_words(value, words, fault_of):
    expects = values.json_object if not isinstance(value, dict) else values.array
    fault = fault_of(expects, value, "a.b")
    assert fault.code == "invalid_type"
    assert fault.message.endswith(f"but got {words} instead.")


def test_whole_floats_are_integers_and_booleans_are_not():
    assert values.integer(5.0, "x") == 5
    assert type(values.integer(5.0, "x")) is int


@pytest.mark.parametrize("value", [True, 5.5, "5", None])
def test_other_things_are_no_integers(value, fault_of):
    assert fault_of(values.integer, value, "x").code == "invalid_type"


def test_numbers_have_both_ends(fault_of):
    speed = values.number_between(0.25, 1.5)
    assert speed(0.25, "x") == 0.25
    assert speed(1, "x") == 1.0
    for value in (0.2, 1.6, -1, 10**30):
        assert fault_of(speed, value, "x").code == "invalid_value"
    for value in (True, "1", None):
        assert fault_of(speed, value, "x").code == "invalid_type"


def test_a_huge_number_in_a_fault_is_shown_clipped(fault_of):
    assert len(fault_of(values.integer_between(0, 9), 10**4000, "x").message) < 200
    assert len(fault_of(values.natural, -(10**4000), "x").message) < 200


def test_stored_json_is_bounded_in_depth(fault_of):
    deep: values.Json = {}
    for _ in range(80):
        deep = {"a": [deep]}
    fault = fault_of(values.json_text, deep, "x")
    assert (fault.code, fault.param) == ("invalid_value", "x")
    assert values.json_text({"a": [1, {"b": None}]}, "x") == '{"a":[1,{"b":null}]}'


def test_unknown_keys_are_faults_unless_null(fault_of):
    values.Fields({"a": 1, "b": None}, "s", ("a",))
    fault = fault_of(values.Fields, {"a": 1, "b": 2}, "s", ("a",))
    assert (fault.code, fault.param) == ("unknown_parameter", "s.b")
    assert fault.message == "Unknown parameter: 's.b'."


def test_merging_keeps_clears_and_parses():
    fields = values.Fields({"set": "x", "null": None}, "")
    assert fields.merge("absent", 1, 2, values.integer) == 1
    assert fields.merge("null", 1, 2, values.integer) == 2
    assert fields.merge("set", "a", "b", values.text) == "x"


def test_json_that_cannot_be_read(fault_of):
    for broken in (b"\xff", "{", "[" * 50_000, '"\ud800"', "1e999"):
        assert fault_of(values.read_json, broken).code == "invalid_json"


@pytest.mark.parametrize(
    "text", [r'"\ud800"', r'{"a":"b\uDBFF"}', r'"\ud800 and more"', r'"\udc00"', '"\ud800"']
)
def test_half_a_character_is_called_so_and_not_a_text_that_was_cut_off(fault_of, text):
    assert "lone surrogate" in fault_of(values.read_json, text).message


def test_a_text_that_was_cut_off_is_called_so(fault_of):
    for text in ('{"a": "b', r'{"a": "\ud83d\ude00'):
        assert "truncated" in fault_of(values.read_json, text).message
