"""The engine host's reports reach the metrics that the page lists."""

from __future__ import annotations

import pytest

from session_server.observability.host_metrics import FirstChunk, HostMetrics
from session_server.observability.host_report import HostReport
from session_server.observability.metrics import Metrics

pytestmark = pytest.mark.unit


@pytest.fixture
def metrics():
    return Metrics(strict=True)


def report(metrics: Metrics) -> HostMetrics:
    return HostReport(metrics)


def test_it_has_every_report_of_the_host(metrics):
    wanted = {name for name in vars(HostMetrics) if not name.startswith("_")}
    assert wanted <= set(vars(HostReport))


def test_each_report_moves_its_metric(metrics):
    host = report(metrics)
    host.stage_step("talker", 0.08, 3)
    host.queue_depth("talker", 4)
    host.starved_step("codec")
    host.chunk_frames("codec", 16)
    host.stale("vocoder")
    host.audio_generated(0.2)
    host.admission("refuse", "capacity")
    host.engine_failed("asr", "hung")
    host.runaway("too_long")
    host.work_done("asr", 0.12, True)
    host.work_dropped("turn", "late")
    assert metrics.value("stage_batch_size_sum", stage="talker") == 3
    assert metrics.value("stage_queue_depth", stage="talker") == 4
    assert metrics.value("stage_starved_steps_total", stage="codec") == 1
    assert metrics.value("chunk_frames_sum", stage="codec") == 16
    assert metrics.value("stale_outputs_total", boundary="vocoder") == 1
    assert metrics.value("audio_generated_seconds_total") == 0.2
    assert metrics.value("admission_decisions_total", decision="refuse", reason="capacity") == 1
    assert metrics.value("stage_failures_total", stage="asr", kind="hung") == 1
    assert metrics.value("runaway_answers_total", kind="too_long") == 1
    assert metrics.value("recognition_seconds_count", stage="asr", partial="true") == 1
    assert metrics.value("works_dropped_total", stage="turn", reason="late") == 1


def test_the_break_down_of_a_first_chunk(metrics):
    report(metrics).first_chunk(FirstChunk("s", "r", True, 0.1, 0.0, 0.05, 0.2, 0.08, 0.33, 0.02))
    sums = {
        leg: metrics.value("turn_stage_seconds_sum", leg=leg)
        for leg in ("asr", "admission", "prefill", "first_clause", "first_chunk")
    }
    assert sums == {
        "asr": 0.1, "admission": 0.0, "prefill": 0.05, "first_clause": 0.2, "first_chunk": 0.08,
    }  # fmt: skip
    assert metrics.value("response_first_chunk_seconds_sum", drafted="true") == 0.02


def test_only_dropped_drafts_waste_audio_that_no_session_knows_of(metrics):
    host = report(metrics)
    host.wasted("draft", 0.6, 12)
    host.wasted("cancelled", 1.5, 30)
    assert metrics.value("audio_wasted_seconds_total", where="draft") == 0.6
    assert metrics.value("audio_wasted_seconds_total", where="sent") == 0
    assert metrics.value("tokens_wasted_total", where="cancelled") == 30


def test_residency_and_the_ladder_have_their_names():
    metrics = Metrics()
    report = HostReport(metrics)
    report.kv_blocks("idle", 3)
    report.kv_evicted("room")
    report.kv_reloaded(0.02, critical=True)
    report.kv_preload("hit", 1000)
    report.gave_way("thinker")
    report.overload_step("longer_chunks")
    report.overload_step("defer")
    assert metrics.value("kv_blocks", state="idle") == 3
    assert metrics.value("kv_evictions_total", reason="room") == 1
    assert metrics.value("kv_reload_seconds_count", critical="true") == 1
    assert metrics.value("kv_preloads_total", result="hit") == 1
    assert metrics.value("kv_preload_bytes_total", result="hit") == 1000
    assert metrics.value("works_dropped_total", stage="thinker", reason="gave_way") == 1
    assert metrics.value("overload_step", step="defer") == 1
    assert metrics.value("overload_step", step="longer_chunks") == 0
