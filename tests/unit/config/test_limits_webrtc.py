"""The section `webrtc`: what is impossible is refused at the start, and its secret is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from session_server.config import load
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

SIM = Path("configs/sim.yaml")
TURN = {"webrtc.turn_username": "user", "webrtc.turn_credential": "pass"}


def test_servers_and_limits_are_read():
    servers = ["stun:a:3478", "turn:b:3478?transport=udp"]
    flags = {"webrtc.ice_servers": servers, "webrtc.silence_s": 2, **TURN}
    config = load(SIM, flags=flags).config
    assert config.webrtc.ice_servers == tuple(servers)
    assert config.webrtc.silence_s == 2.0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("webrtc.ice_servers", ["http://a"]),
        ("webrtc.host_addresses", ["localhost"]),
        ("webrtc.silence_s", 0),
        ("webrtc.max_setups", 0),
        ("webrtc.max_message_bytes", 1_000_000),
        ("webrtc.path_delay_ms", -1),
        ("webrtc.media_path", "fast"),
        ("webrtc.max_lateness_ms", 0),
        ("webrtc.video", "none"),
    ],
)
def test_what_cannot_work_is_refused_by_name(key: str, value: object):
    with pytest.raises(ConfigError, match=key):
        load(SIM, flags={key: value})


def test_the_credential_is_never_shown():
    flags = {"webrtc.turn_credential": 5}
    with pytest.raises(ConfigError) as caught:
        load(SIM, flags=flags)
    assert "5" not in str(caught.value).replace("webrtc.turn_credential", "")
    loaded = load(SIM, flags={"webrtc.turn_credential": "very-secret"})
    assert "very-secret" not in "\n".join(str(setting.value) for setting in loaded.settings())


@pytest.mark.parametrize("lacking", sorted(TURN))
def test_a_turn_server_that_no_browser_would_take_is_refused_by_name(lacking: str):
    flags = {**TURN, lacking: None, "webrtc.ice_servers": ["turn:b:3478"]}
    with pytest.raises(ConfigError, match=rf"{lacking}: is needed for the turn: servers"):
        load(SIM, flags=flags)
    load(SIM, flags={**flags, "webrtc.ice_servers": ["stun:b:3478"]})
