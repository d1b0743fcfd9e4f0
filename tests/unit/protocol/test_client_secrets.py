"""Ephemeral keys: request and answer."""

from __future__ import annotations

import json

import pytest
from openai.types.realtime import ClientSecretCreateResponse

from session_server.protocol.client_secrets import (
    client_secret_body,
    parse_client_secret_request,
    parse_first_session,
)
from session_server.protocol.session_update import initial_config

pytestmark = pytest.mark.unit


def body(**fields) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("sent", [b"", b"{}", body(expires_after=None, session=None)])
def test_an_empty_request_gets_the_defaults(sent, rules):
    request = parse_client_secret_request(sent, rules)
    assert (request.life_s, request.model) == (600, None)
    assert request.config == initial_config(rules)


def test_the_session_is_what_the_connection_will_start_with(rules):
    sent = body(
        expires_after={"anchor": "created_at", "seconds": 60},
        session={"type": "realtime", "instructions": "x", "model": "gpt-realtime-mini"},
    )
    request = parse_client_secret_request(sent, rules)
    assert (request.life_s, request.model) == (60, "gpt-realtime-mini")
    assert request.config.instructions == "x"
    answer = client_secret_body(
        request, value="ek_1", expires_at=1790000000, session_id="sess_1", model="gpt-realtime-mini"
    )
    shown = ClientSecretCreateResponse.model_validate_json(answer)
    assert (shown.value, shown.expires_at) == ("ek_1", 1790000000)
    assert shown.session.type == "realtime"
    assert shown.session.instructions == "x"
    assert json.loads(answer)["session"]["object"] == "realtime.session"


def test_a_transcription_session(rules):
    config, model = parse_first_session({"type": "transcription"}, rules)
    assert not config.responds
    assert model is None


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_type", ""),
        (body(ttl=5), "unknown_parameter", "ttl"),
        (body(expires_after={"seconds": 9}), "invalid_value", "expires_after.seconds"),
        (body(expires_after={"seconds": 7201}), "invalid_value", "expires_after.seconds"),
        (body(expires_after={"seconds": "60"}), "invalid_type", "expires_after.seconds"),
        (body(expires_after={"anchor": "first_use"}), "invalid_value", "expires_after.anchor"),
        (body(session={}), "missing_required_parameter", "session.type"),
        (body(session={"type": "chat"}), "invalid_value", "session.type"),
        (body(session={"type": "realtime", "model": 5}), "invalid_type", "session.model"),
        (body(session={"type": "realtime", "colour": 5}), "unknown_parameter", "session.colour"),
    ],
)
def test_mistakes(sent, code, param, rules, fault_of):
    fault = fault_of(parse_client_secret_request, sent, rules)
    assert (fault.code, fault.param) == (code, param)
