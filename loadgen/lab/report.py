"""The report of a run: built, written, read, printed, and set beside another.

A report is a plain JSON object; `measure` defines its figures. Beside them stand what is needed to repeat
the run: workload, seed, machine, server, and how late the load generator itself was.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from loadgen.call_reception import CALL_ROWS, section
from loadgen.drivers.load_run import LoadOutcome
from loadgen.measure import LEAST_EVENTS, duration_s, measure, spread
from loadgen.server_probe import Sample, StageTotals
from loadgen.slo import BarVerdict
from loadgen.video_figures import VIDEO_ROWS, groups, video_section
from session_server.simulation.spec import CameraUse
from session_server.types.errors import ConfigError

SCHEMA = 1

ROWS: tuple[tuple[str, str], ...] = (
    ("users", "users"),
    ("turns", "turns"),
    ("first audio p50, ms", "ttfa_ms.p50"),
    ("first audio p95, ms", "ttfa_ms.p95"),
    ("first audio p99, ms", "ttfa_ms.p99"),
    ("turn end -> audible p50, ms", "response_ms.p50"),
    ("turn end -> audible p95, ms", "response_ms.p95"),
    ("endpoint p50, ms", "endpoint_ms.p50"),
    ("endpoint p95, ms", "endpoint_ms.p95"),
    ("underruns", "underruns"),
    ("underruns, ms in all", "underrun_ms"),
    ("C100", "c100"),
    ("goodput, answers/s", "goodput_per_s"),
    ("wasted audio", "wasted_audio_ratio"),
    ("barge-ins", "barge_in.count"),
    ("barge-ins stopped", "barge_in.stopped"),
    ("onset -> fence p50, ms", "barge_in.onset_to_fence_ms.p50"),
    ("onset -> fence p95, ms", "barge_in.onset_to_fence_ms.p95"),
    ("onset -> silence p50, ms", "barge_in.stop_ms.p50"),
    ("onset -> silence p95, ms", "barge_in.stop_ms.p95"),
    ("stale chunks", "barge_in.stale_chunks"),
    ("backchannels", "backchannels.count"),
    ("backchannels that cut the answer", "backchannels.cut"),
    ("answers that began too early", "early_responses"),
    ("word error rate of transcripts", "recognition.wer"),
    ("events of other sessions", "leaks"),
    ("errors", "errors"),
    ("server CPU, s", "server_cpu_s"),
    ("server memory, MB", "server_rss_mb"),
    ("load generator late p99, ms", "driver.late_ms.p99"),
)

SIMULATION_ROWS: tuple[tuple[str, str], ...] = (
    ("policy", "policy"),
    ("chunk rule", "chunking"),
    ("profile", "profile"),
    ("workload", "workload_name"),
    ("barge-in", "workload.barge_in"),
    ("sessions", "sessions"),
    ("turns", "turns"),
    ("first audio p50, ms", "ttfa_ms.p50"),
    ("first audio p95, ms", "ttfa_ms.p95"),
    ("turn end -> audible p50, ms", "slo.p50"),
    ("turn end -> audible p90, ms", "slo.p90"),
    ("turn end -> audible p99, ms", "slo.p99"),
    ("waits without end", "slo.failed_waits"),
    ("waits over 2 s", "slo.starved"),
    ("C100", "c100"),
    ("holds the service level", "slo.held"),
    ("goodput at 500 ms, answers/s", "goodput.response_500_ms"),
    ("goodput at 1 s, answers/s", "goodput_per_s"),
    ("underruns", "underruns"),
    ("wasted audio", "wasted_audio_ratio"),
    ("barge-ins", "barge_in.count"),
    ("onset -> silence p50, ms", "barge_in.stop_ms.p50"),
    ("onset -> silence p95, ms", "barge_in.stop_ms.p95"),
    ("stale samples", "barge_in.stale_samples"),
    ("sessions offered", "admission.offered"),
    ("sessions refused", "sessions_refused"),
    ("turns deferred", "admission.deferred"),
    ("state reload on the path p95, ms", "residency.on_path_reload_ms.p95"),
    ("preloaded in vain", "residency.wasted_preload_share"),
    ("errors", "errors"),
    ("frames not answered in time, per minute", "frame_deficit_per_min"),
)
"""A row is shown if the report has it. Turn end -> audible counts waits without end."""


def build(
    outcome: LoadOutcome, *, users: int, planned: int, seed: int, workload: Mapping[str, Any], origin: str | None,
    camera: CameraUse | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The whole report of a run. `origin`: where the server's own figures come from, None: nowhere. `camera`: what some have."""
    figures = measure(outcome.records, duration_s(outcome.records))
    report = {
        "schema": SCHEMA,
        "measurement_origin": "client_clock",
        "users": users,
        "turns_planned": planned,
        "sessions": outcome.sessions,
        "seed": seed,
        **figures,
        **_server_figures(outcome.looks),
        "lead": [[round(at, 1), round(lead, 3)] for at, lead in outcome.lead],
        "server_figures_origin": origin,
        "stages": _stages([sample for _, sample in outcome.looks]),
        "driver": {
            "kind": "ws" if outcome.calls is None else "webrtc",
            "late_ms": spread(outcome.late_ns, (50, 99, 100)),
        },
        "workload": dict(workload),
        "machine": machine(),
        "server": dict(outcome.looks[-1][1].build) if outcome.looks else {},
    }
    if outcome.calls is not None:
        report["webrtc"] = section(outcome.calls, outcome.records)
    if camera is not None:
        looks = [sample for _, sample in outcome.looks]
        report["video"] = video_section(camera, users, outcome.film, looks)
        report |= groups(outcome.records)
    wasted = _server_waste(outcome.looks)
    if wasted is not None:
        report["wasted_audio_ratio"] = wasted
        report["wasted_audio_origin"] = "server_metrics"
    return report


def machine() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(terse=True),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }


def _server_figures(looks: Sequence[tuple[int, Sample]]) -> dict[str, Any]:
    cpu = [sample.cpu_s for _, sample in looks if sample.cpu_s is not None]
    rss = [(ended, s.rss_bytes / 1e6) for ended, s in looks if s.rss_bytes is not None]
    return {
        "server_cpu_s": round(cpu[-1] - cpu[0], 2) if len(cpu) > 1 else None,
        "server_rss_mb": round(rss[-1][1], 1) if rss else None,
        "server_rss_peak_mb": round(max(mb for _, mb in rss), 1) if rss else None,
        "server_rss_by_sessions": [[ended, round(mb, 1)] for ended, mb in _thinned(rss)],
    }


def _stages(looks: Sequence[Sample]) -> dict[str, Any]:
    """Between the first and the last look: share of the time that each stage was in a step, and its mean batch."""
    if len(looks) < 2 or looks[-1].at_s <= looks[0].at_s:
        return {}
    first, last = looks[0], looks[-1]
    figures = {}
    for stage, after in sorted(last.stages.items()):
        before = first.stages.get(stage, StageTotals())
        steps, jobs = after.steps - before.steps, after.jobs - before.jobs
        figures[stage] = {
            "occupancy": round((after.busy_s - before.busy_s) / (last.at_s - first.at_s), 4),
            "steps": round(steps),
            "mean_batch": round(jobs / steps, 3) if steps else None,
        }
    return figures


def _thinned(rss: Sequence[tuple[int, float]]) -> Iterable[tuple[int, float]]:
    """The last look at each number of sessions ended."""
    return dict(rss).items()


def _server_waste(looks: Sequence[tuple[int, Sample]]) -> float | None:
    made = [(s.generated_s, s.wasted_s or 0.0) for _, s in looks if s.generated_s is not None]
    if len(made) < 2 or made[-1][0] <= made[0][0]:
        return None
    return round((made[-1][1] - made[0][1]) / (made[-1][0] - made[0][0]), 4)


def write(report: Mapping[str, Any], path: Path) -> None:
    path.write_text(json.dumps(report, indent=2) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Raises ConfigError naming the file."""
    try:
        report = json.loads(path.read_text())
    except OSError as fault:
        raise ConfigError(f"report {path}: {fault.strerror}") from fault
    except ValueError as fault:
        raise ConfigError(f"report {path}: not JSON ({fault})") from fault
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ConfigError(f"report {path}: not a report of session-loadgen (schema {SCHEMA})")
    return report


def figure(report: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
    found: Any = report
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def rows_of(reports: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Titles and paths that fit these reports, of load runs, simulations or both; a path once, and only if one has it."""
    simulated = [one.get("measurement_origin") == "simulation" for one in reports]
    real = (*ROWS, *CALL_ROWS) * (not all(simulated))
    rows = (*SIMULATION_ROWS * any(simulated), *real, *VIDEO_ROWS)
    titles = {path: title for title, path in reversed(rows)}
    return [
        (titles[path], path)
        for path in dict.fromkeys(path for _, path in rows)
        if any(has(one, path) for one in reports)
    ]


def has(report: Mapping[str, Any], path: str) -> bool:
    """The report has that key, even if its value is null."""
    section, _, key = path.rpartition(".")
    found = figure(report, section) if section else report
    return isinstance(found, Mapping) and key in found


def shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def cell(report: Mapping[str, Any], path: str) -> str:
    """A figure as tables show it. Whether a run holds has three answers: yes, no, and that it had too few answers to tell."""
    value = figure(report, path)
    if path == "slo.held" and value is None and has(report, path):
        return "too few answers to tell"
    return shown(value)


def ratio(value: object, base: object) -> str:
    """Two digits; a dash where there is none."""
    numbers = [v for v in (value, base) if isinstance(v, int | float) and not isinstance(v, bool)]
    return f"{numbers[0] / numbers[1]:.2f}" if len(numbers) == 2 and numbers[1] else "-"


def why_dashes(report: Mapping[str, Any]) -> str | None:
    """What a reader must know of a run that was too short for its figures."""
    if report.get("c100") is not None or not has(report, "c100"):
        return None
    return (
        f"C100 and other shares show a dash: fewer than {LEAST_EVENTS} answers were heard, too few for a share;"
        " a longer run (or more users) has more"
    )


def _print_notes(report: Mapping[str, Any], console: Console) -> None:
    """Below the table."""
    if report.get("error_kinds"):
        kinds = ", ".join(f"{kind} x{count}" for kind, count in report["error_kinds"].items())
        console.print(f"errors: {kinds}", markup=False)
    note = why_dashes(report)
    if note is not None:
        console.print(note, markup=False, soft_wrap=True)


def print_report(report: Mapping[str, Any], console: Console) -> None:
    table = Table(title="Load run", show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    more = (*CALL_ROWS * ("webrtc" in report), *VIDEO_ROWS * ("video" in report))
    for title, path in (*ROWS, *more):
        table.add_row(title, shown(figure(report, path)))
    console.print(table)
    _print_notes(report, console)
    late = figure(report, "driver.late_ms.p99")
    if late is not None and late > 20:
        console.print(
            f"the load generator itself was late (p99 {late:g} ms): too many users for this machine, or other work runs on it",
            markup=False,
        )


def print_simulation(report: Mapping[str, Any], console: Console) -> None:
    table = Table(title="Simulated run", show_header=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for title, path in (*SIMULATION_ROWS, *VIDEO_ROWS):
        if has(report, path):
            table.add_row(title, cell(report, path))
    for stage, figures in report.get("stages", {}).items():
        batch = shown(figures["mean_batch"])
        table.add_row(f"{stage}: busy, mean batch", f"{figures['occupancy']:.0%}, {batch}")
    console.print(table)
    _print_notes(report, console)


def print_comparison(
    first: tuple[str, Mapping[str, Any]], second: tuple[str, Mapping[str, Any]], console: Console
) -> None:
    """Two reports side by side; a ratio is second over first."""
    table = Table(title="Two runs")
    table.add_column("")
    for name, _ in (first, second):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("ratio", justify="right")
    for title, path in rows_of((first[1], second[1])):
        a, b = figure(first[1], path), figure(second[1], path)
        table.add_row(title, cell(first[1], path), cell(second[1], path), ratio(b, a))
    console.print(table)
    differing = [
        key
        for key in ("workload", "machine", "server", "measurement_origin", "wasted_audio_origin")
        if first[1].get(key) != second[1].get(key)
    ]
    if differing:
        console.print(f"the runs differ in: {', '.join(differing)}", markup=False)


def print_verdicts(verdicts: Sequence[BarVerdict], console: Console) -> None:
    for verdict in verdicts:
        word = "held  " if verdict.held else "MISSED"
        console.print(f"{word} {verdict.bar} (is {shown(verdict.figure)})", markup=False)
