"""Two settings in turns: the same load for both, ratios within a pair, and plain words for what cannot be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadgen.cli import main
from loadgen.lab import interleave
from loadgen.lab.interleave import Block, arm_of, compare, plan
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


def test_pairs_share_their_seed_and_drift_favours_nobody() -> None:
    blocks = plan([8, 16], "ABBA", seed=3)
    assert blocks[:4] == [Block("A", 8, 3), Block("B", 8, 3), Block("B", 8, 4), Block("A", 8, 4)]
    assert [block.users for block in blocks] == [8] * 4 + [16] * 4
    places = [i for i, block in enumerate(blocks[:4]) if block.arm == "A"]
    assert sum(places) == 3  # as early as late


@pytest.mark.parametrize("order", ["", "A", "AAB", "ABC", "abba"])
def test_an_unfair_order_is_refused(order: str) -> None:
    with pytest.raises(ConfigError, match="--order"):
        plan([8], order, 0)


@pytest.mark.parametrize("setting", ["scheduler.policy", "policy=fcfs", "scheduler.policy="])
def test_a_setting_without_key_or_value_is_named(setting: str) -> None:
    with pytest.raises(ConfigError, match="--a"):
        arm_of("A", [setting])


def test_settings_become_variables_of_the_server() -> None:
    arm = arm_of("A", ["scheduler.policy=fcfs", "scheduler.chunk_ladder_s=[0.1, 0.4]"])
    assert arm.environment == {
        "SESSION_SERVER__SCHEDULER__POLICY": "fcfs",
        "SESSION_SERVER__SCHEDULER__CHUNK_LADDER_S": "[0.1, 0.4]",
    }


def report(p95: float | None, c100: float | None = 1.0) -> dict[str, Any]:
    return {"ttfa_ms": {"p50": 500.0, "p95": p95}, "c100": c100, "errors": 0}


def test_ratios_are_taken_within_a_pair() -> None:
    blocks = plan([8], "ABBA", 0)
    found = compare(blocks, [report(1000.0), report(500.0), report(400.0), report(1600.0)])["8"]
    assert found["ttfa_ms.p95"]["ratios"] == [0.5, 0.25]
    assert found["ttfa_ms.p95"]["ratio"] == pytest.approx(0.3536, abs=1e-4)
    assert found["ttfa_ms.p95"]["a_mean"] == 1300.0
    assert found["c100"]["ratio"] == 1.0
    assert found["errors"]["ratio"] is None  # nothing over nothing


def test_a_figure_that_is_missing_makes_no_ratio() -> None:
    found = compare(plan([8], "AB", 0), [report(None, None), report(500.0)])["8"]
    assert found["ttfa_ms.p95"]["ratio"] is None
    assert found["ttfa_ms.p95"]["a_mean"] is None


def test_runs_of_calls_compare_the_packets_too() -> None:
    late = {"webrtc": {"lateness_ms": {"p99": 5.0}}}
    found = compare(plan([8], "AB", 0), [report(None) | late, report(None) | late])["8"]
    assert found["webrtc.lateness_ms.p99"]["ratio"] == 1.0
    assert "webrtc.lateness_ms.p99" not in compare(plan([8], "AB", 0), [report(1.0)] * 2)["8"]


def test_a_table_says_which_settings_it_compares() -> None:
    arms = {
        "A": arm_of("A", ["scheduler.policy=fcfs", "scheduler.lead_cap_s=60"]),
        "B": arm_of("B", ["scheduler.policy=deadline"]),
    }
    assert interleave.heading(arms, ["--turns", "10"]) == [
        "A: scheduler.policy=fcfs scheduler.lead_cap_s=60",
        "B: scheduler.policy=deadline",
        "load: --turns 10",
    ]


def test_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    missing = tmp_path / "none.yaml"
    with (
        pytest.raises(interleave.BlockFailed, match=r"server A: .*none\.yaml"),
        interleave.served(arm_of("A", []), missing),
    ):
        pass


def test_a_wrong_setting_of_the_second_server_shows_after_the_first_one_s_whole_run() -> None:
    arms = {"A": arm_of("A", ["scheduler.policy=fcfs"]), "B": arm_of("B", ["scheduler.polic=fcfs"])}
    with pytest.raises(ConfigError, match=r"--b: .*scheduler\.polic"):
        interleave.require_settings(arms, None)
    interleave.require_settings({"A": arms["A"]}, None)


def test_a_load_against_another_server_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "ab",
        "--a",
        "scheduler.policy=fcfs",
        "--b",
        "scheduler.policy=deadline",
        "--users",
        "1",
    ]
    assert main([*options, "--", "--turns", "1", "--url=http://127.0.0.1:9"]) == 2
    assert "--url: `ab` starts the servers itself" in capsys.readouterr().err


def test_a_side_may_have_a_load_of_its_own() -> None:
    arm = arm_of("B", ["load.camera=object", "load.camera_fps=30", "scheduler.policy=fcfs"])
    assert arm.load_options == ["--camera=object", "--camera-fps=30"]
    assert arm.environment == {"SESSION_SERVER__SCHEDULER__POLICY": "fcfs"}
    interleave.require_settings({"A": arm_of("A", ["load.camera=none"]), "B": arm}, None)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("load.camera=cinema", "--camera: invalid choice"),
        ("load.lens=wide", "unrecognized arguments: --lens=wide"),
    ],
)
def test_an_option_that_run_does_not_have_shows_before_the_first_server(
    setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["ab", "--a", "load.camera=none", "--b", setting, "--users", "2"])
    assert said in capsys.readouterr().err


def test_cameras_that_there_are_no_users_for_show_before_the_first_server(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["ab", "--a", "load.camera=none", "--b", "load.camera=pan", "--users", "2", "8"]
    assert main([*options, "--", "--camera-users", "4"]) == 2
    assert "--camera-users 4: there are 2 users" in capsys.readouterr().err


def test_runs_with_cameras_compare_the_sound_of_those_who_have_none() -> None:
    plain: dict[str, Any] = {"without_camera": {"ttfa_ms": {"p95": 800.0}, "c100": 1.0}}
    beside: dict[str, Any] = {
        "without_camera": {"ttfa_ms": {"p95": 840.0}, "c100": 0.99},
        "video": {"client": {"sent": 900}},
    }
    found = compare(plan([12], "AB", 0), [report(1.0) | plain, report(1.0) | beside])["12"]
    assert found["without_camera.ttfa_ms.p95"]["ratio"] == pytest.approx(1.05)
    assert found["without_camera.c100"]["ratio"] == pytest.approx(0.99)
    assert found["video.client.sent"]["b"] == [900]
    assert "without_camera.c100" not in compare(plan([8], "AB", 0), [report(1.0)] * 2)["8"]
