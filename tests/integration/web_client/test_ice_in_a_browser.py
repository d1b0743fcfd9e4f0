"""STUN and TURN reach the browser, and a browser that may use nothing but a relay can talk."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.web_client.conftest import OPEN, Opener, of_client, serving, state

pytestmark = pytest.mark.integration

TURNSERVER = shutil.which("turnserver")
CONFIGURED = """() => {
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(options) {
      super(options);
      window.iceServers = options.iceServers;
    }
  };
}"""
RELAY_ONLY = """() => {
  window.RTCPeerConnection = class extends RTCPeerConnection {
    constructor(options) {
      super({ ...options, iceTransportPolicy: 'relay' });
    }
  };
}"""
OWN_CANDIDATE = """(async () => {
  const stats = await client.connection.peer.getStats();
  const { selectedCandidatePairId } = [...stats.values()].find((entry) => entry.type === 'transport');
  return stats.get(stats.get(selectedCandidatePairId).localCandidateId).candidateType;
})()"""
TURN: dict[str, object] = {"webrtc__turn_username": "user", "webrtc__turn_credential": "secret"}


def test_the_pages_connection_gets_the_servers_that_are_configured(open_page: Opener):
    servers = ("stun:127.0.0.1:9", "turn:127.0.0.1:9?transport=udp")
    with serving(webrtc__ice_servers=servers, auth__keys=("sk-page",), **TURN) as running:
        page = open_page(running.url)
        page.evaluate(CONFIGURED)
        page.route("**/v1/realtime/calls", lambda route: route.abort())
        page.fill("input[name=key]", "sk-page")
        page.click("#connect")
        page.wait_for_selector("#fault:not([hidden])")
        assert page.evaluate("window.iceServers") == [
            {"urls": [servers[0]]},
            {"urls": [servers[1]], "username": "user", "credential": "secret"},
        ]


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[str]:
    """The URL of a TURN server on loopback."""
    if TURNSERVER is None:
        pytest.skip("coturn is not installed")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        TURNSERVER, "-n", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", f"--listening-port={port}",
        "--allow-loopback-peers", "--lt-cred-mech", "--user=user:secret", "--realm=test", "--no-tls", "--no-dtls",
        "--no-cli", "--log-file=stdout", f"--pidfile={tmp_path / 'pid'}", f"--userdb={tmp_path / 'db'}",
        "--min-port=49152", "--max-port=65535",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until_it_answers(port)
            yield f"turn:127.0.0.1:{port}?transport=udp"
        finally:
            process.terminate()


def until_it_answers(port: int) -> None:
    """Ask for a binding until there is an answer."""
    request = bytes.fromhex("000100002112a442") + bytes(12)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(0.2)
        for _ in range(300):
            try:
                asking.sendto(request, ("127.0.0.1", port))
                asking.recv(1500)
            except OSError:  # not there yet
                continue
            return
    pytest.fail("the TURN server does not answer")


def test_a_browser_behind_a_relay_can_talk(relay: str, open_page: Opener):
    with serving(webrtc__ice_servers=(relay,), **TURN) as running:
        page = open_page(running.url)
        page.evaluate(RELAY_ONLY)
        page.click("#connect")
        state(page, *OPEN)
        assert of_client(page, OWN_CANDIDATE) == "relay"
        state(page, "speaking")
        page.click("#connect")
        state(page, "idle")
