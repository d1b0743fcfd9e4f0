"""Tables of sweeps and comparisons, on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from loadgen.lab.compare import (
    SeenKnee,
    base_of,
    figure_ratio,
    figures_by_seed,
    knee_ratio,
    seen_knee_ratio,
    seen_knees,
    spread_of,
)

LEAST_EVENTS = 10
Rows = Sequence[Sequence[str]]


def cell_of(spread: Sequence[float] | None, digits: int = 0) -> str:
    """Mean and range over seeds: `212 (208-219)`; a dash for none; the mean alone where all agree."""
    if spread is None:
        return "-"
    mean, least, most = (f"{value:.{digits}f}" for value in spread)
    return mean if least == most else f"{mean} ({least}-{most})"


def wait_cell(cell: Mapping[str, Any], sessions: int, name: str) -> str:
    """A percentile of waits over the seeds: `2100 to no end` where it falls on a wait without end for some of them."""
    if not all(figures_by_seed(cell, sessions, "answers").values()):
        return "-"
    values = figures_by_seed(cell, sessions, name).values()
    ended = [value for value in values if value is not None]
    if len(ended) == len(values):
        return cell_of(spread_of(ended))
    return f"{min(ended):.0f} to no end" if ended else "no end"


def wait_ratio_cell(
    cell: Mapping[str, Any], base: Mapping[str, Any], sessions: int, name: str
) -> str:
    """The same over the base's, seed by seed; a dash where the base's has no end."""
    ours, theirs = (figures_by_seed(one, sessions, name) for one in (cell, base))
    if not ours or any(not theirs.get(seed) for seed in ours):
        return "-"
    ended = [value / theirs[seed] for seed, value in ours.items() if value is not None]
    if len(ended) == len(ours):
        return cell_of(spread_of(ended), 2)
    return f"{min(ended):.2f} to no end" if ended else "no end"


def holds_cell(row: Mapping[str, Any]) -> str:
    """`3 of 5`: seeds that hold of those with answers enough to tell; how many had too few."""
    judged = row.get("judged", row["seeds"])
    if not judged:
        return "too few answers"
    short = row["seeds"] - judged
    return f"{row['holds']} of {judged}" + f", {short} had too few answers" * bool(short)


def _without_ranges(rows: Rows) -> Rows:
    """For a narrow terminal."""
    return [[cell.partition(" (")[0] for cell in row] for row in rows]


def markdown(titles: Sequence[str], rows: Rows) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


WIDE = 150
"""Columns of a terminal that has room for ranges."""


def rich_table(title: str, titles: Sequence[str], rows: Rows, width: int) -> Table:
    table = Table(title=title)
    rows = rows if width >= WIDE else _without_ranges(rows)
    for number, name in enumerate(titles):
        table.add_column(name, justify="right" if number else "left", no_wrap=not number)
    for row in rows:
        table.add_row(*row)
    return table


SWEEP_TITLES = (
    "sessions", "holds", "P90, ms", "P99, ms", "C100", "goodput/s", "starved", "wasted", "given up",
)  # fmt: skip


def sweep_rows(report: Mapping[str, Any]) -> list[list[str]]:
    """One line for each number of sessions: mean (least-most) over its seeds."""
    return [
        [
            str(row["sessions"]),
            holds_cell(row),
            wait_cell(report, row["sessions"], "p90_ms"),
            wait_cell(report, row["sessions"], "p99_ms"),
            cell_of(row["c100"], 3),
            cell_of(row["goodput_per_s"], 2),
            cell_of(row["starved"]),
            cell_of(row["wasted"], 3),
            str(row["given_up"]),
        ]
        for row in report["by_sessions"]
    ]


def print_sweep(report: Mapping[str, Any], console: Console) -> None:
    title = f"{report['candidate']}, {report['workload_name']}, {report['profile']}"
    console.print(rich_table(title, SWEEP_TITLES, sweep_rows(report), console.width))
    console.print(sweep_verdict(report), markup=False, soft_wrap=True)


def sweep_verdict(report: Mapping[str, Any]) -> str:
    """One sentence."""
    if not report["complete"]:
        return f"interrupted after {len(report['points'])} runs: the knee is not known"
    found, seeds = report["sessions_at_slo"], report["sessions_at_slo_by_seed"]
    each = ", ".join(f"{n}" for n in seeds.values()) or "not looked for"
    more = " or more (the search ended there)" if report["search_ended_at_limit"] else ""
    pooled = report["sessions_at_slo_pooled"]
    together = "" if pooled is None else f"; all seeds as one sample: {pooled}"
    judged = [p.get("judged", p["answers"] >= LEAST_EVENTS) for p in report["points"]]
    short = not all(judged)
    if short and not found:
        found = "not known"
    warning = f"; some runs had fewer than {LEAST_EVENTS} answers, too few to judge (C100 and other shares show a dash): use more --seconds"
    return (
        f"sessions at the service level: {found}{more}; each seed by itself: {each}{together}"
        f"{warning * short}"
    )


KNEE_TITLES = (
    "candidate", "sessions at SLO", "each seed", "ratio", "pooled", "goodput/s there", "wasted there",
)  # fmt: skip
FIGURE_TITLES = (
    "candidate", "sessions", "holds", "P90, ms", "ratio", "P99, ms", "C100", "goodput/s", "ratio", "wasted", "starved",
    "refused", "reload p95, ms", "preloaded in vain",
)  # fmt: skip
SEEN_KNEE_TITLES = ("candidate", "measured at", "all seeds hold up to", "each seed", "ratio")
_SELDOM = ("refused", "reload p95, ms", "preloaded in vain")
"""Columns that are left out where they say nothing."""


def comparison_tables(found: Mapping[str, Any]) -> list[tuple[str, Sequence[str], Rows]]:
    """Title, column titles and rows for each profile and workload."""
    tables: list[tuple[str, Sequence[str], Rows]] = []
    for profile in found["profiles"]:
        for workload in found["workloads"]:
            cells = [cell for cell in found["cells"] if cell["place"] == [profile, workload]]
            rows: Rows
            if found["sessions"]:
                rows = [line for cell in cells for line in _figure_rows(found, cell)]
            else:
                rows = [_knee_row(found, cell) for cell in cells]
            if rows:
                wanted = FIGURE_TITLES if found["sessions"] else KNEE_TITLES
                titles, rows = _telling(wanted, rows)
                tables.append((f"{workload}, {profile}", titles, rows))
            several = [cell for cell in cells if len(cell["by_sessions"]) > 1]
            if found["sessions"] and several:
                rows = [_seen_knee_row(found, cell) for cell in several]
                tables.append((f"{workload}, {profile}: knees", SEEN_KNEE_TITLES, rows))
    return tables


def _knee_row(found: Mapping[str, Any], cell: Mapping[str, Any]) -> list[str]:
    base, knee = base_of(found, cell), cell["sessions_at_slo"]
    there = next((row for row in cell["by_sessions"] if row["sessions"] == knee), None)
    return [
        cell["candidate"],
        f"{knee}{'+' if cell['search_ended_at_limit'] else ''}",
        ", ".join(str(n) for n in cell["sessions_at_slo_by_seed"].values()) or "-",
        cell_of(knee_ratio(cell, base) if base else None, 2),
        "-" if cell["sessions_at_slo_pooled"] is None else str(cell["sessions_at_slo_pooled"]),
        cell_of(there and there["goodput_per_s"], 2),
        cell_of(there and there["wasted"], 3),
    ]


def _seen_knee_row(found: Mapping[str, Any], cell: Mapping[str, Any]) -> list[str]:
    base, knees = base_of(found, cell), seen_knees(cell)
    least = min(row["sessions"] for row in cell["by_sessions"])

    def shown(knee: SeenKnee) -> str:
        if not knee.sessions:
            return f"below {least}"
        return f"{knee.sessions}{'' if knee.bounded else ' or more'}"

    return [
        cell["candidate"],
        ", ".join(str(row["sessions"]) for row in cell["by_sessions"]),
        shown(min(knees.values(), key=lambda knee: (knee.sessions, not knee.bounded))),
        ", ".join(map(shown, knees.values())),
        cell_of(seen_knee_ratio(cell, base) if base else None, 2),
    ]


def _figure_rows(found: Mapping[str, Any], cell: Mapping[str, Any]) -> list[list[str]]:
    base = base_of(found, cell)

    def ratio(row: Mapping[str, Any], name: str) -> str:
        return cell_of(figure_ratio(cell, base, row["sessions"], name) if base else None, 2)

    return [
        [
            cell["candidate"],
            str(row["sessions"]),
            holds_cell(row),
            wait_cell(cell, row["sessions"], "p90_ms"),
            wait_ratio_cell(cell, base, row["sessions"], "p90_ms") if base else "-",
            wait_cell(cell, row["sessions"], "p99_ms"),
            cell_of(row["c100"], 3),
            cell_of(row["goodput_per_s"], 2),
            ratio(row, "goodput_per_s"),
            cell_of(row["wasted"], 3),
            cell_of(row["starved"]),
            cell_of(row["refused"]),
            cell_of(row["reload_p95_ms"], 1),
            cell_of(row["wasted_preload"], 3),
        ]
        for row in cell["by_sessions"]
    ]


def _telling(titles: Sequence[str], rows: Rows) -> tuple[list[str], Rows]:
    """Without the columns of `_SELDOM` that have only dashes and zeros."""
    kept = [
        place
        for place, title in enumerate(titles)
        if title not in _SELDOM or any(row[place].strip("0.-") for row in rows)
    ]
    return [titles[place] for place in kept], [[row[place] for place in kept] for row in rows]


def comparison_notes(found: Mapping[str, Any]) -> str:
    """What a reader must know beside the tables."""
    barge_in = "the workload's" if found["barge_in"] is None else f"{found['barge_in']:g}"
    left_out = found.get("warm_up_s")
    warm_up = "" if left_out is None else f" of which {left_out:g} are left out"
    parts = [
        f"Mean (least-most) over seeds {', '.join(map(str, found['seeds']))}; ratios to {found['base']}, seed by seed.",
        f"{found['seconds']:g} simulated seconds{warm_up}, barge-in {barge_in}, admission {'on' if found['admission'] else 'off'}.",
    ]
    if found["admission"]:
        parts.append(
            "A seed holds only where nobody is refused; all else is of those who were let in."
        )
    if found["sets"]:
        parts.append("For all: " + ", ".join(f"{k}={v}" for k, v in found["sets"].items()) + ".")
    if not found["complete"]:
        parts.append("Interrupted: not all was measured.")
    return " ".join(parts)


def comparison_markdown(found: Mapping[str, Any]) -> str:
    parts = [
        f"### {title}\n\n{markdown(titles, rows)}"
        for title, titles, rows in comparison_tables(found)
    ]
    return "\n".join([*parts, comparison_notes(found)]) + "\n"


def print_comparison(found: Mapping[str, Any], console: Console) -> None:
    for title, titles, rows in comparison_tables(found):
        console.print(rich_table(title, titles, rows, console.width))
    console.print(comparison_notes(found), markup=False, soft_wrap=True)
