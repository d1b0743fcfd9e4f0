"""Engines of a configuration are measured into a profile that a simulation reads, whatever they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from engines.base import Stage
from engines.sim.cost_profile import parse_profile
from loadgen.lab.engine_profile import EngineProfile, measure_engines
from session_server.config import load
from session_server.types.errors import EngineFault

pytestmark = pytest.mark.integration


def measured(**options: object) -> tuple[EngineProfile, list[float]]:
    flags = {f"graph.stages.{key.replace('__', '.options.')}": v for key, v in options.items()}
    config = load(Path("configs/sim.yaml"), flags=flags).config
    shares: list[float] = []
    profile = measure_engines(
        config, "mine", 1, share_s=0.05, progress=lambda what, share: shares.append(share)
    )
    return profile, shares


def test_every_stage_of_a_graph_is_measured() -> None:
    profile, shares = measured()
    content = yaml.safe_load(profile.to_yaml())
    read = parse_profile(content, "mine")
    assert set(read.stages) == set(Stage) - {Stage.VISION}
    assert set(profile.residuals) == {stage.value for stage in read.stages}
    assert read.frames_per_char > 0
    assert 0 < read.devices["cpu"].sharing <= 1
    assert profile.steps > 100
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert "beside 8 sessions that are heard" in profile.to_yaml()


def test_an_engine_that_fails_is_named() -> None:
    with pytest.raises(EngineFault, match=r"^asr: "):
        measured(asr__fail_job_at_step=2)
