"""Reports: the promised keys, files, comparison, SLO exit code."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from loadgen.cli import main
from loadgen.cli.running import realtime_url
from loadgen.drivers.load_run import LoadOutcome
from loadgen.lab import report as reports
from loadgen.server_probe import Sample, StageTotals, metrics_url, parse
from session_server.types.errors import ConfigError

pytestmark = pytest.mark.unit


def built(**sample) -> dict:
    looks = [
        (0, Sample(cpu_s=10.0, rss_bytes=5e8, generated_s=2.0, wasted_s=0.0)),
        (0, Sample(cpu_s=11.0, rss_bytes=7e8, generated_s=4.0, wasted_s=0.0)),
        (3, Sample(cpu_s=14.5, rss_bytes=6e8, generated_s=102.0, wasted_s=5.0)),
    ]
    outcome = LoadOutcome(late_ns=[0, 1_000_000], looks=looks, sessions=3)
    return reports.build(outcome, users=3, planned=9, seed=7, workload={}, origin="metrics")


def test_it_has_the_promised_keys():
    report = built()
    for key in ("ttfa_ms", "response_ms", "endpoint_ms"):
        assert {"p50", "p90", "p95", "p99"} <= report[key].keys()
    promised = {
        "users", "turns", "underruns", "underrun_ms", "c100", "goodput_per_s", "wasted_audio_ratio",
        "errors", "server_cpu_s", "server_rss_mb", "seed", "measurement_origin", "machine",
    }  # fmt: skip
    assert promised <= report.keys()
    assert {"count", "stop_ms", "stale_chunks"} <= report["barge_in"].keys()
    assert {"p50", "p95"} <= report["barge_in"]["stop_ms"].keys()
    assert json.loads(json.dumps(report)) == report


def test_server_figures_are_differences_over_the_run():
    report = built()
    assert report["server_cpu_s"] == 4.5
    assert (report["server_rss_mb"], report["server_rss_peak_mb"]) == (600.0, 700.0)
    assert report["server_rss_by_sessions"] == [[0, 700.0], [3, 600.0]]
    assert (report["wasted_audio_ratio"], report["wasted_audio_origin"]) == (0.05, "server_metrics")


def test_stages_are_differences_between_the_first_and_the_last_look():
    def look(at_s: float, busy_s: float, steps: float, jobs: float) -> tuple[int, Sample]:
        stages = {"talker": StageTotals(busy_s, steps, jobs), "idle": StageTotals()}
        return 0, Sample(cpu_s=1.0, stages=stages, at_s=at_s)

    outcome = LoadOutcome(looks=[look(100, 3, 10, 10), look(105, 4, 20, 30), look(110, 8, 30, 50)])
    report = reports.build(outcome, users=1, planned=1, seed=0, workload={}, origin="metrics")
    assert report["stages"]["talker"] == {"occupancy": 0.5, "steps": 20, "mean_batch": 2.0}
    assert report["stages"]["idle"] == {"occupancy": 0.0, "steps": 0, "mean_batch": None}


def test_every_row_of_the_table_is_a_figure_of_the_report():
    report = built()
    for _, path in reports.ROWS:
        found = report
        for part in path.split("."):
            assert part in found, path
            found = found[part]


def test_a_report_survives_its_file(tmp_path):
    reports.write(built(), tmp_path / "r.json")
    assert reports.read(tmp_path / "r.json") == built()


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "not JSON"), ("[]", "not a report"), ('{"schema": 99}', "not a report")],
)
def test_a_wrong_report_is_named(tmp_path, text, named):
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named) as wrong:
        reports.read(file)
    assert "bad.json" in str(wrong.value)


def test_comparison_shows_ratios_and_what_differs():
    console = Console(record=True, width=120)
    one, other = built(), built()
    other["server_cpu_s"] = 9.0
    other["workload"] = {"users": 2}
    reports.print_comparison(("a", one), ("b", other), console)
    shown = console.export_text()
    assert "2.00" in shown
    assert "the runs differ in: workload" in shown


def test_report_command_prints_a_file_and_refuses_three(tmp_path, capsys):
    file = str(tmp_path / "r.json")
    reports.write(built(), tmp_path / "r.json")
    assert main(["report", file]) == 0
    assert "first audio p95" in capsys.readouterr().err
    assert main(["report", file, file, file]) == 2
    assert main(["report", str(tmp_path / "none.json")]) == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://h:1", "ws://h:1/v1/realtime"),
        ("https://h", "wss://h/v1/realtime"),
        ("ws://h/realtime?model=m", "ws://h/realtime?model=m"),
        ("127.0.0.1:8901", "ws://127.0.0.1:8901/v1/realtime"),
        ("localhost:8901/realtime", "ws://localhost:8901/realtime"),
        ("[::1]:8901", "ws://[::1]:8901/v1/realtime"),
    ],
)
def test_urls(given, expected):
    assert realtime_url(given) == expected


def test_extensions_go_into_the_url():
    assert (
        realtime_url("ws://h?model=m", ["playback"])
        == "ws://h/v1/realtime?model=m&extensions=playback"
    )


def test_metrics_are_looked_for_on_the_same_host():
    assert metrics_url("wss://h:9/v1/realtime?model=m") == "https://h:9/metrics"


def test_an_exposition_is_read_with_its_labels_summed():
    sample = parse(
        "# HELP x y\n"
        "process_cpu_seconds_total 1.25\nprocess_resident_memory_bytes 1.5e+08\n"
        'session_server_audio_wasted_seconds_total{where="sent"} 1.5\n'
        'session_server_audio_wasted_seconds_total{where="vocoded"} 2.0\n'
        'session_server_stage_step_seconds_sum{stage="talker"} 2.5\n'
        'session_server_stage_batch_size_bucket{le="1.0",stage="talker"} 3.0\n'
        'session_server_stage_batch_size_sum{stage="talker"} 8.0\n'
        'session_server_stage_batch_size_count{stage="talker"} 4.0\n'
        'session_server_build_info{config="c",version="1"} 1.0\n'
    )
    assert sample is not None
    assert (sample.cpu_s, sample.rss_bytes, sample.wasted_s) == (1.25, 1.5e8, 3.5)
    assert sample.generated_s is None
    assert sample.stages == {"talker": StageTotals(busy_s=2.5, steps=4.0, jobs=8.0)}
    assert dict(sample.build) == {"config": "c", "version": "1"}
    assert parse("hello") is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--url", "nonsense"], "--url"),
        (["--silence-ms", "320", "--turn-detection", "semantic_vad"], "--silence-ms"),
        (["--barge-in", "0.7", "--backchannel", "0.6"], "--barge-in and --backchannel"),
        (["--arrivals", "slowly"], "--arrivals"),
        (["--speech", "/nowhere"], "/nowhere"),
        (["--slo", "/nowhere.yaml"], "/nowhere.yaml"),
        (["--report", "/nowhere/r.json"], "--report"),
        (["--backchannel-speech", "/nowhere"], "--backchannel-speech"),
    ],
)
def test_wrong_arguments_are_named_in_one_line_with_exit_code_2(
    arguments, named, capsys, monkeypatch
):
    monkeypatch.setattr("loadgen.cli.running.synthesised", lambda: None)
    assert main(["run", "--url", "ws://127.0.0.1:9", *arguments]) == 2
    shown = capsys.readouterr().err.strip()
    assert named in shown
    assert "\n" not in shown


def test_an_slo_key_that_no_report_has_shows_before_the_run(tmp_path, capsys):
    slo = tmp_path / "slo.yaml"
    slo.write_text("ttfa_ms.p42: {max: 1}\n")
    assert main(["run", "--url", "ws://127.0.0.1:9", "--slo", str(slo)]) == 2
    assert "ttfa_ms.p42" in capsys.readouterr().err
