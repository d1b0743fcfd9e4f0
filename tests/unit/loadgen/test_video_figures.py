"""What a report says of cameras, from the server's metrics and from the users."""

from __future__ import annotations

import math

import pytest

from loadgen.drivers.load_run import LoadOutcome
from loadgen.lab.report import build, rows_of
from loadgen.records import FilmFigures, Turn, UserRecord
from loadgen.server_probe import Sample, parse
from loadgen.slo import Bar, judge
from loadgen.video_figures import between, spread_of
from session_server.simulation.spec import CameraUse

pytestmark = pytest.mark.unit

MS = 1_000_000
FOUR_OF_TWELVE = CameraUse("object", share=4 / 12)


def metrics(gate: int, change: int, quick: int, slow: int) -> str:
    """So many frames, and looks of up to 0.1 and up to 0.5 s."""
    looks = "session_server_recognition_seconds_bucket"
    age = "session_server_video_evidence_age_seconds_bucket"
    return "\n".join(
        [
            "process_cpu_seconds_total 1.0",
            f'session_server_video_frames_total{{kept="no",reason="gate"}} {gate}.0',
            f'session_server_video_frames_total{{kept="yes",reason="change"}} {change}.0',
            f'{looks}{{stage="asr",partial="false",le="0.1"}} 9999',
            f'{looks}{{stage="vision",partial="false",le="0.1"}} {quick}',
            f'{looks}{{stage="vision",partial="false",le="0.5"}} {quick + slow}',
            f'{looks}{{stage="vision",partial="false",le="+Inf"}} {quick + slow}',
            f'{age}{{le="0.25"}} {quick}',
            f'{age}{{le="+Inf"}} {quick + slow}',
            "",
        ]
    )


def sample(*counts: int) -> Sample:
    found = parse(metrics(*counts))
    assert found is not None
    return found


def record(camera: bool, waits_ms: list[int], gap: int = 0) -> UserRecord:
    turns = []
    for number, wait in enumerate(waits_ms):
        u1 = number * 10_000 * MS
        turn = Turn(0, None, u1 - 1000 * MS, u1, decided=u1, ended="played", end=u1 + 5000 * MS)
        turn.first_audible, turn.played, turn.received = u1 + wait * MS, 24_000, 24_000
        turn.gaps = [gap] if gap else []
        turns.append(turn)
    return UserRecord(turns=turns, camera=camera)


def test_frames_looks_and_ages_are_those_of_this_run():
    outcome = LoadOutcome(
        [record(False, [500] * 10), record(True, [700] * 10, gap=24_000)],
        looks=[(0, sample(100, 10, 5, 0)), (2, sample(400, 30, 15, 10))],
        film=FilmFigures(1, 320, 3, 1, 9_000),
    )
    report = build(
        outcome, users=12, planned=20, seed=0, workload={}, origin="metrics", camera=FOUR_OF_TWELVE
    )
    video = report["video"]
    assert video["users"] == 4
    assert video["client"] == {
        "cameras": 1, "sent": 320, "dropped": 3, "missed": 1, "sent_bytes": 9_000,
    }  # fmt: skip
    server = video["server"]
    assert server["frames"] == {"change": 20, "gate": 300}
    assert (server["kept"], server["not_kept"], server["looks"]) == (20, 300, 20)
    assert server["look_ms"] == {"count": 20, "p50": 100.0, "p99": pytest.approx(492.0)}
    assert server["evidence_age_ms"]["p50"] == 250.0
    assert server["evidence_age_ms"]["p99"] is None, "beyond the last bound"


def test_sound_is_told_apart_with_a_camera_and_without():
    outcome = LoadOutcome([record(False, [500] * 10), record(True, [700] * 10, gap=24_000)])
    report = build(
        outcome, users=2, planned=20, seed=0, workload={}, origin=None, camera=FOUR_OF_TWELVE
    )
    assert report["without_camera"]["ttfa_ms"]["p95"] == 500.0
    assert report["without_camera"]["c100"] == 1.0
    assert report["with_camera"]["ttfa_ms"]["p95"] == 700.0
    assert report["with_camera"]["c100"] == 0.0
    assert report["turns"] == 20
    assert report["video"]["server"]["kept"] is None, "nobody looked at the server"
    bars = [Bar("without_camera.c100", 0.99, None), Bar("video.server.look_ms.p99", None, 500.0)]
    assert [verdict.held for verdict in judge(bars, report)] == [True, False]
    paths = [path for _, path in rows_of([report])]
    assert "without_camera.ttfa_ms.p95" in paths


def test_a_run_without_cameras_says_nothing_of_them():
    report = build(
        LoadOutcome([record(False, [500])]), users=1, planned=1, seed=0, workload={}, origin=None
    )
    assert not {"video", "without_camera", "with_camera"} & set(report)
    assert not [path for _, path in rows_of([report]) if "camera" in path or "video" in path]


def test_quantiles_are_linear_within_a_bucket():
    found = between({0.1: 1.0, 0.2: 1.0}, {0.1: 5.0, 0.2: 9.0, math.inf: 9.0})
    assert found == {0.1: 4.0, 0.2: 8.0, math.inf: 9.0}
    assert spread_of({0.1: 4.0, 0.2: 8.0, math.inf: 8.0}) == {
        "count": 8, "p50": 100.0, "p99": pytest.approx(198.0),
    }  # fmt: skip
    assert spread_of({}) == {"count": 0, "p50": None, "p99": None}
