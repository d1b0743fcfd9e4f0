"""Simulated users with cameras: the core's rules under load, what it costs the others, and an hour of it in bounded memory."""

from __future__ import annotations

import gc
import statistics
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from engines.base import Stage
from loadgen.cli import main
from loadgen.lab.simulation import ProgressSample, simulate
from loadgen.workloads import find_workload
from session_server.simulation.host_setup import find_profile, profile_names
from session_server.simulation.sim_camera import MOST_KEPT
from session_server.simulation.spec import CameraUse, SimulationSpec, Workload
from session_server.types.audio import NS_PER_S

pytestmark = pytest.mark.sim

TALK = find_workload("interactive").workload
SMALL = SimulationSpec(
    profile="cpu-default", sessions=4, seconds=60.0, warm_up_s=5.0, workload=TALK, silence_ms=320
)


def filming(kind: str, share: float = 0.5, **more: object) -> Workload:
    return replace(TALK, camera=CameraUse(kind, share=share, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["static", "object", "pan"])
def test_the_same_seed_gives_the_same_bytes(kind: str):
    spec = replace(SMALL, workload=filming(kind))
    first = simulate(spec).to_json()
    assert first == simulate(spec).to_json()
    assert first != simulate(replace(spec, seed=1)).to_json()


def test_answers_know_what_the_camera_shows_and_how_old_that_is():
    figures = simulate(replace(SMALL, workload=filming("object", 1.0), seconds=120.0)).figures
    video = figures["video"]
    assert video["users"] == 4
    seen = video["server"]
    assert seen["evidence_age_ms"]["count"] > 20
    assert seen["evidence_age_ms"]["p99"] <= 1300, "fresh within a second, or waited for: 0.3 s"
    assert seen["answers_without_picture"] <= 4, "but for a session's first words"
    assert seen["frames"]["forced"] + seen["frames"]["heartbeat"] > 0
    assert figures["errors"] == 0
    assert figures["stages"]["vision"]["steps"] >= 2 * seen["looks"]


def test_a_still_camera_costs_next_to_nothing_and_a_moving_one_what_the_rate_allows():
    found = {
        kind: simulate(replace(SMALL, workload=filming(kind, 1.0))).figures
        for kind in ("static", "pan")
    }
    frames = {kind: one["video"]["server"] for kind, one in found.items()}
    assert frames["static"]["kept"] < 0.03 * frames["static"]["not_kept"]
    assert frames["pan"]["kept"] > 3 * frames["static"]["kept"]
    busy = {kind: one["stages"]["vision"]["occupancy"] for kind, one in found.items()}
    assert busy["pan"] > 1.5 * busy["static"]


def test_without_cameras_there_is_no_stage_and_no_word_of_them():
    figures = simulate(SMALL).figures
    assert "vision" not in figures["stages"]
    assert not {"video", "without_camera", "with_camera"} & set(figures)


def test_cameras_that_are_off_change_nothing_but_who_is_told_apart():
    plain = simulate(SMALL).figures
    off = simulate(replace(SMALL, workload=filming("none"))).figures
    assert off["video"]["users"] == 2
    assert off["video"]["server"]["frames"] == {}
    assert off["without_camera"]["turns"] + off["with_camera"]["turns"] == plain["turns"]
    for name in ("video", "without_camera", "with_camera", "workload"):
        off.pop(name)
        plain.pop(name, None)
    assert off == plain


@pytest.mark.timeout(300)
def test_looks_give_way_so_that_the_sound_of_the_others_hardly_suffers():
    spec = replace(SMALL, seconds=150.0, sessions=6)
    ratios = []
    for seed in range(4):  # one seed's ratio is off by a tenth, either way
        quiet, beside = (
            simulate(replace(spec, seed=seed, workload=filming(kind))).figures["without_camera"]
            for kind in ("none", "pan")
        )
        assert quiet["turns"] > 30
        ratios.append(beside["ttfa_ms"]["p50"] / quiet["ttfa_ms"]["p50"])
    assert statistics.mean(ratios) <= 1.2
    profile = find_profile("cpu-default")
    eyes = replace(profile.stages[Stage.VISION], busy_share=None)
    greedy = replace(profile, stages={**profile.stages, Stage.VISION: eyes})
    pushed = simulate(replace(spec, workload=filming("pan")), greedy).figures["without_camera"]
    assert pushed["ttfa_ms"]["p50"] > beside["ttfa_ms"]["p50"], "the model has something to show"


def test_eyes_that_are_too_slow_are_asked_less_often():
    profile = find_profile("cpu-default")
    eyes = profile.stages[Stage.VISION]
    slow = replace(eyes, objects_ms=tuple(10 * ms for ms in eyes.objects_ms))
    spec = replace(SMALL, workload=filming("pan", 1.0))
    kept = [
        simulate(spec, replace(profile, stages={**profile.stages, Stage.VISION: one})).figures[
            "video"
        ]["server"]["kept"]
        for one in (eyes, slow)
    ]
    assert kept[1] < 0.6 * kept[0]


@pytest.mark.timeout(900)
def test_an_hour_of_video_at_30_fps_is_bounded():
    """No queue, history or memory grows, and evidence is never old without the answer's knowing."""
    workload = replace(filming("pan", 1.0, fps=30.0), turns=0.0)
    spec = replace(SMALL, sessions=1, seconds=3600.0, workload=workload)
    sizes: dict[int, int] = {}

    def watch(look: ProgressSample) -> bool:
        second = look.now_ns // NS_PER_S
        if second == 3000:
            tracemalloc.start()
        if second in (3100, 3595):
            gc.collect()
            sizes[second] = tracemalloc.get_traced_memory()[0]
        return False

    try:
        figures = simulate(spec, watch=watch).figures
    finally:
        tracemalloc.stop()
    seen = figures["video"]["server"]
    assert sum(seen["frames"].values()) == pytest.approx(3600 * 30, rel=0.01)
    assert seen["kept"] > 2000
    assert seen["pictures_held"] <= MOST_KEPT
    assert seen["evidence_age_ms"]["p99"] <= 1300
    assert seen["answers_without_picture"] <= 1
    assert figures["turns"] > 200
    assert figures["errors"] == 0
    assert sizes[3595] - sizes[3100] < 1_500_000, "what is left are the records of 60 turns"


def test_a_profile_without_eyes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    content = yaml.safe_load(Path("configs/profiles/cpu-default.yaml").read_text())
    del content["stages"]["vision"]
    blind = tmp_path / "blind.yaml"
    blind.write_text(yaml.safe_dump(content))
    options = ["simulate", "--profile", str(blind), "--sessions", "3", "--seconds", "20"]
    assert main(options) == 0
    assert main([*options, "--workload", "cameras"]) == 2
    assert "has no vision stage, which cameras need" in capsys.readouterr().err
    assert main([*options, "--workload", "cameras", "--set", "workload.camera.kind=none"]) == 0


@pytest.mark.parametrize("name", [n for n in profile_names() if find_profile(n).stages])
def test_every_profile_with_stages_has_eyes(name: str):
    options = ["--workload", "cameras", "--sessions", "3", "--seconds", "20"]
    assert main(["simulate", "--profile", name, *options]) == 0


def test_the_commands_show_the_sound_beside_the_cameras(capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", "--workload", "cameras", "--sessions", "6", "--seconds", "60"]) == 0
    shown = capsys.readouterr().err
    for row in ("users with a camera", "evidence age p99, ms", "without camera: C100"):
        assert row in shown
