"""Keys: who is let in, ephemeral keys, and that keys never show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from session_server.http.auth import (
    ClientSecrets,
    Gate,
    Grant,
    Identity,
    OwnSecrets,
    asks_for_beta,
    credentials,
)

pytestmark = pytest.mark.unit


Identify = Callable[[str | None, int], Identity | None]


def gate(*keys: str) -> tuple[Identify, ClientSecrets]:
    """A gate that is asked at an instant, and its store."""
    secrets = ClientSecrets(capacity=3)

    def identify(key: str | None, now_s: int) -> Identity | None:
        return asyncio.run(Gate(keys, OwnSecrets(secrets, lambda: now_s)).identify(key))

    return identify, secrets


def test_without_keys_everyone_is_let_in():
    identify, _ = gate()
    for key in (None, "anything"):
        identity = identify(key, 0)
        assert identity is not None
        assert identity.grant is Grant.OPEN


@pytest.mark.parametrize("key", [None, "", "sk-", "sk-aa", "sk-A", "ek_unknown", "sk-\udcff"])
def test_with_keys_a_wrong_one_is_refused(key: str | None):
    identify, _ = gate("sk-a", "sk-b")
    assert identify(key, 0) is None


def test_each_configured_key_is_accepted():
    identify, _ = gate("sk-a", "sk-b")
    for key in ("sk-a", "sk-b"):
        identity = identify(key, 0)
        assert identity is not None
        assert identity.grant is Grant.SERVER_KEY


@pytest.mark.parametrize("keys", [(), ("sk-a",)])
def test_an_ephemeral_key_brings_its_session_until_it_expires(keys: tuple[str, ...]):
    identify, secrets = gate(*keys)
    value, expires_at = secrets.mint({"type": "realtime"}, 10, now_s=100)
    assert expires_at == 110
    assert value.startswith("ek_")
    for now in (100, 109):
        identity = identify(value, now)
        assert identity is not None
        assert identity.session is not None
        assert identity.session.session == {"type": "realtime"}
    late = identify(value, 110)
    assert (late is None) if keys else (late is not None and late.session is None)


def test_the_store_is_bounded_and_the_first_to_expire_goes_first():
    secrets = ClientSecrets(capacity=3)
    long, _ = secrets.mint(None, 100, 0)
    short, _ = secrets.mint(None, 10, 0)
    others = [secrets.mint(None, 50, 0)[0] for _ in range(2)]
    assert len(secrets) == 3
    assert secrets.find(short, 0) is None
    assert all(secrets.find(value, 0) for value in (long, *others))


def test_the_store_does_not_hold_the_keys_themselves():
    secrets = ClientSecrets(capacity=3)
    value, _ = secrets.mint(None, 100, 0)
    assert value not in repr(vars(secrets))


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"Authorization": "Bearer sk-a"}, "sk-a"),
        ({"Authorization": "bearer   sk-a "}, "sk-a"),
        ({"Authorization": "Basic sk-a"}, None),
        ({"Authorization": "Bearer"}, None),
        ({"Sec-WebSocket-Protocol": "realtime, openai-insecure-api-key.sk-b"}, "sk-b"),
        ({"Sec-WebSocket-Protocol": "realtime,openai-insecure-api-key."}, None),
        (
            {
                "Authorization": "Bearer sk-a",
                "Sec-WebSocket-Protocol": "openai-insecure-api-key.sk-b",
            },
            "sk-a",
        ),
        ({}, None),
    ],
)
def test_keys_are_read_from_header_or_subprotocol(headers: dict[str, str], key: str | None):
    assert credentials(headers) == key


def test_the_beta_dialect_is_recognised():
    assert asks_for_beta({"OpenAI-Beta": "assistants=v2, realtime = v1"})
    assert asks_for_beta({"Sec-WebSocket-Protocol": "realtime, openai-beta.realtime-v1"})
    assert not asks_for_beta({"OpenAI-Beta": "assistants=v2"})
