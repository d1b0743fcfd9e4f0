"""Pictures of sweeps, comparisons and runs, as PNG bytes. The only module that imports matplotlib, and only when it draws:
whoever draws asks first whether it is `available`.

Nothing is drawn that was not measured: a point that was given up is hollow, a wait without end leaves a gap.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loadgen.lab.compare import seen_knees
from loadgen.lab.sweep import BARS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Report = Mapping[str, Any]
WIDE, NARROW = (9.0, 6.0), (7.0, 3.6)
DPI = 90


MISSING = "plots need matplotlib: pip install '.[lab]'"


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _figure(size: tuple[float, float]) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _png(figure: Figure) -> bytes:
    """The same bytes for the same picture: no date, no version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


_PANELS = (
    ("p90_ms", "P90 first audio, ms", "p90_ms"),
    ("p99_ms", "P99 first audio, ms", "p99_ms"),
    ("c100", "C100", "c100"),
    ("goodput_per_s", "goodput, answers/s", None),
)


def sweep_plot(sweeps: Sequence[Report]) -> bytes:
    """P90, P99, C100 and goodput against sessions, one line a sweep, its knee a vertical line, its seeds' range a band."""
    figure = _figure(WIDE)
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    panels = figure.subplots(2, 2, sharex=True)
    for axes, (name, title, bar) in zip(panels.flat, _PANELS, strict=True):
        for number, one in enumerate(sweeps):
            _curve(axes, one, name, f"C{number}")
        if bar is not None:
            axes.axhline(BARS[bar], color="grey", linestyle=":", linewidth=1)
        if name in ("p90_ms", "p99_ms"):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter("{x:.0f}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0, top=1.02 if name == "c100" else None)
            axes.set_xlabel("sessions")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    figure.suptitle(f"{sweeps[0]['workload_name']}, {sweeps[0]['profile']}", fontsize=11)
    return _png(figure)


def sweep_label(one: Report) -> str:
    """With its knee, where one was looked for."""
    if "sessions_at_slo" not in one:
        several = len(one["by_sessions"]) > 1
        return f"{one['candidate']}" + f": {_knee(one) or 'none'} of those measured" * several
    knee = one["sessions_at_slo"]
    return f"{one['candidate']}: {'interrupted' if knee is None else knee}"


def _curve(axes: Axes, one: Report, name: str, color: str) -> None:
    rows = [row for row in one["by_sessions"] if row[name] is not None]
    whole = [row for row in rows if not row["given_up"]]
    cut = [row for row in rows if row["given_up"]]
    axes.plot(
        [r["sessions"] for r in whole], [r[name][0] for r in whole], "o-", color=color, markersize=3,
        label=sweep_label(one),
    )  # fmt: skip
    axes.fill_between(
        [r["sessions"] for r in whole], [r[name][1] for r in whole], [r[name][2] for r in whole],
        color=color, alpha=0.2,
    )  # fmt: skip
    axes.plot(
        [r["sessions"] for r in cut], [r[name][0] for r in cut], "o", color=color, fillstyle="none",
        markersize=4,
    )  # fmt: skip
    if knee := _knee(one):
        axes.axvline(knee, color=color, linestyle="--", linewidth=1)


def _knee(one: Report) -> int:
    """Of all seeds; of a comparison the most sessions measured at which all hold. 0: none."""
    if "sessions_at_slo" in one:
        return one["sessions_at_slo"] or 0
    if len(one["by_sessions"]) < 2:
        return 0
    return min((knee.sessions for knee in seen_knees(one).values()), default=0)


def bars_plot(
    title: str, groups: Sequence[str], series: Mapping[str, Sequence[Sequence[float] | None]]
) -> bytes:
    """One group of bars for each of `groups`, one bar a series: mean, with least and most over seeds as a whisker."""
    figure = _figure((min(13.0, max(6.0, 1.1 * len(groups) * len(series) + 2)), 3.8))
    axes = figure.subplots()
    width = 0.8 / max(1, len(series))
    for number, (name, values) in enumerate(series.items()):
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        at = [place + width * (number - (len(series) - 1) / 2) for place, _ in known]
        means = [value[0] for _, value in known]
        below = [value[0] - value[1] for _, value in known]
        above = [value[2] - value[0] for _, value in known]
        drawn = axes.bar(at, means, width, yerr=(below, above), capsize=2, label=name)
        axes.bar_label(drawn, fmt="%.3g", fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), groups, fontsize=9)
    axes.margins(y=0.12)
    axes.legend(fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    axes.set_title(title, fontsize=10)
    return _png(figure)


def cdf_plot(lines: Sequence[tuple[str, Sequence[float]]], title: str) -> bytes:
    """`lines`: a name and evenly spaced quantiles, in milliseconds."""
    figure = _figure(NARROW)
    axes = figure.subplots()
    for name, quantiles in lines:
        steps = max(1, len(quantiles) - 1)
        axes.plot(quantiles, [place / steps for place in range(len(quantiles))], label=name)
    axes.set_xlabel("ms")
    axes.set_ylabel("share of turns")
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    return _png(figure)


def lead_plot(lines: Sequence[tuple[str, Sequence[Sequence[float]]]], title: str) -> bytes:
    """`lines`: a name and (second, lead in seconds) of one session."""
    figure = _figure(NARROW)
    axes = figure.subplots()
    for name, samples in lines:
        axes.plot([at for at, _ in samples], [lead for _, lead in samples], label=name, linewidth=1)
    axes.set_xlabel("s")
    axes.set_ylabel("audio not yet heard, s")
    axes.grid(alpha=0.3)
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8)
    return _png(figure)


def stages_plot(reports: Sequence[tuple[str, Mapping[str, Report]]]) -> bytes:
    """Share of the time that each stage was busy, and its mean batch; one colour a report."""
    figure = _figure(NARROW)
    left, right = figure.subplots(1, 2)
    stages = list(dict.fromkeys(stage for _, found in reports for stage in found))
    height = 0.8 / max(1, len(reports))
    for axes, key, title in ((left, "occupancy", "busy"), (right, "mean_batch", "mean batch")):
        for number, (name, found) in enumerate(reports):
            at = [place + height * number for place in range(len(stages))]
            axes.barh(
                at,
                [(found.get(stage) or {}).get(key) or 0.0 for stage in stages],
                height,
                label=name,
            )
        axes.set_yticks([place + 0.4 - height / 2 for place in range(len(stages))], stages)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="x", alpha=0.3)
    left.set_xlim(0, 1)
    left.legend(fontsize=7)
    return _png(figure)


def comparison_plot(found: Report) -> bytes:
    """Sessions at the service level; or figures of each candidate at the one number of sessions that was given; P90 at each
    where there are several."""
    candidates = found["candidates"]
    if len(found["sessions"]) == 1:
        return _candidates_plot(found)
    if found["sessions"]:
        return _figures_plot(found)
    places = [[p, w] for p in found["profiles"] for w in found["workloads"]]
    series: dict[str, list[Sequence[float] | None]] = {}
    for name in candidates:
        cells = {tuple(c["place"]): c for c in found["cells"] if c["candidate"] == name}
        series[name] = [_knees(cells.get(tuple(place))) for place in places]
    groups = [f"{workload}\n{profile}" for profile, workload in places]
    return bars_plot("sessions at the service level", groups, series)


def _knees(cell: Report | None) -> Sequence[float] | None:
    """The common knee, with the least and the most of the seeds' own; the common one may be below all of them."""
    if cell is None:
        return None
    knee, own = cell["sessions_at_slo"], list(cell["sessions_at_slo_by_seed"].values())
    return knee, min(knee, *own), max(knee, *own)


_BESIDE = (
    ("p90_ms", "P90 first audio, ms"),
    ("starved", "answers later than 2 s"),
    ("goodput_per_s", "goodput, answers/s"),
    ("wasted", "wasted audio"),
)


def _candidates_plot(found: Report) -> bytes:
    """A line for each candidate, mean with least and most over seeds; what has no end is said in words."""
    places = {tuple(cell["place"]) for cell in found["cells"]}
    names = [
        cell["candidate"] + (f"\n{', '.join(cell['place'])}" if len(places) > 1 else "")
        for cell in found["cells"]
    ]
    rows = [cell["by_sessions"][0] for cell in found["cells"]]
    figure = _figure((11.0, 1.4 + 0.32 * len(rows)))
    for axes, (key, title) in zip(
        figure.subplots(1, len(_BESIDE), sharey=True), _BESIDE, strict=True
    ):
        known = [(place, row[key]) for place, row in enumerate(rows) if row[key] is not None]
        means = [value[0] for _, value in known]
        below = [value[0] - value[1] for _, value in known]
        above = [value[2] - value[0] for _, value in known]
        at = [place for place, _ in known]
        axes.barh(at, means, 0.6, xerr=(below, above), capsize=2, color="C0", alpha=0.7)
        for place in set(range(len(rows))) - set(at):
            axes.text(0, place, " no end with some seed", va="center", fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.set_xlim(left=0)
        axes.set_title(title, fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
        axes.grid(axis="x", alpha=0.3)
    figure.axes[0].invert_yaxis()
    ours = ", ".join(" ".join(reversed(place)) for place in sorted(places))
    figure.suptitle(f"{found['sessions'][0]} sessions, {ours}", fontsize=10)
    return _png(figure)


def _figures_plot(found: Report) -> bytes:
    cells = found["cells"]
    groups = [f"{n} sessions" for n in found["sessions"]]
    series = {}
    for cell in cells:
        known = {row["sessions"]: row["p90_ms"] for row in cell["by_sessions"]}
        name = f"{cell['candidate']} ({', '.join(cell['place'])})"
        series[name] = [known.get(n) for n in found["sessions"]]
    return bars_plot("P90 first audio, ms", groups, series)
