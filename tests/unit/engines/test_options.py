"""Options of engines are read by the types and bounds of their class; whatever is wrong is named."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import pytest

from engines.options import (
    MOST,
    Count,
    Place,
    Read,
    Share,
    Text,
    Within,
    WrongOption,
    by_type,
    wrong,
)

pytestmark = pytest.mark.unit


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


@dataclass(frozen=True, slots=True)
class Plain:
    seconds: float = 1.0
    number: int = 0
    count: Count = 1
    share: Share | None = None
    flag: bool = False
    word: str = ""
    name: Text = "x"
    folder: Place = ""
    kind: Literal["one", "two"] = "one"
    more: Mapping[str, object] = field(default_factory=dict)
    even: Annotated[int, Within(0, 10), Read(_even)] = 0


def test_what_is_not_given_keeps_its_default_and_whole_numbers_are_taken_for_real_ones():
    given = {"seconds": 3, "share": 1, "kind": "two", "more": {"a": [1]}, "even": 4, "word": "w"}
    read = by_type(given, Plain(count=7))
    assert read == replace(
        Plain(count=7), seconds=3.0, share=1.0, kind="two", more={"a": [1]}, even=4, word="w"
    )
    assert type(read.seconds) is float
    assert by_type({"share": None}, Plain(share=0.5)).share is None


NUMBERS = [float("nan"), float("inf"), -float("inf"), -1, -0.5, 10**400, -(10**400), 10**5000]
ODD = ["1", True, None, [], {}, [1], datetime.date(2026, 1, 1), b"1", {1: 2}]


@pytest.mark.parametrize("value", [*NUMBERS, *ODD], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", ["seconds", "number", "count", "share", "even"])
def test_no_number_is_negative_endless_or_something_else(name: str, value: object):
    if name == "share" and value is None:
        return
    with pytest.raises(WrongOption, match=f"^{name}: must be ") as caught:
        by_type({name: value}, Plain())
    assert len(str(caught.value)) < 200
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": 0}, "count: must be a whole number in 1..2147483647, not 0"),
        ({"number": MOST + 1}, "number: must be a whole number in 0..2147483647, not 2147483648"),
        ({"share": 1.5}, "share: must be a number in 0..1, not 1.5"),
        ({"number": 1.0}, "number: must be a whole number, not 1.0"),
        ({"flag": 1}, "flag: must be true or false, not 1"),
        ({"word": None}, "word: must be text, not None"),
        ({"name": " "}, "name: must not be empty"),
        ({"name": "a\0b"}, "name: holds characters that no name has: 'a\\x00b'"),
        ({"folder": ""}, "folder: must not be empty"),
        ({"folder": "~nobody-here/x"}, "folder: '~nobody-here/x': there is no such user"),
        ({"kind": "three"}, "kind: must be one of one, two, not 'three'"),
        ({"kind": ["one"]}, "kind: must be one of one, two, not ['one']"),
        ({"more": []}, "more: must be a mapping, not []"),
        ({"even": 3}, "even: must be even"),
        ({"other": 3}, "other: unknown option; known are count, even,"),
        ({3: 3}, "3: unknown option; known are count, even,"),
    ],
)
def test_a_mistake_is_named(options: dict, said: str):
    with pytest.raises(WrongOption) as caught:
        by_type(options, Plain())
    assert str(caught.value).startswith(said)


def test_a_mistake_has_a_path_in_the_configuration():
    assert str(wrong("graph.options", WrongOption("slots", "no"))) == "graph.options.slots: no"
    assert str(wrong("graph.options", ValueError("no"))) == "graph.options: no"
