"""What was recorded of a run, fed back into fresh cores, gives the same actions; a changed record is noticed."""

from __future__ import annotations

import io

import pytest

from loadgen.drivers.simulated import SimulatedUsers
from session_server.core import conversation, events, settings
from session_server.recording.recorder import Recorder, pack, replay, unpack
from session_server.simulation.host_setup import find_profile
from session_server.simulation.replica import Replica
from session_server.simulation.spec import NetworkModel, SimulationSpec, Workload
from session_server.types.errors import ConfigError
from session_server.types.tools import Tool

pytestmark = pytest.mark.sim


def recorded(mode: str, acks: int = 200) -> bytes:
    out = io.BytesIO()
    workload = Workload(barge_in=0.6, backchannel=0.3)
    spec = SimulationSpec(
        sessions=4,
        seconds=50.0,
        warm_up_s=5.0,
        turn_mode=mode,
        speculate=True,
        workload=workload,
        network=NetworkModel(ack_interval_ms=acks),
    )
    profile = find_profile(spec.profile)
    Replica(spec, profile, 0, 4, Recorder(out), SimulatedUsers(spec, profile)).run()
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "acks"), [("server_vad", 200), ("semantic_vad", 200), ("server_vad", 0)]
)
def test_a_replay_takes_the_same_decisions(mode: str, acks: int) -> None:
    same, differences = replay(recorded(mode, acks).splitlines())
    assert not differences
    assert same > 1000


def test_a_lost_event_shows() -> None:
    lines = recorded("server_vad").splitlines()
    at = next(i for i, line in enumerate(lines) if b"TranscriptReady" in line)
    _, differences = replay([*lines[:at], *lines[at + 1 :]])
    assert len(differences) == 1


def test_values_survive() -> None:
    message = conversation.Message(
        "item_1",
        conversation.Role.USER,
        conversation.ItemStatus.COMPLETED,
        (conversation.TextContent("hi"),),
    )
    for value in (
        events.ItemCreated(message, None, "e"),
        events.SettingsChanged(settings.SessionSettings(tools=(Tool("a", "b", "{}"),))),
        events.ResponseRequested(settings.ResponseOverrides(), (message,)),
        events.AudioGenerated("r", 5, b"\x01\x02"),
        settings.CoreParams(),
    ):
        assert unpack(pack(value)) == value


@pytest.mark.parametrize("line", [b"{", b'{"session":1}', b'{"session":"s","at":0,"kind":[]}'])
def test_what_is_no_record_is_named(line: bytes) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        replay([line])
