"""The server's metrics: one registry per server, nothing global.

Owns the Prometheus objects that `catalogue` describes, each as a typed attribute. `count` is the door for
values that come by name (core's `Count` actions): a counter adds, a histogram observes, a gauge is set. A
name or label that the catalogue does not have is a bug: it raises under `strict` (tests) and is itself
counted, never raised, in production. Units are those of the catalogue; all calls are thread safe.

Loop lag is how late the event loop runs, the first thing to look at when audio stutters. A timer is set for an absolute instant every `interval_s`; how late it fires is the lag. When the loop
was blocked past several instants, the next one lies in the future again: one long block is one
observation, as long as the block.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections.abc import Callable, Iterator
from importlib import metadata

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from session_server.observability.catalogue import PREFIX, SPECS, FrameReason, MetricKind, Spec

_log = logging.getLogger(__name__)
_ALIASES = {spec.name + "_total": spec.name for spec in SPECS if spec.kind is MetricKind.COUNTER}


def installed_version() -> str:
    """Of this package; 0: not installed."""
    try:
        return metadata.version("session-server")
    except metadata.PackageNotFoundError:
        return "0"


class _WithoutCreated(Collector):
    """A view of a registry that leaves out the creation times of series: no one reads them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


class Metrics:
    """All metrics of one server. Attribute names are those of the catalogue."""

    sessions_active: Gauge
    sessions: Counter
    sessions_rejected: Counter
    session_seconds: Histogram
    responses: Counter
    client_errors: Counter
    stuck_sessions: Counter
    input_backlog_seconds: Gauge
    outbox_bytes: Gauge
    turn_first_audio_seconds: Histogram
    response_first_audio_seconds: Histogram
    turn_stage_seconds: Histogram
    endpointing_delay_seconds: Histogram
    interruption_stop_seconds: Histogram
    interruptions: Counter
    drafts: Counter
    draft_wasted_seconds: Counter
    response_first_chunk_seconds: Histogram
    playback_underruns: Counter
    playback_underrun_seconds: Counter
    playback_lead_seconds: Histogram
    send_lateness_seconds: Histogram
    frontier_report_age_seconds: Histogram
    frontier_fallbacks: Counter
    frontier_cuts: Counter
    webrtc_calls: Gauge
    webrtc_send_lateness_seconds: Histogram
    webrtc_video_frames: Counter
    webrtc_video_faults: Counter
    playback_acks: Counter
    audio_generated_seconds: Counter
    audio_sent_seconds: Counter
    audio_wasted_seconds: Counter
    stale_outputs: Counter
    stage_step_seconds: Histogram
    stage_batch_size: Histogram
    stage_queue_depth: Gauge
    stage_starved_steps: Counter
    stage_failures: Counter
    recognition_seconds: Histogram
    works_dropped: Counter
    runaway_answers: Counter
    tokens_wasted: Counter
    prompt_tokens: Counter
    engine_answers: Gauge
    engine_state_used_ratio: Gauge
    chunk_frames: Histogram
    scheduler_sessions: Gauge
    admission_decisions: Counter
    admission_load: Gauge
    admission_work_cores: Gauge
    admission_capacity_cores: Gauge
    overload_step: Gauge
    kv_blocks: Gauge
    kv_evictions: Counter
    kv_reload_seconds: Histogram
    kv_preloads: Counter
    kv_preload_bytes: Counter
    video_frames: Counter
    video_evidence_age_seconds: Histogram
    duplex_ticks: Counter
    duplex_ticks_missed: Counter
    duplex_frames_filled: Counter
    duplex_input_dropped_samples: Counter
    duplex_slots: Gauge
    duplex_sessions: Gauge
    duplex_saved_bytes: Gauge
    duplex_slots_given_up: Counter
    duplex_slot_waits_missed: Counter
    duplex_slot_wait_seconds: Histogram
    event_loop_lag_seconds: Histogram
    unknown_counts: Counter
    build_info: Gauge
    worker_ends: Counter

    content_type: str = CONTENT_TYPE_LATEST

    def __init__(self, *, version: str = "", config: str = "", strict: bool = False) -> None:
        self._strict = strict
        self._registry = CollectorRegistry()
        self._view = _WithoutCreated(self._registry)
        self._specs = {spec.name: spec for spec in SPECS}
        self._told: set[str] = set()
        ProcessCollector(registry=self._registry)
        for spec in SPECS:
            setattr(self, spec.name, self._create(spec))
        for reason in FrameReason:
            self.video_frames.labels(reason.kept, reason.value)
        self.build_info.labels(version, platform.python_version(), config).set(1)

    def _create(self, spec: Spec) -> Counter | Gauge | Histogram:
        name = f"{PREFIX}_{spec.name}"
        labels = [label.name for label in spec.labels]
        metric: Counter | Gauge | Histogram
        match spec.kind:
            case MetricKind.COUNTER:
                metric = Counter(name, spec.help, labels, registry=self._registry)
            case MetricKind.GAUGE:
                metric = Gauge(name, spec.help, labels, registry=self._registry)
            case MetricKind.HISTOGRAM:
                metric = Histogram(
                    name, spec.help, labels, registry=self._registry, buckets=spec.buckets
                )
        # Series of a closed label exist from the start: a rate over a series that appears late misses its
        # first events.
        if len(spec.labels) == 1 and spec.labels[0].values is not None:
            for value in spec.labels[0].values:
                metric.labels(value.value)
        return metric

    def count(self, name: str, label: str | None = None, value: float = 1.0) -> None:
        """Take one measurement by name, with or without the `_total` of a counter.

        Raises KeyError or ValueError for an unknown name or label under `strict`, else counts the mistake.
        """
        try:
            self._record(self._specs[_ALIASES.get(name, name)], label, value)
        except (KeyError, ValueError) as mistake:
            if self._strict:
                raise
            self.unknown_counts.inc()
            key = f"{name}/{label}"
            if key not in self._told and len(self._told) < 100:
                self._told.add(key)
                _log.warning("measurement not in the catalogue: %s (%s)", key, mistake)

    def _record(self, spec: Spec, label: str | None, value: float) -> None:
        if spec.name == "video_frames" and label is not None:
            self.video_frame(label)
            return
        if len(spec.labels) != (label is not None):
            raise ValueError(f"{spec.name} has {len(spec.labels)} labels, given {label!r}")
        metric = getattr(self, spec.name)
        if label is not None:
            values = spec.labels[0].values
            if values is not None and label not in set(values):
                raise ValueError(f"{spec.name} has no {spec.labels[0].name}={label!r}")
            metric = metric.labels(label)
        match spec.kind:
            case MetricKind.COUNTER:
                metric.inc(value)
            case MetricKind.GAUGE:
                metric.set(value)
            case MetricKind.HISTOGRAM:
                metric.observe(value)

    def watch(self, name: str, read: Callable[[], float], label: str | None = None) -> None:
        """Read this gauge by calling `read` at each scrape."""
        spec = self._specs[name]
        if spec.kind is not MetricKind.GAUGE:
            raise ValueError(f"{name} is a {spec.kind.value}, not a gauge")
        gauge: Gauge = getattr(self, name)
        (gauge if label is None else gauge.labels(label)).set_function(read)

    def families(self) -> Iterator[Metric]:
        """Every metric with its samples, as they are now."""
        return self._view.collect()

    def render(self) -> bytes:
        """The text exposition; its media type is `content_type`."""
        return generate_latest(self._view)

    def value(self, name: str, **labels: str) -> float | None:
        """A sample by its exposed name without prefix (`sessions_total`, `..._sum`); None when absent."""
        found = self._registry.get_sample_value(f"{PREFIX}_{name}", labels)
        return None if found is None else float(found)

    def session_ended(self, outcome: str, seconds: float) -> None:
        self.count("sessions", outcome)
        self.session_seconds.observe(seconds)

    def video_frame(self, reason: str) -> None:
        """A camera frame has come to its end. Raises ValueError for a reason that the catalogue does not have."""
        known = FrameReason(reason)
        self.video_frames.labels(known.kept, known.value).inc()


class LoopLag:
    """Reports the running loop's lag in seconds to `observe` until `stop`."""

    def __init__(self, observe: Callable[[float], None], *, interval_s: float = 0.1) -> None:
        self._observe = observe
        self._interval_s = interval_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, if it has not begun; must be called with a running loop."""
        self.stop()
        self._loop = asyncio.get_running_loop()
        self._arm(self._loop, self._loop.time() + self._interval_s)

    def stop(self) -> None:
        """End. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._timer = loop.call_at(due, self._fire, loop, due)

    def _fire(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._observe(max(0.0, now - due))
        missed = int((now - due) / self._interval_s)
        self._arm(loop, due + (missed + 1) * self._interval_s)
