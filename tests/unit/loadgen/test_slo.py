"""SLO files: errors name file and key; null figures miss their bar."""

from __future__ import annotations

import pytest

from loadgen.slo import judge, read_bars
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit

REPORT = {"c100": 0.97, "errors": 0, "ttfa_ms": {"p95": 900.5, "p99": None}, "server": {"v": "1"}}


def bars(tmp_path, text):
    file = tmp_path / "slo.yaml"
    file.write_text(text)
    return read_bars(file)


def verdicts(tmp_path, text):
    return [verdict.held for verdict in judge(bars(tmp_path, text), REPORT)]


def test_bars_hold_at_their_edge_and_are_missed_beyond(tmp_path):
    text = "ttfa_ms.p95: {max: 900.5}\nc100: {min: 0.98}\nerrors: {min: 0, max: 0}\n"
    assert verdicts(tmp_path, text) == [True, False, True]


def test_what_was_not_measured_does_not_hold(tmp_path):
    assert verdicts(tmp_path, "ttfa_ms.p99: {max: 5000}") == [False]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("c100: {least: 1}", "c100.least: unknown key"),
        ("c100: {min: high}", "c100.min: must be a number"),
        ("c100: {max: true}", "c100.max: must be a number"),
        ("c100: 0.9", "c100: must be"),
        ("c100: {}", "c100: must be"),
        ("- c100", "must map report keys"),
        ("", "must map report keys"),
        ("c100: {min: 1", "not YAML"),
    ],
)
def test_a_wrong_file_names_itself_and_the_key_in_one_line(tmp_path, text, named):
    with pytest.raises(ConfigError) as wrong:
        bars(tmp_path, text)
    assert named in str(wrong.value)
    assert "slo.yaml" in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        read_bars(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("key", ["c101", "ttfa_ms.p42", "ttfa_ms", "server.v", "c100.p50"])
def test_a_key_without_a_figure_is_named(tmp_path, key):
    with pytest.raises(ConfigError, match=f"SLO key {key}:"):
        verdicts(tmp_path, f"{key}: {{max: 1}}")
