"""From names and NAME=VALUE texts to a run: what is set, what wins, and complaints that list what there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadgen.lab.candidates import (
    CHUNKINGS,
    POLICIES,
    Candidate,
    LabSetting,
    candidate,
    parse_sets,
    parse_variant,
    spec_of,
)
from session_server.simulation.spec import CameraUse
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

DEADLINE = candidate("deadline", "adaptive")


def sets(*texts: str) -> LabSetting:
    return LabSetting(sets=parse_sets(texts))


def test_the_default_is_the_default_run():
    spec = spec_of(LabSetting(), DEADLINE, 40, 3)
    assert (spec.policy, spec.chunking, spec.sessions, spec.seed) == ("deadline", "adaptive", 40, 3)
    assert (spec.seconds, spec.warm_up_s, spec.workload.name) == (400.0, 60.0, "mixed")
    assert (spec.barge_in, spec.admission, spec.overrides) == (None, False, ())


def test_cameras_of_a_workload_can_be_set_one_by_one():
    base = spec_of(LabSetting(workload="cameras"), DEADLINE, 4, 0).workload.camera
    assert base is not None
    off = replace(sets("workload.camera.kind=none"), workload="cameras")
    assert spec_of(off, DEADLINE, 4, 0).workload.camera == replace(base, kind="none")
    fresh = sets("workload.camera.kind=pan", "workload.camera.share=0.25")
    assert spec_of(fresh, DEADLINE, 4, 0).workload.camera == CameraUse("pan", share=0.25)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload.camera.kind=film", r"workload\.camera\.kind: must be one of"),
        ("workload.camera.zoom=2", r"workload\.camera\.zoom: no such number; there are .*fps"),
        ("workload.camera.fps=fast", r"workload\.camera\.fps: must be a number"),
        ("workload.lens.fps=3", "workload.camera.NAME and plain names"),
    ],
)
def test_cameras_that_cannot_be_are_named(text: str, said: str):
    with pytest.raises(ConfigError, match=said):
        spec_of(sets(text), DEADLINE, 4, 0)


def test_a_short_run_has_a_short_warm_up():
    assert spec_of(LabSetting(seconds=40.0), DEADLINE, 1, 0).warm_up_s == 10.0
    assert spec_of(LabSetting(seconds=40.0, warm_up_s=3.0), DEADLINE, 1, 0).warm_up_s == 3.0


def test_sets_reach_scheduler_network_workload_and_run():
    spec = spec_of(
        sets("lead_cap_s=4", "network.loss=0.02", "workload.turns=3", "speculate=on", "kv_eviction=lru", "chunk_ladder_s=0.08/0.5"),
        DEADLINE, 8, 0,
    )  # fmt: skip
    assert spec.overrides == (
        ("lead_cap_s", 4),
        ("kv_eviction", "lru"),
        ("chunk_ladder_s", "0.08/0.5"),
    )
    assert (spec.network.loss, spec.workload.turns, spec.speculate) == (0.02, 3.0, True)


def test_a_variants_own_sets_win():
    wide = parse_variant("wide:deadline,stock,lead_cap_s=6")
    assert wide == Candidate("wide", "deadline", "stock", (("lead_cap_s", "6"),))
    spec = spec_of(sets("lead_cap_s=4", "network.loss=0.1"), wide, 8, 0)
    assert dict(spec.overrides) == {"lead_cap_s": 6}
    assert spec.network.loss == 0.1


def test_every_candidate_can_run():
    for policy in POLICIES:
        for chunking in CHUNKINGS:
            spec_of(LabSetting(), candidate(policy, chunking), 1, 0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("lead_cap=4", "no scheduler parameter lead_cap; there are .*lead_cap_s"),
        ("lead_cap_s=wide", "lead_cap_s: must be a number, not 'wide'"),
        ("lead_cap_s=on", "lead_cap_s: must be a number, not True"),
        ("lead_cap_s=-4", "lead_cap_s: -4 is not within 0.1 and 600"),
        ("lead_cap_s=nan", "lead_cap_s: nan is not within"),
        ("prefill_tokens=0", "prefill_tokens: 0 is not within 1"),
        ("prefill_tokens=2.5", "prefill_tokens: must be a whole number, not 2.5"),
        ("late_rule=abc", "late_rule: must be on or off, not 'abc'"),
        ("chunk_ladder_s=abc", "chunk_ladder_s: must be numbers with slashes"),
        ("kv_eviction=oldest", "kv_eviction: must be one of next_use, lru, off, not 'oldest'"),
        ("workload.turns=0.5", "workload.turns: a session has at least one"),
        ("workload.drop=-1", "workload.drop: must be within 0 and 1"),
        ("workload.wait_limit_s=nan", "workload.wait_limit_s: must be within"),
        ("workload.turns=abc", r"workload\.turns: must be a number"),
        ("kv_pool_tokens=-4", "kv_pool_tokens must be 0"),
        ("kv_pool_tokens=10", "kv_pool_tokens must be 0"),
        ("kv_pool_tokens=abc", "kv_pool_tokens: must be a whole number"),
        ("silence_ms=-1", "silence_ms must be"),
        ("max_sessions=-1", "max_sessions must be"),
        ("chunk_ladder_s=0.4/0.1", "chunk_ladder_s must rise"),
        ("network.los=1", r"network\.los: no such number; there are .*loss"),
        ("network.loss=much", r"network\.loss: must be a number"),
        ("workload.speech_s=3", r"workload\.speech_s: no such number"),
        ("user.age=3", r"there are network\.NAME"),
        ("lead_cap_s", "is not NAME=VALUE"),
        ("=3", "is not NAME=VALUE"),
    ],
)
def test_a_wrong_set_is_named(text: str, named: str):
    with pytest.raises(ConfigError, match=named):
        spec_of(sets(text), DEADLINE, 8, 0)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("deadline", "is not NAME:POLICY"),
        ("a:", "is not NAME:POLICY"),
        ("a:edf", "no policy edf; there are fcfs, liveserve, deadline"),
        ("a:fcfs,big", "no chunking big; there are stock, adaptive"),
        ("a:fcfs,stock,adaptive", "more than one chunk rule"),
    ],
)
def test_a_wrong_variant_is_named(text: str, named: str):
    with pytest.raises(ConfigError, match=named):
        parse_variant(text)


def test_names_that_do_not_exist_are_answered_with_those_that_do():
    with pytest.raises(ConfigError, match=r"no profile abacus; there are .*qwen3-omni-h200"):
        spec_of(LabSetting(profile="abacus"), DEADLINE, 1, 0)
    with pytest.raises(ConfigError, match=r"no workload calm; there are .*mixed"):
        spec_of(LabSetting(workload="calm"), DEADLINE, 1, 0)
    with pytest.raises(ConfigError, match="longer than its warm-up"):
        spec_of(LabSetting(seconds=10.0, warm_up_s=10.0), DEADLINE, 1, 0)


def test_more_interruptions_than_answers_are_named():
    with pytest.raises(ConfigError, match="--barge-in and the workload's backchannel"):
        spec_of(replace(sets("workload.backchannel=0.5"), barge_in=0.6), DEADLINE, 1, 0)
