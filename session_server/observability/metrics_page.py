"""The documentation page of the metrics, written from the catalogue.

    python -m session_server.observability.metrics_page > docs/metrics.md

A test compares the page in `docs/` with what this gives, so the two cannot part.
"""

from __future__ import annotations

import sys

from session_server.observability.catalogue import (
    DUPLEX_SPECS,
    PLAYBACK_SPECS,
    PROCESS_SPECS,
    SESSION_SPECS,
    STAGE_SPECS,
    TURN_SPECS,
    Label,
    MetricKind,
    Spec,
)

_INTRODUCTION = """\
# Metrics

`GET /metrics` gives these in the Prometheus text format. Times are seconds, sizes are bytes, positions are
counted in samples and shown in seconds. `configs/grafana-dashboard.json` shows the most useful ones.

This page is written from the code: `python -m session_server.observability.metrics_page > docs/metrics.md`.

How to read them:

* **Where a figure was taken matters.** `origin="client_ack"` rests on what the client reported as played;
  `server_estimate` on the time since the audio was sent, which cannot see the client's own delays. The two are
  never mixed in one series.
* **First audio** counts from the user's last voiced sample to the first *audible* sample (the first 10 ms above
  -50 dBFS), so leading silence counts as waiting. Turns that the user did not speak give no sample.
* **An underrun** is a gap at the listener inside an answer, not a pause that an interruption asked for.
* `session_server_stuck_sessions_total`, `session_server_stage_failures_total` and
  `session_server_unknown_counts_total` should stay 0; each increase is worth a look.
"""

_FOOTER = """\
## The process

`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`, `process_start_time_seconds`
and the other standard figures of the process are there as well (on Linux).

With `--workers N` each worker answers for the whole server: counters, histograms and gauges are the sum over all processes, but for
`input_backlog_seconds` (the greatest counts), `process_start_time_seconds` and `process_max_fds` (the engine host's own). What a worker
counted stays in the sum when it is gone; if it is killed, without what it counted in the last 3 s that nobody has seen yet.
"""

_SECTIONS: tuple[tuple[str, tuple[Spec, ...]], ...] = (
    ("Sessions", SESSION_SPECS),
    ("Turns and interruptions", TURN_SPECS),
    ("Playback", PLAYBACK_SPECS),
    ("Stages and scheduling", STAGE_SPECS),
    ("Duplex models", DUPLEX_SPECS),
    ("The server", PROCESS_SPECS),
)


def _label(label: Label) -> str:
    if label.values is None:
        return f"`{label.name}`"
    return f"`{label.name}`: {', '.join(value.value for value in label.values)}"


def _row(spec: Spec) -> str:
    labels = "; ".join(_label(label) for label in spec.labels) or "-"
    return f"| `{spec.exposed_name}` | {spec.kind.value} | {spec.unit} | {labels} | {spec.help} |"


def _buckets() -> str:
    rows = [
        f"| `{spec.exposed_name}` | {', '.join(f'{edge:g}' for edge in spec.buckets)} |"
        for _, specs in _SECTIONS
        for spec in specs
        if spec.kind is MetricKind.HISTOGRAM
    ]
    return "\n".join(["## Buckets", "", "| histogram | upper edges |", "|---|---|", *rows, ""])


def page() -> str:
    """The whole page as Markdown."""
    parts = [_INTRODUCTION]
    for title, specs in _SECTIONS:
        table = ["| name | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
        parts.append("\n".join([f"## {title}", "", *table, *map(_row, specs), ""]))
    parts += [_buckets(), _FOOTER]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
