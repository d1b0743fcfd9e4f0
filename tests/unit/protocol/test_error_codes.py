"""Codes and messages that clients compare."""

from __future__ import annotations

import json

import pytest

from session_server.protocol import error_codes

pytestmark = pytest.mark.unit


def test_expiry_is_announced_in_the_words_of_the_protocol():
    fault = error_codes.session_expired(60)
    assert fault.code == "session_expired"
    assert fault.message == "Your session hit the maximum duration of 60 minutes."


def test_a_refused_key_over_http():
    error = json.loads(error_codes.error_body(error_codes.invalid_api_key()))["error"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "invalid_api_key"
    assert error["param"] is None


def test_a_fault_of_ours_says_so():
    fault = error_codes.server_error("The engine broke.", event_id="e")
    assert (fault.type, fault.code, fault.event_id) == ("server_error", "server_error", "e")


def test_quotes_are_clipped():
    assert error_codes.quoted("x") == "'x'"
    assert len(error_codes.quoted("x" * 1000)) < 120
    fault = error_codes.unknown_parameter("session." + "k" * 10_000)
    assert len(fault.message) < 200
