"""What people are told when a call cannot be begun, and which addresses an offer has."""

from __future__ import annotations

import ssl

import aiohttp
import aioice.ice
import pytest

from loadgen.drivers import signalling
from loadgen.drivers.signalling import CallRefused, describe, offer_addresses
from loadgen.drivers.wire import message_of

pytestmark = pytest.mark.unit

URL = "http://h/v1/realtime/calls"
_KEY = aiohttp.client_reqrep.ConnectionKey("h", 443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("fault", "said", "kind"),
    [
        (CallRefused(401, "x"), "HTTP 401: the server wants a key", "http:401"),
        (CallRefused(404, ""), "HTTP 404: no calls are served here", "http:404"),
        (CallRefused(501, ""), "HTTP 501: no calls are served here", "http:501"),
        (CallRefused(503, "full"), "HTTP 503: the server takes no more", "http:503"),
        (CallRefused(400, "No Opus."), "HTTP 400: No Opus.", "http:400"),
        (CallRefused(500, ""), "HTTP 500: the server refused the call", "http:500"),
        (TimeoutError(), "the call does not connect: does UDP get through?", "connect:timeout"),
        (OSError("x"), "not a server of calls (x)", "connect:http"),
        (
            aiohttp.ClientConnectorCertificateError(_KEY, ssl.SSLCertVerificationError("x")),
            "SSL_CERT_FILE=FILE",
            "connect:certificate",
        ),
        (ConnectionRefusedError("x"), "is the server running? (x)", "connect:refused"),
        (aiohttp.ServerDisconnectedError("x"), "is the server running? (x)", "connect:refused"),
        (aiohttp.ClientPayloadError("x"), "not a server of calls (x)", "connect:http"),
    ],
)
def test_every_refusal_is_one_clear_line(fault: Exception, said: str, kind: str):
    line, key = describe(fault, URL)
    assert line.startswith(f"{URL}: ")
    assert said in line
    assert key == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": {"message": "no"}}', "no"),
        ("plain  words", "plain words"),
        ("<html>page</html>", ""),
        ('{"error": "x"}', '{"error": "x"}'),
    ],
)
def test_the_servers_own_words_are_passed_on(text: str, message: str):
    assert message_of(text) == message


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("[::1]", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback_is_offered_to_a_server_on_this_machine_only(
    host: str, loopback: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(aioice.ice, "get_host_addresses", None)
    offer_addresses(f"http://{host}:8000/v1")
    assert (aioice.ice.get_host_addresses is signalling._loopback) is loopback
