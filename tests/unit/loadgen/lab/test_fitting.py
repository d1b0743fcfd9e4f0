"""A profile fitted to steps of known cost gives that cost back, and says how far off it is."""

from __future__ import annotations

import random

import pytest
import yaml

from engines.base import Capabilities, Stage
from engines.sim.cost_profile import parse_profile
from loadgen.lab.fitting import fit_profile, line
from loadgen.lab.stopwatch import Timing, Timings
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

CODEC = (2.0, 0.5, 0.1)
TABLE = {1: 12.0, 2: 15.0, 4: 21.0, 8: 33.0}


def steps(noise: float, spikes: float = 0.0) -> Timings:
    """Steps that cost what a simple law says, times lognormal noise."""
    rng = random.Random(7)
    timings = Timings(characters=100, frames=533, text=400, words=80, tokens=100)

    def add(stage: Stage, batch: int, units: float, ms: float, prompt: int = 0) -> None:
        factor = rng.lognormvariate(0.0, noise) if noise else 1.0
        factor *= 5.0 if rng.random() < spikes else 1.0
        timings.steps.append(Timing(stage, batch, units, ms * factor, prompt))

    for _ in range(15):
        for seconds in (0.6, 0.9, 1.5, 3.0):
            add(Stage.ASR, 1, seconds, 8 + 38 * seconds)
            add(Stage.TURN, 1, seconds, 55)
        for characters in (4, 20, 60, 110):
            add(Stage.TALKER, 1, characters, 3 + 0.2 * characters)
        for batch in (1, 2):
            for frames in (4, 8, 16, 32):
                base, item, unit = CODEC
                add(Stage.CODEC, batch, frames * batch, base + item * batch + unit * frames * batch)
        for batch in (1, 2, 4):
            add(Stage.VOCODER, batch, 16 * batch, 0.2 + 0.03 * 16 * batch)
        for width in (8, 16, 32, 64):
            add(Stage.THINKER, 0, 1, 4 + width / 0.5, width)
        for batch, ms in TABLE.items():
            add(Stage.THINKER, batch, batch, ms)
    return timings


STAGES = (Stage.ASR, Stage.TURN, Stage.THINKER, Stage.TALKER, Stage.CODEC, Stage.VOCODER)


def fitted(timings: Timings) -> tuple[dict[str, object], dict[str, float]]:
    capabilities = {
        stage: Capabilities(
            stage,
            8,
            8 if stage is Stage.THINKER else None,
            300,
            24_000,
            context_tokens=1024 * (stage is Stage.THINKER),
        )
        for stage in STAGES
    }
    batches = {stage: 8 if stage is Stage.THINKER else 2 for stage in STAGES}
    return fit_profile("mine", timings, capabilities, batches, cores=2, sharing=0.8)


def test_known_costs_come_back_and_the_simulation_reads_them() -> None:
    content, residuals = fitted(steps(noise=0.0))
    profile = parse_profile(yaml.safe_load(yaml.safe_dump(content)), "mine")

    def ms(stage: Stage, batch: int, units: int, prompt: int = 0) -> float:
        return profile.stages[stage].step_ns(batch, units, prompt) / NS_PER_MS

    assert ms(Stage.CODEC, 2, 24) == pytest.approx(2 + 2 * 0.5 + 2.4, rel=0.02)
    assert ms(Stage.TALKER, 1, 40) == pytest.approx(11, rel=0.02)
    assert ms(Stage.THINKER, 4, 4) == pytest.approx(21, rel=0.01)
    assert ms(Stage.THINKER, 0, 0, 64) == pytest.approx(132, rel=0.02)
    asr = profile.stages[Stage.ASR]
    assert asr.base_ms + 2 * asr.per_unit_ms == pytest.approx(84, rel=0.02)
    assert profile.stages[Stage.THINKER].slots == 8
    assert profile.stages[Stage.THINKER].prompt_room == 640
    assert profile.tokens_per_word == 1.25
    assert profile.frames_per_char == 5.33
    assert profile.frames_per_token == pytest.approx(4 * 5.33)
    assert profile.devices["cpu"].sharing == 0.8
    assert max(residuals.values()) < 0.02


def test_the_residual_says_when_a_line_does_not_fit() -> None:
    timings = steps(noise=0.0)
    timings.steps += [Timing(Stage.ASR, 1, 2.0, 5.0), Timing(Stage.ASR, 1, 2.5, 500.0)] * 9
    assert fitted(timings)[1]["asr"] > 0.05


def test_spread_and_spikes_are_measured() -> None:
    jitter = fitted(steps(noise=0.1, spikes=0.02))[0]["jitter"]
    assert isinstance(jitter, dict)
    assert 0.07 < jitter["sigma"] < 0.13
    assert 25 < jitter["spike_every"] < 110
    assert 4 < jitter["spike_factor"] < 6.5


def test_no_cost_is_negative() -> None:
    assert line([[1.0, x] for x in (1.0, 2.0, 3.0)], [9.0, 8.0, 7.0])[1] == 0.0
    assert line([[1.0, x] for x in (10.0, 20.0, 40.0)], [1.0, 2.5, 6.0])[0] == 0.0


def test_more_jobs_never_take_less_time() -> None:
    timings = steps(noise=0.0)
    timings.steps += [Timing(Stage.THINKER, 3, 3, 14.0)] * 5
    table = parse_profile(fitted(timings)[0], "mine").stages[Stage.THINKER].steps
    assert table is not None
    costs = [ms for _, ms in table.points]
    assert costs == sorted(costs)


def test_a_thinker_that_never_answers_is_named() -> None:
    timings = steps(noise=0.0)
    timings.steps = [s for s in timings.steps if s.stage is not Stage.THINKER or s.prompt]
    with pytest.raises(ConfigError, match="thinker gave no answer"):
        fitted(timings)
