"""One page for many processes: sums without double counting, and counters that never fall."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from session_server.observability.catalogue import PREFIX, SPECS, MetricKind
from session_server.observability.metrics import Metrics
from session_server.observability.multiprocess_metrics import Totals, counts_of

pytestmark = pytest.mark.unit


def value(totals: Totals, name: str, **labels: str) -> float | None:
    """A sample of the page."""
    for family in text_string_to_metric_families(totals.page().decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None


def ours(totals: Totals, name: str, **labels: str) -> float | None:
    return value(totals, f"{PREFIX}_{name}", **labels)


@pytest.fixture
def three() -> tuple[Totals, Metrics, Metrics, Metrics]:
    """Host and two workers; the workers have not told anything yet."""
    host, a, b = (Metrics(strict=True, version="1", config="x") for _ in range(3))
    return Totals(host), host, a, b


def test_counters_and_histograms_are_summed_over_all(three):
    totals, host, a, b = three
    for metrics, times in ((host, 1), (a, 2), (b, 3)):
        for _ in range(times):
            metrics.count("stale_outputs", "host")
            metrics.count("endpointing_delay_seconds", value=0.22)
    totals.tell("a", counts_of(a))
    totals.tell("b", counts_of(b))
    assert ours(totals, "stale_outputs_total", boundary="host") == 6
    assert ours(totals, "endpointing_delay_seconds_count") == 6
    assert ours(totals, "endpointing_delay_seconds_sum") == pytest.approx(1.32)
    assert ours(totals, "endpointing_delay_seconds_bucket", le="0.2") == 0
    assert ours(totals, "endpointing_delay_seconds_bucket", le="0.25") == 6


def test_telling_again_replaces_what_was_told(three):
    totals, _, a, _ = three
    for _ in range(3):
        a.count("sessions", "closed")
        totals.tell("a", counts_of(a))
    assert ours(totals, "sessions_total", outcome="closed") == 3


def test_what_a_dead_process_counted_stays_and_its_gauges_go(three):
    totals, _, a, b = three
    a.count("sessions", "closed")
    a.count("session_seconds", value=7)
    a.sessions_active.set(5)
    totals.tell("a", counts_of(a))
    totals.ended("a")
    totals.ended("a")
    b.count("sessions", "closed")
    totals.tell("a", counts_of(b))  # the one that took its place
    assert ours(totals, "sessions_total", outcome="closed") == 2
    assert ours(totals, "session_seconds_count") == 1
    assert ours(totals, "sessions_active") == 0


def test_the_processor_time_of_a_dead_process_is_not_given_back(three):
    totals, _, a, _ = three
    before = value(totals, "process_cpu_seconds_total") or 0
    totals.tell("a", counts_of(a))
    with_it = value(totals, "process_cpu_seconds_total") or 0
    memory = value(totals, "process_resident_memory_bytes") or 0
    totals.ended("a")
    assert with_it > 1.5 * before
    assert (value(totals, "process_cpu_seconds_total") or 0) >= with_it
    assert (value(totals, "process_resident_memory_bytes") or 0) < memory


def test_gauges_are_summed_but_for_those_that_name_the_greatest(three):
    totals, host, a, b = three
    for metrics, number in ((a, 2), (b, 3)):
        metrics.sessions_active.set(number)
        metrics.input_backlog_seconds.set(number)
        totals.tell(number, counts_of(metrics))
    assert ours(totals, "sessions_active") == 5
    assert ours(totals, "input_backlog_seconds") == 3
    labels = {"version": "1", "config": "x"}
    python = host.build_info._labelnames  # the third label's value is this Python
    assert python == ("version", "python", "config")
    page = totals.page().decode()
    assert page.count(f"{PREFIX}_build_info{{") == 1
    assert all(f'{name}="{text}"' in page for name, text in labels.items())
    assert page.rstrip().count("\n") > len(SPECS)


def test_a_series_that_only_a_worker_has_is_whole(three):
    totals, _, a, _ = three
    a.response_first_chunk_seconds.labels("true").observe(0.5)
    totals.tell("a", counts_of(a))
    edges = next(s for s in SPECS if s.name == "response_first_chunk_seconds").buckets
    for edge in edges:
        found = ours(
            totals,
            "response_first_chunk_seconds_bucket",
            drafted="true",
            le=str(float(edge)),
        )
        assert found == (1 if edge >= 0.5 else 0)


def test_figures_of_which_a_sum_says_nothing_are_the_hosts_own(three):
    totals, _, a, _ = three
    before = value(totals, "process_start_time_seconds")
    totals.tell("a", counts_of(a))
    assert value(totals, "process_start_time_seconds") == before


def test_without_others_the_page_is_the_ordinary_one(three):
    totals, host, _, _ = three
    host.count("sessions", "closed")

    def without_process(page: bytes) -> list[str]:
        return [line for line in page.decode().splitlines() if "process_" not in line]

    assert without_process(totals.page()) == without_process(host.render())


def test_every_gauge_with_a_greatest_is_a_gauge():
    assert all(spec.kind is MetricKind.GAUGE for spec in SPECS if spec.greatest)
