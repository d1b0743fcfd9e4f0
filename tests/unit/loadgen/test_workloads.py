"""Scenario files: every shipped one loads, the default equals the simulation's, complaints name file and key."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from loadgen.workloads import MOST_OF_SPAN, RANGES, find_workload, workload_names
from session_server.simulation.spec import Distribution, NetworkModel, SimulationSpec, Workload
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

PROMISED = {
    "mixed", "interactive", "long-answer", "bursty-poisson", "bursty-gamma", "ramp", "closed-steady",
    "closed-eager", "noisy", "lifelike", "drops", "multi-turn", "cameras",
}  # fmt: skip


def test_the_promised_ones_are_there():
    assert set(workload_names()) >= PROMISED


@pytest.mark.parametrize("name", sorted(PROMISED))
def test_each_says_what_it_is_and_can_be_simulated(name: str):
    found = find_workload(name)
    assert found.about
    assert found.workload.name == name
    SimulationSpec(workload=found.workload, network=found.network)
    others = [find_workload(other) for other in PROMISED - {name}]
    assert all(
        replace(found.workload, name="") != replace(other.workload, name="")
        or found.network != other.network
        for other in others
    )


def test_mixed_is_the_default_of_a_simulation():
    found = find_workload("mixed")
    assert found.workload == Workload()
    assert found.network == NetworkModel()


def test_a_number_too_large_for_a_float_is_one_line_that_names_the_key(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"about: mine\nworkload: {{wait_limit_s: {10**400}}}\n")
    with pytest.raises(ConfigError, match=r"wait_limit_s: the number is too large") as caught:
        find_workload(str(file))
    assert "\n" not in str(caught.value)


def test_users_of_a_scenario_may_have_cameras(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("about: mine\ninherit: cameras\nworkload: {camera: {fps: 30}}\n")
    base, found = find_workload("cameras").workload.camera, find_workload(str(file)).workload.camera
    assert base is not None
    assert found == replace(base, fps=30.0)
    assert find_workload("mixed").workload.camera is None


def test_a_file_of_ones_own_inherits(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "about: mine\ninherit: noisy\nworkload:\n  barge_in: 0.1\n  speech_s: {median: 9}\n"
        "  think_s: {kind: uniform, low: 1, high: 2}\nnetwork: {loss: 0.05}\n"
    )
    found = find_workload(str(file))
    base = find_workload("noisy").workload
    assert found.workload == replace(
        base,
        name="mine",
        barge_in=0.1,
        speech_s=replace(base.speech_s, median=9.0),
        think_s=Distribution(0.0, 0.0, 1.0, 2.0, "uniform"),
    )
    assert found.network == NetworkModel(loss=0.05)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("- 1", "must be a mapping"),
        ("about: [", "not YAML"),
        ("workload: {}", "about: is missing"),
        ("about: x\nworkload: {barge: 1}", "workload.barge: unknown key, did you mean 'barge_in'"),
        ("about: x\nworkload: {barge_in: often}", "workload.barge_in: must be a number"),
        ("about: x\nworkload: {barge_in: 1.5}", "workload.barge_in: must be within"),
        ("about: x\nworkload: {barge_in: 0.6, backchannel: 0.6}", "workload.backchannel"),
        ("about: x\nworkload: {arrivals: flood}", "workload.arrivals: must be one of closed"),
        ("about: x\nworkload: {turns: -1}", "workload.turns: must be within 0 and"),
        ("about: x\nworkload: {turns: 0.5}", "workload.turns: a session has at least one"),
        (
            "about: x\nworkload: {turns: 0, arrivals: poisson}",
            "workload.turns: 0 (no end) does not",
        ),
        ("about: x\nworkload: {turns: .nan}", "workload.turns: must be within"),
        ("about: x\nworkload: {turns: .inf}", "workload.turns: must be within"),
        ("about: x\nworkload: {drop: -0.1}", "workload.drop: must be within 0 and 1, not -0.1"),
        ("about: x\nworkload: {hang_up: .nan}", "workload.hang_up: must be within"),
        ("about: x\nworkload: {backchannel_per_s: 1.0e+9}", "workload.backchannel_per_s: must be"),
        ("about: x\nworkload: {wait_limit_s: 0}", "workload.wait_limit_s: must be within"),
        ("about: x\nworkload: {kv_tokens_per_session: -4}", "workload.kv_tokens_per_session"),
        ("about: x\nworkload: {speech_s: {median: 1.0e+9}}", "workload.speech_s.median"),
        ("about: x\nworkload: {speech_s: {median: .nan}}", "workload.speech_s.median"),
        ("about: x\nworkload: {speech_s: {median: 1, sigma: 500}}", "workload.speech_s.sigma"),
        ("about: x\nworkload: {speech_s: {median: 1, sigma: .nan}}", "workload.speech_s.sigma"),
        ("about: x\nworkload: {speech_s: {median: 1, low: -1}}", "workload.speech_s.low"),
        ("about: x\nworkload: {speech_s: {median: 1, high: .nan}}", "workload.speech_s.high"),
        (
            "about: x\nworkload: {think_s: {kind: uniform}}",
            "workload.think_s.high: must be at most",
        ),
        (
            "about: x\nworkload: {barge_in_at: {kind: uniform, high: 2}}",
            "workload.barge_in_at.high",
        ),
        (
            "about: x\nworkload: {ramp_s: 1e3}",
            "workload.ramp_s: must be a number, not '1e3', which YAML takes for text: write 1000 ",
        ),
        (
            "about: x\nworkload: {drop: 2, hang_up: 3}",
            "workload.hang_up: must be within 0 and 1, not 3.0; workload.drop: must be",
        ),
        ("workload: {barge: 1}", "workload.barge: unknown key"),
        (
            "workload: {drop: 2}",
            "workload.drop: must be within 0 and 1, not 2.0; about: is missing",
        ),
        ("about: x\nworkload: {speech_s: 3}", "workload.speech_s: must be a section"),
        ("about: x\nworkload: {speech_s: {median: 0}}", "workload.speech_s.median"),
        ("about: x\nworkload: {speech_s: {median: 1, low: 3, high: 2}}", "workload.speech_s.high"),
        (
            "about: x\nworkload: {speech_s: {median: 1, kind: pareto}}",
            "workload.speech_s.kind: must be one of lognormal",
        ),
        (
            "about: x\nworkload: {camera: {kind: film}}",
            "workload.camera.kind: must be one of none, static",
        ),
        ("about: x\nworkload: {camera: {kind: clip}}", "workload.camera.path: a clip needs"),
        (
            "about: x\nworkload: {camera: {kind: screen, path: a}}",
            "workload.camera.path: does not",
        ),
        ("about: x\nworkload: {camera: {fps: 0}}", "workload.camera.fps: must be within 0.1 and"),
        ("about: x\nworkload: {camera: {share: 1.5}}", "workload.camera.share: must be within"),
        ("about: x\nworkload: {camera: {share: .nan}}", "workload.camera.share: must be within"),
        ("about: x\nworkload: {camera: {width: 9999999}}", "workload.camera.width: must be within"),
        ("about: x\nworkload: {camera: {height: 1.5}}", "workload.camera.height: must be a whole"),
        ("about: x\nworkload: {camera: {zoom: 2}}", "workload.camera.zoom: unknown key"),
        ("about: x\nworkload: {camera: yes}", "workload.camera"),
        ("about: x\nnetwork: {delay: 3}", "network.delay: unknown key"),
        ("about: x\ninherit: nothing", "inherit: no workload nothing; there are "),
        ("about: x\ninherit: 3", "inherit: must name another workload"),
    ],
)
def test_a_complaint_names_file_and_key(tmp_path: Path, text: str, named: str):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as wrong:
        find_workload(str(file))
    assert named in str(wrong.value)
    assert "bad.yaml" in str(wrong.value)


def test_every_field_of_a_workload_has_a_range():
    """A new one would be accepted whatever it says."""
    for one in fields(Workload):
        value = getattr(Workload(), one.name)
        if isinstance(value, Distribution):
            assert one.name in MOST_OF_SPAN
        elif isinstance(value, int | float):
            assert one.name in RANGES


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"no workload mixt; there are .*interactive.*mixed"):
        find_workload("mixt")
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        find_workload("none.yaml")
