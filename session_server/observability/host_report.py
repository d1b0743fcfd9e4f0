"""What the engine host reports, given its names of the catalogue.

Times are seconds. Audio of cancelled responses is
counted by the sessions, which know what was heard; of the host's own reports only dropped drafts add to the
audio wasted, since no session ever heard of those.
"""

from __future__ import annotations

from collections.abc import Mapping

from session_server.observability.catalogue import TurnLeg, WasteWhere
from session_server.observability.host_metrics import FirstChunk, HostMetrics
from session_server.observability.metrics import Metrics
from session_server.scheduler.admission import OverloadStep


class HostReport(HostMetrics):
    """The engine host's door into `Metrics`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.overload_step(OverloadStep.NONE.value)

    def stage_step(self, stage: str, seconds: float, batch: int) -> None:
        self._metrics.stage_step_seconds.labels(stage).observe(seconds)
        self._metrics.stage_batch_size.labels(stage).observe(batch)

    def queue_depth(self, stage: str, depth: int) -> None:
        self._metrics.stage_queue_depth.labels(stage).set(depth)

    def starved_step(self, stage: str) -> None:
        self._metrics.stage_starved_steps.labels(stage).inc()

    def chunk_frames(self, stage: str, frames: int) -> None:
        self._metrics.chunk_frames.labels(stage).observe(frames)

    def stale(self, boundary: str) -> None:
        self._metrics.stale_outputs.labels(boundary).inc()

    def audio_generated(self, seconds: float) -> None:
        self._metrics.audio_generated_seconds.inc(seconds)

    def wasted(self, where: str, audio_s: float, tokens: int) -> None:
        if where == "draft":
            self._metrics.audio_wasted_seconds.labels(WasteWhere.DRAFT.value).inc(max(0.0, audio_s))
        self._metrics.tokens_wasted.labels(where).inc(max(0, tokens))

    def first_chunk(self, times: FirstChunk) -> None:
        legs = {
            TurnLeg.ASR: times.asr_s,
            TurnLeg.ADMISSION: times.wait_s,
            TurnLeg.PREFILL: times.prefill_s,
            TurnLeg.FIRST_CLAUSE: times.first_clause_s,
            TurnLeg.FIRST_CHUNK: times.first_chunk_s,
        }
        for leg, seconds in legs.items():
            self._metrics.turn_stage_seconds.labels(leg.value).observe(seconds)
        drafted = "true" if times.drafted else "false"
        self._metrics.response_first_chunk_seconds.labels(drafted).observe(times.after_turn_end_s)

    def admission(self, decision: str, reason: str) -> None:
        self._metrics.admission_decisions.labels(decision, reason).inc()

    def engine_failed(self, stage: str, kind: str) -> None:
        self._metrics.stage_failures.labels(stage, kind).inc()

    def engine_figures(self, stage: str, figures: Mapping[str, float]) -> None:
        for state in ("running", "waiting", "held"):
            if state in figures:
                self._metrics.engine_answers.labels(state).set(figures[state])
        if "kv_used" in figures:
            self._metrics.engine_state_used_ratio.set(figures["kv_used"])

    def prompt_read(self, read: int, cached: int) -> None:
        self._metrics.prompt_tokens.labels("read").inc(max(0, read))
        self._metrics.prompt_tokens.labels("cached").inc(max(0, cached))

    def runaway(self, kind: str) -> None:
        self._metrics.runaway_answers.labels(kind).inc()

    def work_done(self, stage: str, seconds: float, partial: bool) -> None:
        self._metrics.recognition_seconds.labels(stage, "true" if partial else "false").observe(
            seconds
        )

    def work_dropped(self, stage: str, reason: str) -> None:
        self._metrics.works_dropped.labels(stage, reason).inc()

    def gave_way(self, stage: str) -> None:
        self._metrics.works_dropped.labels(stage, "gave_way").inc()

    def overload_step(self, step: str) -> None:
        for name in OverloadStep:
            self._metrics.overload_step.labels(name.value).set(name.value == step)

    def kv_blocks(self, state: str, blocks: int) -> None:
        self._metrics.kv_blocks.labels(state).set(blocks)

    def kv_evicted(self, reason: str) -> None:
        self._metrics.kv_evictions.labels(reason).inc()

    def kv_reloaded(self, seconds: float, critical: bool) -> None:
        self._metrics.kv_reload_seconds.labels("true" if critical else "false").observe(seconds)

    def kv_preload(self, result: str, size_bytes: int) -> None:
        self._metrics.kv_preloads.labels(result).inc()
        self._metrics.kv_preload_bytes.labels(result).inc(size_bytes)
