"""What a report says of cameras: frames from here and what the server made of them, and how those without a camera fared beside.

Frames, looks and ages come from the server's metrics, between the first and the last look at them; percentiles of a histogram are
linear within its bucket, null where they fall beyond the last one. Milliseconds in `_ms`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadgen.measure import duration_s, measure, spread
from loadgen.records import FilmFigures, UserRecord
from loadgen.server_probe import EVIDENCE_AGE, LOOK, Histogram, Sample
from session_server.simulation.sim_camera import CameraRecords
from session_server.simulation.spec import CameraUse
from session_server.types.audio import NS_PER_MS

KEPT = ("change", "heartbeat", "forced")
"""Reasons for which a server keeps a frame; all others are those for which it does not."""
_BESIDE = (
    "turns", "responses", "ttfa_ms", "response_ms", "underruns", "underrun_ms", "c100", "goodput_per_s", "barge_in", "errors",
)  # fmt: skip

VIDEO_ROWS: tuple[tuple[str, str], ...] = (
    ("users with a camera", "video.users"),
    ("camera frames sent", "video.client.sent"),
    ("camera frames dropped here", "video.client.dropped"),
    ("camera frames kept", "video.server.kept"),
    ("camera frames not kept", "video.server.not_kept"),
    ("looks at frames", "video.server.looks"),
    ("look p50, ms", "video.server.look_ms.p50"),
    ("look p99, ms", "video.server.look_ms.p99"),
    ("evidence age p50, ms", "video.server.evidence_age_ms.p50"),
    ("evidence age p99, ms", "video.server.evidence_age_ms.p99"),
    ("without camera: turns", "without_camera.turns"),
    ("without camera: first audio p50, ms", "without_camera.ttfa_ms.p50"),
    ("without camera: first audio p95, ms", "without_camera.ttfa_ms.p95"),
    ("without camera: C100", "without_camera.c100"),
    ("with camera: turns", "with_camera.turns"),
    ("with camera: first audio p50, ms", "with_camera.ttfa_ms.p50"),
    ("with camera: first audio p95, ms", "with_camera.ttfa_ms.p95"),
    ("with camera: C100", "with_camera.c100"),
)
"""Titles and paths of a report of users of whom some have cameras."""


def groups(
    records: Sequence[UserRecord], seconds: float | None = None, span: tuple[int, int] | None = None
) -> dict[str, Any]:
    """The figures of sound of those without and of those with a camera (be it off), each by themselves."""
    out = {}
    for name, camera in (("without_camera", False), ("with_camera", True)):
        own = [record for record in records if record.camera is camera]
        found = measure(own, duration_s(own) if seconds is None else seconds, span)
        out[name] = {key: found[key] for key in _BESIDE}
    return out


def video_section(
    use: CameraUse, users: int, film: FilmFigures, looks: Sequence[Sample]
) -> dict[str, Any]:
    """`users`: all of the run. The figures of `server` are null where it tells nothing."""
    return {
        "users": sum(use.belongs_to(user) for user in range(users)),
        "camera": asdict(use),
        "client": asdict(film),
        "server": _server(looks[0], looks[-1]) if len(looks) > 1 else _nothing_told(),
    }


def _server(first: Sample, last: Sample) -> dict[str, Any]:
    frames = {
        reason: round(count - first.frames.get(reason, 0.0))
        for reason, count in sorted(last.frames.items())
    }
    look = between(first.histograms.get(LOOK, {}), last.histograms.get(LOOK, {}))
    age = between(first.histograms.get(EVIDENCE_AGE, {}), last.histograms.get(EVIDENCE_AGE, {}))
    return {
        "frames": frames,
        "kept": sum(count for reason, count in frames.items() if reason in KEPT),
        "not_kept": sum(count for reason, count in frames.items() if reason not in KEPT),
        "looks": round(max(look.values(), default=0)),
        "look_ms": spread_of(look),
        "evidence_age_ms": spread_of(age),
    }


def _nothing_told() -> dict[str, Any]:
    unknown = dict.fromkeys(("kept", "not_kept", "looks"))
    return {"frames": {}, **unknown, "look_ms": spread_of({}), "evidence_age_ms": spread_of({})}


def camera_figures(replicas: Sequence[CameraRecords]) -> dict[str, Any]:
    """What `server` is in the report of a simulation: of the whole run."""
    frames: Counter[str] = sum((one.frames for one in replicas), Counter())
    failed: Counter[str] = sum((one.failed_looks for one in replicas), Counter())
    looks = [ns for one in replicas for ns in one.looks_ns]
    ages = [ms * NS_PER_MS for one in replicas for ms in one.ages_ms]
    kept = sum(frames[reason] for reason in KEPT)
    return {
        "frames": dict(sorted(frames.items())),
        "kept": kept,
        "not_kept": frames.total() - kept,
        "looks": len(looks),
        "looks_failed": dict(sorted(failed.items())),
        "look_ms": spread(looks, (50, 99)),
        "evidence_age_ms": spread(ages, (50, 99)),
        "answers_without_picture": sum(one.without for one in replicas),
        "pictures_held": max((one.most_kept for one in replicas), default=0),
    }


def between(first: Histogram, last: Histogram) -> dict[float, float]:
    """What came into each cumulative bucket meanwhile."""
    return {bound: count - first.get(bound, 0.0) for bound, count in last.items()}


def spread_of(found: Mapping[float, float]) -> dict[str, Any]:
    """Count, P50 and P99 of a cumulative histogram in seconds, as milliseconds."""
    total = max(found.values(), default=0.0)
    return {
        "count": round(total),
        "p50": _quantile_ms(found, 0.5 * total) if total else None,
        "p99": _quantile_ms(found, 0.99 * total) if total else None,
    }


def _quantile_ms(found: Mapping[float, float], wanted: float) -> float | None:
    below, under = 0.0, 0.0
    for bound, count in sorted(found.items()):
        if count >= wanted:
            if math.isinf(bound):
                return None
            share = (wanted - under) / (count - under) if count > under else 1.0
            return round(1000 * (below + (bound - below) * share), 1)
        below, under = bound, count
    return None
