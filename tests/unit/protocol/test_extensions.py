"""Opting in by query string."""

from __future__ import annotations

import pytest

from session_server.protocol.extensions import Extensions, Playback, parse_extensions

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("query", ["playback", "playback,", " playback ,playback"])
def test_playback(query):
    assert parse_extensions(query) == Extensions(Playback())


@pytest.mark.parametrize("query", ["", ",", " "])
def test_nothing_asked_for(query):
    assert parse_extensions(query) == Extensions()


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("smell", "unknown_parameter", "extensions.smell"),
        ("playback,resume", "invalid_value", "extensions.resume"),
        ("video", "invalid_value", "extensions.video"),
    ],
)
def test_what_is_not_offered_is_refused(query, code, param, fault_of):
    fault = fault_of(parse_extensions, query)
    assert (fault.code, fault.param) == (code, param)
