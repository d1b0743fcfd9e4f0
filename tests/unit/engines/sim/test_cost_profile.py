"""Cost profiles: what a step costs, and what is said about a wrong file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.base import Stage
from engines.sim.cost_profile import StageCost, Table, load_profile, parse_profile
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

PROFILES = sorted(Path("configs/profiles").glob("*.yaml"))


def test_between_points_a_table_is_linear_and_beyond_them_it_goes_on() -> None:
    table = Table(((1.0, 10.0), (4.0, 16.0), (8.0, 20.0)))
    assert [table.at(b) for b in (0, 1, 2, 4, 6, 8, 12)] == [10, 10, 12, 16, 18, 20, 24]


def test_a_prompt_comes_on_top_of_the_tokens() -> None:
    cost = StageCost(
        Stage.THINKER,
        "gpu",
        8,
        steps=Table(((1.0, 10.0),)),
        prefill_floor_ms=27.0,
        prefill_per_token_ms=0.5,
        host_gap_ms=1.0,
    )
    assert cost.step_ns(3, 3) == 11 * NS_PER_MS
    assert cost.step_ns(3, 3, 100) == (11 + 27 + 50) * NS_PER_MS
    assert cost.step_ns(0, 0, 100) == (1 + 27 + 50) * NS_PER_MS


def test_a_vocoder_recomputes_context_and_gains_by_batching() -> None:
    cost = StageCost(
        Stage.VOCODER,
        "gpu",
        8,
        base_ms=4.0,
        per_unit_ms=0.5,
        left_context=10,
        batch_gain=Table(((1.0, 1.0), (2.0, 1.6))),
    )
    assert cost.step_ns(1, 6) == 12 * NS_PER_MS
    assert cost.step_ns(2, 6) == 15 * NS_PER_MS


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_shipped_profiles_load(path: Path) -> None:
    profile = load_profile(path)
    assert profile.name == path.stem
    assert profile.kind == "duplex" or Stage.THINKER in profile.stages


def test_an_inherited_table_is_replaced_whole() -> None:
    kernel = load_profile(Path("configs/profiles/qwen3-omni-h200-kernel.yaml"))
    thinker = kernel.stages[Stage.THINKER]
    assert thinker.steps is not None
    assert [b for b, _ in thinker.steps.points] == [1, 32]
    assert thinker.prefill_floor_ms == 27


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "must be a mapping"),
        ("a: [", "not YAML"),
        ("name: x\nfoo: 1", "foo: unknown key"),
        ("name: x\nstages: {brain: {}}", "brain"),
        ("name: x\nstages: {talker: {speed: 3}}", "stages.talker.speed"),
        ("name: x\nstages: {talker: {step_ms: {}}}", "a table needs a point"),
        ("kind: cascade", "name"),
        ("name: x\nhandover_ms: -1", "handover_ms: must be a finite number of 0 or more, not -1"),
        ("name: x\nrate: 0", "rate: must be a finite number above 0, not 0"),
        ("name: x\njitter: {sigma: .nan}", "jitter.sigma: must be a finite number"),
        ("name: x\nstages: {asr: {step_ms: {1: -3.0}}}", r"stages.asr.step_ms.1: .* not -3.0"),
        ("name: x\nstages: {asr: {step_ms: {1: .inf}}}", "stages.asr.step_ms.1: .* not inf"),
        (
            "name: x\nstages: {asr: {linear: {base: 'nan'}}}",
            "stages.asr.linear.base: must be a num",
        ),
        ("name: x\nstages: {asr: {max_batch: 0}}", "stages.asr.max_batch: .* above 0"),
        ("name: x\nstages: {vocoder: {chunk: {batch_gain: {1: 0}}}}", "batch_gain.1: .* above 0"),
        ("name: x\nkv: {pool_tokens: -5}", "kv.pool_tokens"),
        ("name: x\nscheduler: {first_audio_s: -0.5}", "scheduler.first_audio_s"),
        ("inherit: nowhere", "No such file"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_profile(path)


def test_a_profile_that_inherits_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("inherit: b")
    (tmp_path / "b.yaml").write_text("inherit: a")
    with pytest.raises(ConfigError, match="inherits itself"):
        load_profile(tmp_path / "a.yaml")


def test_a_profile_without_stages_is_a_profile() -> None:
    assert parse_profile({"name": "x", "kind": "duplex"}, "here").stages == {}
