"""The same spec gives the same report, byte for byte; another seed another one; nothing is left over."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from loadgen.lab.simulation import simulate
from session_server.simulation.spec import NetworkModel, SimulationSpec, Workload

pytestmark = pytest.mark.sim

SMALL = SimulationSpec(sessions=6, seconds=45.0, warm_up_s=10.0)


@pytest.mark.parametrize("policy", ["fcfs", "liveserve", "deadline"])
@pytest.mark.parametrize("chunking", ["stock", "adaptive"])
def test_same_seed_same_bytes(policy: str, chunking: str) -> None:
    spec = replace(SMALL, policy=policy, chunking=chunking)
    first = simulate(spec).to_json()
    assert first == simulate(spec).to_json()
    figures = json.loads(first)
    assert figures["policy"] == policy
    assert figures["turns"] > 5
    assert figures["errors"] == 0
    assert figures["barge_in"]["stale_samples"] == 0


def test_another_seed_gives_another_report() -> None:
    """Users and network draw from it, whatever the policy."""
    assert simulate(SMALL).to_json() != simulate(replace(SMALL, seed=1)).to_json()


def test_cpu_profile_runs_through_clauses() -> None:
    figures = simulate(replace(SMALL, profile="cpu-default", sessions=3)).figures
    assert figures["turns"] > 2
    assert figures["errors"] == 0
    assert figures["stages"]["codec"]["steps"] > 20


@pytest.mark.parametrize("mode", ["server_vad", "semantic_vad"])
def test_a_rough_network_and_restless_users(mode: str) -> None:
    workload = Workload(
        barge_in=0.5, backchannel=0.4, hang_up=0.05, drop=0.05, turns=4.0, arrivals="poisson"
    )
    network = NetworkModel(delay_ms=80, jitter_ms=20, loss=0.02, preroll_ms=60)
    spec = replace(
        SMALL, workload=workload, network=network, turn_mode=mode, speculate=True, seconds=90.0
    )
    figures = simulate(spec).figures
    assert figures["turns"] > 5
    assert figures["barge_in"]["stale_samples"] == 0


def test_a_stock_client_without_acknowledgements() -> None:
    figures = simulate(replace(SMALL, network=NetworkModel(ack_interval_ms=0))).figures
    assert figures["turns"] > 5
    assert figures["barge_in"]["stopped"] > 0


def test_replicas_share_nothing() -> None:
    two = simulate(replace(SMALL, sessions=6, replicas=2)).figures
    assert two["sessions_opened"] >= 6
    assert two["replicas"] == 2


def test_a_duplex_profile_counts_ticks() -> None:
    calm = simulate(replace(SMALL, profile="moshi-duplex", sessions=8)).figures
    full = simulate(replace(SMALL, profile="moshi-duplex", sessions=40)).figures
    assert calm["frame_deficit_per_min"] < full["frame_deficit_per_min"]
