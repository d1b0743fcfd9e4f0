"""The metrics registry: complete, isolated, and safe against names that do not exist."""

from __future__ import annotations

import pytest
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from session_server.observability.catalogue import SPECS, MetricKind
from session_server.observability.metrics import Metrics

pytestmark = pytest.mark.unit

KINDS = {MetricKind.COUNTER: Counter, MetricKind.GAUGE: Gauge, MetricKind.HISTOGRAM: Histogram}


def families(metrics: Metrics) -> dict[str, object]:
    text = metrics.render().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_every_spec_is_a_typed_attribute_and_no_attribute_lacks_a_spec():
    metrics = Metrics()
    annotated = {n for n in Metrics.__annotations__ if n != "content_type"}
    assert annotated == {spec.name for spec in SPECS}
    for spec in SPECS:
        assert type(getattr(metrics, spec.name)) is KINDS[spec.kind]
        assert Metrics.__annotations__[spec.name] == KINDS[spec.kind].__name__


def test_names_carry_base_units():
    for spec in SPECS:
        if spec.unit in ("seconds", "bytes"):
            assert spec.name.endswith(spec.unit), spec.name
        assert not spec.name.endswith(("_ms", "_total")), spec.name
        assert spec.help.endswith("."), spec.name
        assert (spec.kind is MetricKind.HISTOGRAM) == bool(spec.buckets), spec.name
        assert list(spec.buckets) == sorted(spec.buckets), spec.name


def test_scrape_parses_and_holds_the_process_figures():
    found = families(Metrics(version="1.2.3"))
    assert "process_cpu_seconds" in found
    assert "process_resident_memory_bytes" in found
    assert "session_server_build_info" in found


def test_scrape_has_no_creation_times():
    assert b"_created" not in Metrics().render()


def test_closed_labels_start_at_zero():
    assert Metrics().value("interruptions_total", kind="true") == 0


def test_two_servers_in_one_process_do_not_share_counts():
    one, other = Metrics(), Metrics()
    one.count("playback_underruns")
    assert one.value("playback_underruns_total") == 1
    assert other.value("playback_underruns_total") == 0


def test_count_adds_observes_and_sets_by_kind():
    metrics = Metrics(strict=True)
    metrics.count("audio_wasted_seconds", "sent", 0.5)
    metrics.count("audio_wasted_seconds_total", "sent", 0.25)
    metrics.count("endpointing_delay_seconds", None, 0.32)
    metrics.count("sessions_active", None, 3)
    assert metrics.value("audio_wasted_seconds_total", where="sent") == 0.75
    assert metrics.value("endpointing_delay_seconds_sum") == 0.32
    assert metrics.value("endpointing_delay_seconds_count") == 1
    assert metrics.value("sessions_active") == 3


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("no_such_thing", None),
        ("interruptions", None),
        ("interruptions", "sneeze"),
        ("playback_underruns", "extra"),
        ("admission_decisions", "accept"),
    ],
)
def test_a_wrong_name_or_label_fails_in_tests_and_is_counted_in_production(name, label, caplog):
    with pytest.raises((KeyError, ValueError)):
        Metrics(strict=True).count(name, label)
    metrics = Metrics()
    metrics.count(name, label)
    metrics.count(name, label)
    assert metrics.value("unknown_counts_total") == 2
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1


def test_a_negative_amount_on_a_counter_is_counted_not_raised():
    metrics = Metrics()
    metrics.count("playback_underruns", None, -1.0)
    assert metrics.value("unknown_counts_total") == 1


def test_a_watched_gauge_is_read_at_each_scrape():
    metrics = Metrics()
    open_sessions: list[str] = []
    metrics.watch("sessions_active", lambda: len(open_sessions))
    assert metrics.value("sessions_active") == 0
    open_sessions.append("sess_1")
    assert metrics.value("sessions_active") == 1


def test_only_gauges_can_be_watched():
    with pytest.raises(ValueError, match="not a gauge"):
        Metrics().watch("sessions", lambda: 0)


def test_an_ended_session_is_counted_with_its_length():
    metrics = Metrics(strict=True)
    metrics.session_ended("closed", 12.0)
    assert metrics.value("sessions_total", outcome="closed") == 1
    assert metrics.value("session_seconds_sum") == 12.0


@pytest.mark.parametrize(("reason", "kept"), [("change", "yes"), ("replaced", "no")])
def test_the_reason_of_a_camera_frame_says_whether_it_was_kept(reason, kept):
    metrics = Metrics(strict=True)
    assert metrics.value("video_frames_total", kept=kept, reason=reason) == 0
    metrics.video_frame(reason)
    metrics.count("video_frames", reason)
    assert metrics.value("video_frames_total", kept=kept, reason=reason) == 2


def test_a_camera_frame_needs_a_reason_that_there_is():
    metrics = Metrics(strict=True)
    with pytest.raises(ValueError, match="boredom"):
        metrics.count("video_frames", "boredom")
    with pytest.raises(ValueError, match="labels"):
        metrics.count("video_frames")
