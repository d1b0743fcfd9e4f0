"""The load generator's users in the seats of a simulated host: what they do is seen by the server, and by nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadgen.drivers.simulated import SimulatedUsers
from loadgen.lab.simulation import simulate
from session_server.simulation.host_setup import find_profile
from session_server.simulation.replica import Replica
from session_server.simulation.sim_session import ScriptedWords
from session_server.simulation.spec import NetworkModel, SimulationSpec, Workload
from session_server.types.audio import OUTPUT_RATE

pytestmark = pytest.mark.sim

RESTLESS = Workload(
    barge_in=0.3,
    backchannel_per_s=0.2,
    false_start_per_min=8.0,
    early_start=0.4,
    hang_up=0.05,
    drop=0.05,
    call_limit_s=40.0,
)
SMALL = SimulationSpec(sessions=5, seconds=60.0, warm_up_s=5.0)


@pytest.mark.parametrize("mode", ["server_vad", "semantic_vad"])
def test_restless_users_are_served_and_the_books_balance(mode: str) -> None:
    spec = replace(SMALL, workload=RESTLESS, turn_mode=mode, speculate=True, seconds=50.0)
    report = simulate(spec)
    assert report.to_json() == simulate(spec).to_json()
    figures = report.figures
    assert figures["turns"] > 10
    assert figures["false_starts"]["count"] > 5
    assert figures["backchannels"]["count"] > 5
    assert figures["turns_ended"]["left"] >= 1
    assert figures["sessions_opened"] > 5
    assert figures["leaks"] == 0
    assert figures["barge_in"]["stale_samples"] == 0
    assert set(figures["error_kinds"]) <= {"no_audio"}


def test_semantic_turn_taking_survives_nods_that_stop_a_plain_detector() -> None:
    calm = Workload(barge_in=0.0, backchannel_per_s=0.2)
    cut = {
        mode: simulate(replace(SMALL, workload=calm, turn_mode=mode)).figures["backchannels"]
        for mode in ("server_vad", "semantic_vad")
    }
    assert cut["server_vad"]["cut"] > 3
    assert cut["semantic_vad"]["cut"] == 0


def test_users_and_network_draw_from_different_numbers() -> None:
    """The same users meet every policy: their first words do not depend on the network, nor on who is served first."""
    first = []
    for jitter, policy in ((0.0, "deadline"), (9.0, "fcfs")):
        spec = replace(SMALL, network=NetworkModel(jitter_ms=jitter), policy=policy, seconds=20.0)
        profile = find_profile(spec.profile)
        users = SimulatedUsers(spec, profile)
        Replica(spec, profile, 0, 5, new_occupant=users).run()
        turns = [record.turns[0] for record in users.records() if record.turns]
        first.append(sorted((turn.user, turn.u0, turn.u1) for turn in turns)[:5])
    assert first[0] == first[1]


def test_what_is_played_is_what_was_made_and_not_wasted() -> None:
    spec = replace(SMALL, workload=Workload(barge_in=0.7))
    profile = find_profile(spec.profile)
    users = SimulatedUsers(spec, profile)
    replica = Replica(spec, profile, 0, 5, new_occupant=users)
    end = replica.run()
    records = users.finish(end)
    played = sum(record.played_samples for record in records)
    received = sum(record.received_samples for record in records)
    made, wasted = replica.records.generated_samples, replica.records.wasted_samples
    assert played <= received <= made
    assert 0 < wasted <= made - played
    # at most what the server may run ahead of each listener is neither played nor wasted yet
    assert made - played - wasted <= 5 * 4 * OUTPUT_RATE


def test_a_slow_server_makes_users_give_up_and_that_is_a_failed_wait() -> None:
    impatient = Workload(barge_in=0.0, wait_limit_s=1.0)
    spec = replace(SMALL, workload=impatient, network=NetworkModel(delay_ms=700.0, jitter_ms=0.0))
    figures = simulate(spec).figures
    assert figures["turns_ended"].keys() == {"timeout"}
    assert figures["slo"]["failed_waits"] == figures["slo"]["count"] > 10
    assert not figures["slo"]["held"]


def test_a_noise_behind_a_question_does_not_take_its_words() -> None:
    words = ScriptedWords()
    words.say(0, 16_000, "turn 1 prompt 5 answer 9")
    words.say(17_000, 19_000, "")
    assert words.heard(0, 20_000).decode().endswith("turn 1 prompt 5 answer 9")
    assert words.heard(17_000, 20_000).decode().split(" ", 1)[1] == ""


def test_a_client_that_gathers_first_hears_later() -> None:
    first = [
        simulate(replace(SMALL, network=NetworkModel(preroll_ms=ms), seconds=30.0)).figures
        for ms in (0.0, 300.0)
    ]
    at_once, patient = (figures["ttfa_ms"]["p50"] for figures in first)
    assert patient == pytest.approx(at_once + 300, abs=40)
