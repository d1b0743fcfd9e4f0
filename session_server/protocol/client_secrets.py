"""Ephemeral keys over HTTP: the body of `POST /v1/realtime/client_secrets` and its answer.

Times are seconds. The key itself and the clock come from the caller.
"""

from __future__ import annotations

import msgspec

from session_server.protocol.frames import encode
from session_server.protocol.session_config import SessionConfig, SessionRules, to_wire
from session_server.protocol.session_update import apply_update, initial_config, requested_type
from session_server.protocol.values import (
    Fields,
    JsonObject,
    identifier,
    integer_between,
    json_object,
    option,
    read_json,
)

DEFAULT_LIFE_S = 600
MIN_LIFE_S = 10
MAX_LIFE_S = 7200


class ClientSecretRequest(msgspec.Struct, frozen=True):
    """`config` is what a connection that uses the key starts with; `model` None: not named."""

    life_s: int
    config: SessionConfig
    model: str | None


class ClientSecret(msgspec.Struct, frozen=True):
    """The answer. `expires_at`: unix seconds."""

    value: str
    expires_at: int
    session: JsonObject


def parse_client_secret_request(body: bytes, rules: SessionRules) -> ClientSecretRequest:
    """An empty body asks for the defaults. A fault is an HTTP 400 (`error_codes.error_body`)."""
    fields = Fields(read_json(body or b"{}"), "", ("expires_after", "session"))
    expires = Fields(
        fields.optional("expires_after", json_object) or {}, "expires_after", ("anchor", "seconds")
    )
    expires.optional("anchor", option(("created_at",)))
    life_s = expires.optional("seconds", integer_between(MIN_LIFE_S, MAX_LIFE_S))
    config, model = parse_first_session(fields.optional("session", json_object), rules)
    return ClientSecretRequest(life_s or DEFAULT_LIFE_S, config, model)


def parse_first_session(
    session: JsonObject | None, rules: SessionRules
) -> tuple[SessionConfig, str | None]:
    """A session and the model it names, of a `session` object that comes before the connection."""
    if session is None:
        return initial_config(rules), None
    start = initial_config(rules, kind=requested_type(session))
    model = Fields(session, "session").optional("model", identifier)
    return apply_update(start, session, rules), model


def client_secret_body(
    request: ClientSecretRequest, *, value: str, expires_at: int, session_id: str, model: str
) -> bytes:
    """The JSON of the answer. `model`: the one named, or the server's default."""
    session = to_wire(request.config, session_id=session_id, model=model, expires_at=None)
    return encode(ClientSecret(value, expires_at, session))
