"""What a model server says about an error reaches a client as a short plain line without keys, whatever it was."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from engines.remote.model_server import LONGEST, NOTHING, error_text, later, plain

pytestmark = pytest.mark.unit
KEY = "sk-abcdefgh12345678"
PAGE = """<!DOCTYPE html><html><head><title>502</title><style>p {color: red}</style><script>steal()</script></head>
<body onload="steal()"><h1>502 Bad Gateway</h1><p>nginx &amp; friends</p><a href="http://evil/">here</a></body></html>"""


def test_a_page_of_html_is_its_text() -> None:
    assert plain(PAGE, None) == "502 Bad Gateway nginx & friends here"
    assert plain("<html><script>x", None) == NOTHING
    assert plain("&lt;script&gt;steal()&lt;/script&gt; <b>no</b>", None) == "steal() no"
    assert plain("max_tokens must be < 100 and > 5", None) == "max_tokens must be < 100 and > 5"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "too long"}}, "too long"),
        ({"error": "too\r\nlong"}, "too long"),
        ({"error": {"code": "rate"}}, "rate"),
        ({"error": {}, "message": "flat"}, "flat"),
        ({"detail": [{"loc": ["body"], "msg": "field required"}]}, "field required"),
        ({"object": "error", "message": "flat"}, "flat"),
        ({"error": {"message": {"deep": 1}}}, "{'deep': 1}"),
        ({}, NOTHING),
        ([], "[]"),
        (None, "None"),
        ({"error": {"message": "\ud83d"}}, "\ufffd"),
        ({"error": {"message": "a\u202eb\x1b[31mc\x00d"}}, "a b [31mc d"),
    ],
)
def test_the_message_is_found_and_made_plain(body: object, said: str) -> None:
    assert error_text(body, None) == said


@pytest.mark.parametrize(
    "text",
    [
        f"odd key {KEY}",
        "x" * 190 + f" {KEY}",
        "Incorrect API key provided: sk-proj-Zz9*******4321abcd",
        "Authorization: Bearer eyJhbGciOi.abc.def",
        'config {"api_key": "Zz9secretvalue4321"}',
        "see https://user:Zz9secretvalue@host/path",
        "GET /v1?key=Zz9secretvalue4321&x=1",
    ],
)
def test_no_key_is_passed_on(text: str) -> None:
    said = plain(text, KEY)
    for part in (KEY, "abcdefgh", "Zz9", "eyJ"):
        assert part not in said


@given(st.text(max_size=300) | st.text(alphabet="<>/!abci =&;\"'\n", max_size=300))
def test_it_is_one_short_line_without_markup(text: str) -> None:
    for said in (plain(text, KEY), error_text({"error": {"message": text}}, KEY)):
        assert said
        assert len(said) <= LONGEST
        assert said.isprintable()
        assert re.search(r"<[A-Za-z/!?]", said) is None


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", ""),
        ("7", "; try again in 7 s"),
        ("0", "; try again in 1 s"),
        ("9" * 5000, "; try again later"),
        ("99999", "; try again much later"),
        ("\u0663", "; try again later"),
        ("-3", "; try again later"),
        ("Mon, 30 Nov 2026 09:00:00 GMT", "; try again later"),
    ],
)
def test_a_hint_when_to_come_again_is_bounded(header: str, said: str) -> None:
    assert later(header) == said
