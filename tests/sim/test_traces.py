"""What users of a recorded run did is found in its trace: how long they spoke, rested, and where they broke in."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from loadgen.drivers.simulated import SimulatedUsers
from loadgen.records import UserRecord
from session_server.recording.recorder import Recorder
from session_server.simulation.host_setup import find_profile
from session_server.simulation.replica import Replica
from session_server.simulation.spec import NetworkModel, SimulationSpec, Workload
from session_server.simulation.trace import (
    Trace,
    TraceSession,
    TraceTurn,
    read_trace,
    trace_mapping,
)
from session_server.simulation.trace_of_record import trace_of_record
from session_server.types.audio import NS_PER_S
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.sim

STILL = NetworkModel(delay_ms=0.0, jitter_ms=0.0)


def recorded(workload: Workload, mode: str = "server_vad") -> tuple[Trace, list[UserRecord]]:
    out = io.BytesIO()
    spec = SimulationSpec(
        sessions=4,
        seconds=60.0,
        warm_up_s=5.0,
        workload=workload,
        network=STILL,
        speculate=True,
        turn_mode=mode,
    )
    profile = find_profile(spec.profile)
    users = SimulatedUsers(spec, profile)
    ended = Replica(spec, profile, 0, 4, Recorder(out), users).run()
    return trace_of_record(out.getvalue().splitlines()), users.finish(ended)


def test_a_trace_tells_what_the_users_did() -> None:
    trace, records = recorded(Workload(barge_in=0.5, turns=1000.0))
    heard = [t for r in records for t in r.turns if t.first_audible is not None]
    turns = [turn for session in trace.sessions for turn in session.turns]
    assert len(trace.sessions) == 4
    assert abs(len(turns) - len(heard)) <= 4  # the last answer of each may only just have begun
    spoken = sorted(turn.speech_s for turn in turns)
    said = sorted((turn.u1 - turn.u0) / NS_PER_S for turn in heard)
    if len(spoken) == len(said):
        assert spoken == pytest.approx(said, abs=0.07)  # two frames of the detector
    broken = sum(turn.barge_in_s is not None for turn in turns)
    assert abs(broken - sum(len(record.barge_ins) for record in records)) <= 4
    assert broken > 5
    rests = [turn.rest_s for session in trace.sessions for turn in session.turns[1:]]
    rests = [rest for rest in rests if rest > 0]
    assert min(rests) > 0.4  # nobody thinks for less than half a second


def test_a_nod_is_not_a_turn() -> None:
    workload = Workload(barge_in=0.0, backchannel=0.9, turns=1000.0)
    trace, records = recorded(workload, "semantic_vad")
    nods = [nod for session in trace.sessions for turn in session.turns for nod in turn.nods]
    said = [nod for record in records for nod in record.backchannels if not nod.cut]
    assert abs(len(nods) - len(said)) <= 4
    assert len(nods) > 3
    assert all(0.1 <= length <= 0.8 for _, length in nods)


TRACE = Trace(
    (
        TraceSession(
            0.5,
            (
                TraceTurn(2.125, 17, 30, 0.75, barge_in_s=1.25, nods=((0.5, 0.4),)),
                TraceTurn(1.5, 12, 9, leave_s=0.2),
            ),
        ),
        TraceSession(0.0, (TraceTurn(0.4, 8, 1),)),
    ),
    system_tokens=60,
)


def test_a_trace_survives_its_file() -> None:
    assert read_trace(yaml.safe_load(yaml.safe_dump(trace_mapping(TRACE)))) == TRACE


def _broken(path: str, value: object) -> Any:
    content: Any = yaml.safe_load(yaml.safe_dump(trace_mapping(TRACE)))
    *way, last = path.split(".")
    at = content
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if isinstance(at, Mapping):
        content_of: Any = at
        content_of[last] = value
    else:
        at[int(last)] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("sessions", [], "sessions: must be a list that is not empty"),
        ("sessions", "abc", "sessions: must be a list"),
        ("sessions.0", 3, "session 1: must be a mapping"),
        ("sessions.1.turns", [], "session 2: turns: must be a list that is not empty"),
        ("sessions.0.turns.0.speech_s", -1, "session 1, turn 1: speech_s: -1 is not within"),
        ("sessions.0.turns.0.speech_s", "2 s", "speech_s: must be a number of seconds, not '2 s'"),
        ("sessions.0.turns.0.speech_s", float("nan"), "speech_s: nan is not within"),
        ("sessions.0.turns.1.answer_tokens", 0, "turn 2: answer_tokens: 0 is not within 1 and"),
        ("sessions.0.turns.1.answer_tokens", True, "answer_tokens: must be a whole number"),
        ("sessions.0.turns.1.barge_in_s", 1.0, "turn 2: barge_in_s: no turn follows"),
        ("sessions.0.turns.0.nods", [[1]], "nods: must be a list of"),
        ("sessions.0.turns.0.says", "hello", "says: unknown key; there are answer_tokens,"),
        ("system_tokens", -1, "system_tokens: -1 is not within"),
    ],
)
def test_what_is_wrong_with_a_trace_is_named(path: str, value: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_trace(_broken(path, value))
    assert said in str(caught.value)


@pytest.mark.parametrize("lines", [[], [b"{"], [b'{"session":"s","at":0,"kind":"head"}']])
def test_what_is_no_record_is_said(lines: list[bytes]) -> None:
    with pytest.raises(ConfigError, match="record"):
        trace_of_record(lines)
