"""The page and the dashboard say what the code measures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from session_server.observability.catalogue import SPECS, MetricKind
from session_server.observability.metrics import Metrics
from session_server.observability.metrics_page import page

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
COMMAND = "python -m session_server.observability.metrics_page > docs/metrics.md"


def test_the_page_is_up_to_date():
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), f"run: {COMMAND}"


def test_the_page_names_every_metric():
    for spec in SPECS:
        assert f"`{spec.exposed_name}`" in page()


def dashboard_queries():
    dashboard = json.loads((ROOT / "configs" / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]


def exposed_series():
    names = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    assert all(name.encode() in Metrics().render() for name in names)
    for spec in SPECS:
        if spec.kind is MetricKind.HISTOGRAM:
            names |= {f"{spec.exposed_name}_{part}" for part in ("bucket", "sum", "count")}
        else:
            names.add(spec.exposed_name)
    return names


def test_the_dashboard_asks_only_for_series_that_exist():
    known = exposed_series()
    queries = list(dashboard_queries())
    assert len(queries) > 30
    for title, query in queries:
        asked = set(re.findall(r"\b(?:session_server|process)_[a-z_]+", query))
        assert asked, title
        assert asked <= known, title


def test_the_dashboard_groups_only_by_labels_that_the_series_have():
    labels = {s.exposed_name: {label.name for label in s.labels} | {"le"} for s in SPECS}
    for title, query in dashboard_queries():
        for grouping, name in re.findall(r"by \(([a-z, ]+)\) \((?:rate|increase)\((\w+)", query):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert set(grouping.split(", ")) <= labels[base], title
