"""What the client takes for a server's address."""

from __future__ import annotations

import pytest

from session_server.client.realtime_client import websocket_url
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("localhost:8000", "ws://localhost:8000/v1/realtime"),
        ("[::1]:8000", "ws://[::1]:8000/v1/realtime"),
        ("http://127.0.0.1:9000", "ws://127.0.0.1:9000/v1/realtime"),
        ("http://127.0.0.1:9000/v1/", "ws://127.0.0.1:9000/v1/realtime"),
        ("https://example.org", "wss://example.org/v1/realtime"),
        ("wss://example.org/v1/realtime?model=m", "wss://example.org/v1/realtime?model=m"),
        ("WS://example.org/realtime", "ws://example.org/realtime"),
        ("h:1/other", "ws://h:1/other"),
    ],
)
def test_an_address_in_any_spelling_is_a_websocket(address: str, url: str):
    assert websocket_url(address) == url


@pytest.mark.parametrize("address", ["", "ftp://h", "h:port", "ws://", "://h", "[::1", "h:70000"])
def test_what_is_no_address_is_named(address: str):
    with pytest.raises(ConfigError, match="not a server's address"):
        websocket_url(address)
