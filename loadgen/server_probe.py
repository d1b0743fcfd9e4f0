"""What the server itself says of a run: CPU time, memory, audio made and wasted.

Read from its `/metrics`; where that cannot be reached, CPU and memory of `--server-pid` and its children.
Neither: those figures are null. Blocking calls; the driver runs `sample` off its loop.
"""

from __future__ import annotations

import contextlib
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import psutil

_LINE = re.compile(r"^(\w+)(\{[^}]*\})? ([-+.\deE]+|NaN|[+-]Inf)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
TIMEOUT_S = 5.0
_STAGE_TOTALS = {
    "session_server_stage_step_seconds_sum": "busy_s",
    "session_server_stage_batch_size_count": "steps",
    "session_server_stage_batch_size_sum": "jobs",
}


@dataclass(frozen=True, slots=True)
class StageTotals:
    """What an engine stage did since the server began: seconds in steps, steps, jobs advanced by them."""

    busy_s: float = 0.0
    steps: float = 0.0
    jobs: float = 0.0


Histogram = Mapping[float, float]
"""How many samples so far were at most so many seconds."""
EVIDENCE_AGE, LOOK = "evidence_age", "look"
_BUCKETS = {
    ("session_server_video_evidence_age_seconds_bucket", ""): EVIDENCE_AGE,
    ("session_server_recognition_seconds_bucket", "vision"): LOOK,
}
"""Metric and stage of each."""
_FRAMES = "session_server_video_frames_total"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the server; None: not known. `at_s`: when, on this process's monotonic clock."""

    cpu_s: float | None = None
    rss_bytes: float | None = None
    generated_s: float | None = None
    wasted_s: float | None = None
    build: tuple[tuple[str, str], ...] = ()
    stages: Mapping[str, StageTotals] = field(default_factory=dict)
    frames: Mapping[str, float] = field(default_factory=dict)
    """Camera frames so far, by what became of them."""
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    """By name: evidence_age, look; those that the server has."""
    at_s: float = 0.0


def metrics_url(url: str) -> str:
    """`/metrics` of the server that serves `url`."""
    parts = urllib.parse.urlsplit(url)
    scheme = "https" if parts.scheme in ("wss", "https") else "http"
    return urllib.parse.urlunsplit((scheme, parts.netloc, "/metrics", "", ""))


class ServerProbe:
    """Looks at one server, always by the same way: the first that worked."""

    def __init__(self, url: str, *, pid: int | None = None, api_key: str | None = None) -> None:
        self.origin: str | None = None
        self._url = metrics_url(url)
        self._pid = pid
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def sample(self) -> Sample | None:
        """None when the server cannot be looked at."""
        if self.origin in (None, "metrics"):
            found = self._from_metrics()
            if found is not None or self.origin == "metrics":
                self.origin = "metrics"
                return found
        found = self._from_process()
        if found is not None:
            self.origin = "process"
        return found

    def _from_metrics(self) -> Sample | None:
        request = urllib.request.Request(self._url, headers=self._headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                found = parse(answer.read().decode("utf-8", "replace"))
        except (OSError, ValueError):
            return None
        return found and replace(found, at_s=time.monotonic())

    def _from_process(self) -> Sample | None:
        if self._pid is None:
            return None
        cpu = rss = 0.0
        try:
            process = psutil.Process(self._pid)
            family = [process, *process.children(recursive=True)]
        except psutil.Error:
            return None
        for member in family:
            with contextlib.suppress(psutil.Error):
                times = member.cpu_times()
                cpu += times.user + times.system
                rss += member.memory_info().rss
        return Sample(cpu, rss, at_s=time.monotonic())


def parse(text: str) -> Sample | None:
    """The figures that matter of a text exposition; None when it has none of the process."""
    totals: dict[str, float] = {}
    stages: dict[str, dict[str, float]] = {}
    build: tuple[tuple[str, str], ...] = ()
    frames: dict[str, float] = {}
    histograms: dict[str, dict[float, float]] = {}
    for name, labels, value in _LINE.findall(text):
        if name == "session_server_build_info":
            build = tuple(_LABEL.findall(labels))
        if name in _STAGE_TOTALS:
            stage = dict(_LABEL.findall(labels)).get("stage", "")
            stages.setdefault(stage, {})[_STAGE_TOTALS[name]] = float(value)
        if name == _FRAMES:
            reason = dict(_LABEL.findall(labels)).get("reason", "")
            frames[reason] = frames.get(reason, 0.0) + float(value)
        elif name.endswith("_bucket"):
            said = dict(_LABEL.findall(labels))
            wanted = _BUCKETS.get((name, said.get("stage", "")))
            if wanted is not None:
                buckets = histograms.setdefault(wanted, {})
                bound = float(said.get("le", "inf"))
                buckets[bound] = buckets.get(bound, 0.0) + float(value)
        totals[name] = totals.get(name, 0.0) + float(value)
    if "process_cpu_seconds_total" not in totals:
        return None
    return Sample(
        cpu_s=totals["process_cpu_seconds_total"],
        rss_bytes=totals.get("process_resident_memory_bytes"),
        generated_s=totals.get("session_server_audio_generated_seconds_total"),
        wasted_s=totals.get("session_server_audio_wasted_seconds_total"),
        build=build,
        stages={stage: StageTotals(**found) for stage, found in stages.items()},
        frames=frames,
        histograms=histograms,
    )
