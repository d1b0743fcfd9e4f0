"""Options of the remote thinker: addresses, fields and keys that cannot be are refused, and a key is never repeated."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings, strategies as st
from yarl import URL

from engines.options import WrongOption
from engines.remote.options import read_options

pytestmark = pytest.mark.unit
HERE = "http://127.0.0.1:8001/v1"


@pytest.mark.parametrize(
    "url",
    [
        HERE,
        "https://api.example.com/v1/",
        "http://[::1]:8001/v1",
        "http://model-server_2.local:1/a/b~c",
        "http://münchen.example/v1",
    ],
)
def test_an_address_is_taken_without_its_last_slash(url: str) -> None:
    assert read_options({"base_url": url}).base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "", " ", "127.0.0.1:8001/v1", "http://", "http:///v1", "http://:80/v1", "ftp://host/v1", "file:///etc/passwd",
        "http://a host/v1", " http://host", "http://host/v1 ", "http://host/\n/v1", "http://host:0/v1", "http://host:65536",
        "http://host:abc", "http://host:", "http://ho\tst/v1", "http://[::1/v1", "http://-host/v1", "http://host/v1?a=b",
        "http://host/v1#top", "http://host/<v1>", "javascript:alert(1)", "http:\\\\host",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(WrongOption, match=r"^base_url: "):
        read_options({"base_url": url})


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "http://user:sk-secret-1@host/v1"},
        {"base_url": "http://sk-secret-1@host/v1"},
        {"base_url": "ftp://user:sk-secret-1@host/v1"},
        {"base_url": "http://host/v1?key=sk-secret-1"},
        {"base_url": HERE, "api_key": "sk-secret-1"},
        {"base_url": HERE, "key": "sk-secret-1"},
        {"base_url": HERE, "api_key_env": "sk-secret-1"},
    ],
)
def test_a_key_in_a_wrong_place_is_refused_and_not_repeated(options: dict) -> None:
    with pytest.raises(WrongOption) as caught:
        read_options(options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["messages", "stream", "model", "tools", "n", "", "a b", "temperature"]
)
def test_the_limits_field_cannot_be_another_field_of_the_request(name: str) -> None:
    with pytest.raises(WrongOption, match=r"^max_tokens_field: "):
        read_options({"base_url": HERE, "max_tokens_field": name})


def test_the_limits_field_may_be_what_a_server_calls_it() -> None:
    for name in ("max_tokens", "max_completion_tokens", "n_predict"):
        assert read_options({"base_url": HERE, "max_tokens_field": name}).max_tokens_field == name
    with pytest.raises(WrongOption, match=r"^extra\.n_predict: is the max_tokens_field"):
        read_options({"base_url": HERE, "max_tokens_field": "n_predict", "extra": {"n_predict": 3}})


DEEP: dict = {}
for _ in range(20):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"messages": []}, "extra.messages: the server sets it itself"),
        ({"n": 2}, "extra.n: the server sets it itself"),
        ({"temperature": 1}, "extra.temperature: the option temperature sets it"),
        ({"priority": 1}, "extra.priority: the option send_priority sets it"),
        ({"a": {"b": [float("nan")]}}, "extra.a.b[0]: must be a finite number, not nan"),
        ({"a": float("inf")}, "extra.a: must be a finite number, not inf"),
        ({"a": datetime.date(2026, 1, 1)}, "extra.a: must be what JSON knows, not a date"),
        ({"a": b"x"}, "extra.a: must be what JSON knows, not a bytes"),
        ({"a": {1: 2}}, "extra.a: the name 1 must be text"),
        ({"a": 1 << 70}, "extra.a: must be a number of 64 bits"),
        (DEEP, "is nested too deeply"),
        ([], "extra: must be a mapping, not []"),
    ],
)
def test_further_fields_must_be_what_json_knows_and_nobody_elses(extra: object, said: str) -> None:
    with pytest.raises(WrongOption) as caught:
        read_options({"base_url": HERE, "extra": extra})
    assert said in str(caught.value)


@settings(max_examples=150)
@given(st.text(max_size=40) | st.from_regex(r"https?://.{0,30}", fullmatch=True))
def test_an_address_that_is_taken_is_one_that_can_be_asked(url: str) -> None:
    try:
        taken = read_options({"base_url": url}).base_url
    except WrongOption:
        return
    asked = URL(f"{taken}/chat/completions")
    assert asked.host
    assert asked.scheme in ("http", "https")
    assert asked.path.endswith("/chat/completions")
