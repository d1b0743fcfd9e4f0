"""A run that cannot be simulated is refused before it begins, by the name of what is wrong."""

from __future__ import annotations

import pytest

from session_server.simulation.spec import TURN_TOKENS, NetworkModel, SimulationSpec

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", ["slices_ms", "tokens_run", "frames_run"])
@pytest.mark.parametrize("value", [0, -5])
def test_a_run_without_steps_does_not_hang(name: str, value: int):
    with pytest.raises(ValueError, match=name):
        SimulationSpec(**{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_parameter_that_is_no_number_is_named(value: float):
    with pytest.raises(ValueError, match="lead_cap_s"):
        SimulationSpec(overrides=(("lead_cap_s", value),))


@pytest.mark.parametrize(
    ("name", "value"),
    [("delay_ms", -5.0), ("jitter_ms", float("nan")), ("loss", 2.0), ("loss", -1.0), ("delay_ms", 1e18)],
)  # fmt: skip
def test_a_network_that_cannot_be_is_named(name: str, value: float):
    with pytest.raises(ValueError, match=f"network.{name}"):
        NetworkModel(**{name: value})


@pytest.mark.parametrize("name", ["silence_ms", "release_ms", "max_sessions"])
def test_a_negative_count_or_span_is_named(name: str):
    with pytest.raises(ValueError, match=f"{name} must be in 0"):
        SimulationSpec(**{name: -1})


@pytest.mark.parametrize("tokens", [-4, 1, 10, TURN_TOKENS - 1])
def test_memory_without_room_for_one_turn_is_named(tokens: int):
    with pytest.raises(ValueError, match="kv_pool_tokens must be 0"):
        SimulationSpec(kv_pool_tokens=tokens)
