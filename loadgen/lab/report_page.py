"""A page from reports: figures side by side, then plots of what the reports hold, then what is needed to repeat them.

`page_of` decides what is on it; `html` and `markdown` only write it down. A plot whose data no report has is left out and
said; without matplotlib all are.
"""

from __future__ import annotations

import base64
import html as escaping
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen.lab import plots
from loadgen.lab.compare import gathered, joined
from loadgen.lab.report import cell, figure, ratio, rows_of
from loadgen.lab.tables import (
    SWEEP_TITLES,
    Rows,
    comparison_notes,
    comparison_tables,
    markdown as markdown_table,
    sweep_rows,
    sweep_verdict,
)

Report = Mapping[str, Any]
Named = Sequence[tuple[str, Report]]


@dataclass(slots=True)
class Section:
    title: str
    text: str = ""
    titles: Sequence[str] = ()
    rows: Rows = ()
    image: bytes | None = None
    details: str = ""


@dataclass(slots=True)
class ReportPage:
    title: str
    sections: list[Section] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def page_of(reports: Named) -> ReportPage:
    """`reports`: names and reports of run, simulate, sweep and compare, in any mixture."""
    page = ReportPage("Load report")
    runs = [(name, one) for name, one in reports if "kind" not in one]
    sweeps = [(name, one) for name, one in reports if one.get("kind") == "sweep"]
    if runs:
        page.sections.append(_figures(runs))
        page.sections += _run_plots(page, runs)
    for name, one in sweeps:
        text = sweep_verdict(one)
        page.sections.append(Section(f"Sweep: {name}", text, SWEEP_TITLES, sweep_rows(one)))
    if sweeps:
        page.sections += _sweeps_together(page, sweeps)
    for name, one in gathered([(n, one) for n, one in reports if one.get("kind") == "compare"]):
        page.sections += _comparison(page, name, one)
    page.sections += [
        Section(f"Where {name} comes from", details=_origin(one)) for name, one in reports
    ]
    return page


def _can_draw(page: ReportPage) -> bool:
    if not plots.available() and plots.MISSING not in page.notes:
        page.notes.append(plots.MISSING)
    return plots.available()


def _figures(runs: Named) -> Section:
    """One column a report; with two and more, ratios to the first."""
    wanted = rows_of([one for _, one in runs])
    titles = ["", *(name for name, _ in runs), *(f"{name} / {runs[0][0]}" for name, _ in runs[1:])]
    rows = []
    for title, path in wanted:
        values = [figure(one, path) for _, one in runs]
        rows.append(
            [
                title,
                *(cell(one, path) for _, one in runs),
                *(ratio(value, values[0]) for value in values[1:]),
            ]
        )
    origins = {str(one.get("measurement_origin")) for _, one in runs}
    text = f"Measured by: {', '.join(sorted(origins))}."
    if len(origins) > 1:
        text += " Figures of different origins do not compare well."
    return Section("Figures", text, titles, rows)


def _run_plots(page: ReportPage, runs: Named) -> list[Section]:
    if not _can_draw(page):
        return []
    sections = []
    for key, title in (
        ("ttfa_quantiles_ms", "First audio: from the user's last word to the first audible sample"),
        (
            "response_quantiles_ms",
            "Response: from the decided end of turn to the first audible sample",
        ),
    ):
        lines = [(name, one[key]) for name, one in runs if one.get(key)]
        if lines:
            image = plots.cdf_plot(lines, title)
            sections.append(Section(title, "Turns that were answered.", image=image))
        else:
            page.notes.append(f"No report has {key}.")
    leads = [(name, one["lead"]) for name, one in runs if one.get("lead")]
    if leads:
        title = "Lead over time of one session"
        sections.append(Section(title, _LEAD, image=plots.lead_plot(leads, title)))
    stages = [(name, one["stages"]) for name, one in runs if one.get("stages")]
    if stages:
        sections.append(Section("Stages", _STAGES, image=plots.stages_plot(stages)))
    wasted = {name: one.get("wasted_audio_ratio") for name, one in runs}
    known = {name: (share, share, share) for name, share in wasted.items() if share is not None}
    if known:
        image = plots.bars_plot("wasted audio", ["of all made"], {n: [v] for n, v in known.items()})
        sections.append(Section("Waste", "Audio made and never heard.", image=image))
    return sections


_LEAD = (
    "Of the first session's answer under way: audio not yet heard; in a simulation all that was made, in a load run "
    "what has arrived at the client."
)
_CURVES = "Band: least to most of the seeds. Hollow: given up early. Dashed: sessions at the service level."
_STAGES = "Share of the time that a stage was in a step, and jobs advanced by a step."


def _sweeps_together(page: ReportPage, sweeps: Named) -> list[Section]:
    """Knees of several sweeps beside each other, and the curves of each profile and workload."""
    sections: list[Section] = []
    found = joined(sweeps)
    if found is not None:
        seconds = ", ".join(f"{n:g}" for n in dict.fromkeys(one["seconds"] for _, one in sweeps))
        text = f"Mean (least-most) over seeds; ratios to {found['base']}, seed by seed. Simulated seconds: {seconds}."
        sections += [
            Section(f"Sessions at the service level: {title}", text, titles, rows)
            for title, titles, rows in comparison_tables(found)
        ]
    if not _can_draw(page):
        return sections
    if found is not None:
        sections.append(
            Section("Sessions at the service level", image=plots.comparison_plot(found))
        )
    by_place: dict[tuple[str, str], list[Report]] = {}
    for _, one in sweeps:
        by_place.setdefault((one["workload_name"], one["profile"]), []).append(one)
    for place, ours in by_place.items():
        title = f"Sweeps: {', '.join(place)}"
        sections.append(Section(title, _CURVES, image=plots.sweep_plot(ours)))
    return sections


def _comparison(page: ReportPage, name: str, one: Report) -> list[Section]:
    sections = [
        Section(f"{name}: {title}", comparison_notes(one), titles, rows)
        for title, titles, rows in comparison_tables(one)
    ]
    if not one["cells"] or not _can_draw(page):
        return sections
    sections.append(Section(name, image=plots.comparison_plot(one)))
    if not one["sessions"] or len(one["sessions"]) > 1:
        places = dict.fromkeys(tuple(cell["place"]) for cell in one["cells"])
        for place in places:
            cells = [cell for cell in one["cells"] if tuple(cell["place"]) == place]
            title = f"{name}: curves, {place[1]}, {place[0]}"
            sections.append(Section(title, _CURVES, image=plots.sweep_plot(cells)))
    return sections


_LEFT_OUT = {"points", "by_sessions", "cells", "lead", "ttfa_quantiles_ms", "response_quantiles_ms"}


def _origin(one: Report) -> str:
    return json.dumps(
        {k: v for k, v in one.items() if k not in _LEFT_OUT}, indent=1, sort_keys=True
    )


# -- writing it down

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .15rem .7rem; border-bottom: 1px solid #ddd }
td:not(:first-child), th:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums }
img { max-width: 100% } pre { overflow-x: auto; background: #f6f6f6; padding: .7rem; font-size: 12px }
"""


def html(page: ReportPage) -> str:
    """One file with everything in it."""
    parts = [f"<h1>{escaping.escape(page.title)}</h1>"]
    parts += [f"<p>{escaping.escape(note)}</p>" for note in page.notes]
    for section in page.sections:
        title = escaping.escape(section.title)
        if section.details:
            body = escaping.escape(section.details)
            parts.append(f"<details><summary>{title}</summary><pre>{body}</pre></details>")
            continue
        parts.append(f"<h2>{title}</h2>")
        if section.text:
            parts.append(f"<p>{escaping.escape(section.text)}</p>")
        if section.rows:
            parts.append(_html_table(section.titles, section.rows))
        if section.image is not None:
            data = base64.b64encode(section.image).decode()
            parts.append(f'<img alt="{title}" src="data:image/png;base64,{data}">')
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escaping.escape(page.title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _html_table(titles: Sequence[str], rows: Rows) -> str:
    head = "".join(f"<th>{escaping.escape(title)}</th>" for title in titles)
    lines = [
        "<tr>" + "".join(f"<td>{escaping.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    ]
    return f"<table><tr>{head}</tr>\n" + "\n".join(lines) + "</table>"


def write_markdown(page: ReportPage, path: Path) -> list[Path]:
    """Writes the page and, beside it, its pictures as `NAME-1.png` and so on; says which."""
    parts = [f"# {page.title}\n", *(f"{note}\n" for note in page.notes)]
    pictures: list[Path] = []
    for section in page.sections:
        parts.append(f"## {section.title}\n")
        if section.text:
            parts.append(f"{section.text}\n")
        if section.rows:
            parts.append(markdown_table(section.titles, section.rows))
        if section.image is not None:
            picture = path.with_name(f"{path.stem}-{len(pictures) + 1}.png")
            picture.write_bytes(section.image)
            pictures.append(picture)
            parts.append(f"![{section.title}]({picture.name})\n")
        if section.details:
            parts.append(f"```json\n{section.details}\n```\n")
    path.write_text("\n".join(parts))
    return pictures
