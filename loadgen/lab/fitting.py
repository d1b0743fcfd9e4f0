"""From timed steps to a profile: the numbers of `configs/profiles`, and how far they are off.

Steps of one size are one point, its median. A line is fitted through the points of a stage by least squares of the
relative error, without negative parts. `residual` is the median of a stage's points' relative errors. Pure arithmetic.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.base import Capabilities, Stage
from engines.sim.scripted_stages import TOKEN_CHARS
from loadgen.lab.stopwatch import Timing, Timings
from session_server.types.errors import ConfigError

PROMPT_SHARE = 5 / 8
"""Of a thinker's context: the rest is kept for the answer (`engines.cpu.thinker`)."""
SPIKE = 2.5
"""A step that takes so many times its usual is a spike, not jitter."""


@dataclass(frozen=True, slots=True)
class CostSample:
    """Steps of one size: their median and how many there were."""

    batch: int
    units: float
    prompt: int
    ms: float
    count: int


@dataclass(slots=True)
class Fit:
    """A stage's entry in a profile, and the points' relative errors."""

    entry: dict[str, Any]
    errors: list[float]

    @property
    def residual(self) -> float:
        return round(statistics.median(self.errors), 3) if self.errors else 0.0


def points_of(steps: Iterable[Timing]) -> list[CostSample]:
    cells: dict[tuple[int, float, int], list[float]] = defaultdict(list)
    for step in steps:
        cells[step.batch, step.units, step.prompt].append(step.ms)
    return [
        CostSample(batch, units, prompt, statistics.median(ms), len(ms))
        for (batch, units, prompt), ms in sorted(cells.items())
    ]


def line(rows: Sequence[Sequence[float]], ms: Sequence[float]) -> list[float]:
    """Weights, none negative, so that each row's weighted sum is near its `ms`, relative to it."""
    matrix = np.asarray(rows, float) / np.asarray(ms, float)[:, None]
    used = list(range(matrix.shape[1]))
    while True:
        weights = np.linalg.lstsq(matrix[:, used], np.ones(len(ms)), rcond=None)[0]
        if (weights >= 0).all() or len(used) == 1:
            break
        used.remove(used[int(weights.argmin())])
    found = [0.0] * matrix.shape[1]
    for column, weight in zip(used, weights, strict=True):
        found[column] = max(0.0, float(weight))
    return found


def _errors(
    rows: Sequence[Sequence[float]], ms: Sequence[float], weights: Sequence[float]
) -> list[float]:
    guesses = [sum(w * x for w, x in zip(weights, row, strict=True)) for row in rows]
    return [abs(guess / actual - 1) for guess, actual in zip(guesses, ms, strict=True)]


def fit_linear(stage: Stage, points: Sequence[CostSample]) -> Fit:
    """base, per item of the batch, and per unit. Where no batch varied, the base says it all."""
    varied = len({point.batch for point in points}) > 1
    alone = stage in (Stage.ASR, Stage.TURN, Stage.TALKER)
    rows = [[1.0, 0.0 if alone or not varied else float(p.batch), p.units] for p in points]
    ms = [point.ms for point in points]
    columns = [0, 2] if alone or not varied else [0, 1, 2]
    narrow = [[row[column] for column in columns] for row in rows]
    weights = line(narrow, ms)
    names = [("base", "per_item", "per_unit")[column] for column in columns]
    entry = {"linear": {n: _round(w) for n, w in zip(names, weights, strict=True)}}
    return Fit(entry, _errors(narrow, ms, weights))


def fit_thinker(points: Sequence[CostSample]) -> Fit:
    reading = [p for p in points if p.prompt]
    decoding = [p for p in points if not p.prompt]
    if not reading or not decoding:
        raise ConfigError("profile: the thinker gave no answer to measure")
    rows = [[1.0, float(p.prompt)] for p in reading]
    ms = [p.ms for p in reading]
    floor, per_token = line(rows, ms)
    sizes: dict[int, list[float]] = defaultdict(list)
    for point in decoding:
        sizes[point.batch].append(point.ms)
    table = {batch: _round(statistics.median(found)) for batch, found in sorted(sizes.items())}
    entry = {
        "prefill": {
            "floor_ms": _round(floor),
            "tokens_per_s": round(1000 / per_token) if per_token else 1_000_000,
            "max_batch": 1,
        },
        "step_ms": _rising(table),
    }
    return Fit(entry, _errors(rows, ms, (floor, per_token)))


def _rising(table: Mapping[int, float]) -> dict[int, float]:
    """More jobs never take less time: the smaller size keeps what the larger one needs."""
    out: dict[int, float] = {}
    least = math.inf
    for batch in sorted(table, reverse=True):
        least = min(least, table[batch])
        out[batch] = least
    return dict(sorted(out.items()))


def jitter_of(steps: Iterable[Timing]) -> dict[str, float]:
    """Spread of steps of one size around their median, and how often one takes much longer."""
    cells: dict[tuple[Stage, int, float, int], list[float]] = defaultdict(list)
    for step in steps:
        cells[step.stage, step.batch, step.units, step.prompt].append(step.ms)
    logs, spikes, factors = [], 0, []
    for found in cells.values():
        if len(found) < 3:
            continue
        usual = statistics.median(found)
        for ms in found:
            if ms > SPIKE * usual:
                spikes += 1
                factors.append(ms / usual)
            else:
                logs.append(abs(math.log(ms / usual)))
    sigma = 1.4826 * statistics.median(logs) if logs else 0.05
    every = round(len(logs) / spikes) if spikes else 1000
    factor = statistics.median(factors) if factors else 3.0
    return {
        "sigma": round(sigma, 3),
        "spike_every": max(10, every),
        "spike_factor": round(factor, 1),
    }


def fit_profile(
    name: str,
    timings: Timings,
    capabilities: Mapping[Stage, Capabilities],
    batches: Mapping[Stage, int],
    cores: int,
    sharing: float,
    per_session: Mapping[Stage, float] | None = None,
) -> tuple[dict[str, Any], dict[str, float]]:
    """A profile as a mapping, and each stage's residual. `batches`: largest batches of the graph;
    `per_session`: by how much every open session slows a stage, relative to its steps."""
    vocoder = capabilities[Stage.VOCODER]
    chars_per_token = timings.text / max(1, timings.tokens)
    longer = chars_per_token / TOKEN_CHARS  # a scripted token is so much shorter than a real one
    frames_per_char = timings.frames / max(1, timings.characters) * longer
    stages: dict[str, Any] = {}
    residuals: dict[str, float] = {}
    for stage in (s for s in Stage if s in capabilities):
        points = points_of(step for step in timings.steps if step.stage is stage)
        fit = fit_thinker(points) if stage is Stage.THINKER else fit_linear(stage, points)
        entry: dict[str, Any] = {"device": "cpu", "max_batch": batches[stage], **fit.entry}
        if stage is Stage.TALKER:
            entry["linear"]["per_unit"] = _round(entry["linear"]["per_unit"] * longer)
        slots, context = capabilities[stage].slots, capabilities[stage].context_tokens
        if slots is not None:
            entry["slots"] = slots
        slower = (per_session or {}).get(stage, 0.0)
        if slower:
            entry["per_session"] = round(slower, 4)
        if context:
            entry["prompt_room"] = int(context * PROMPT_SHARE)
        stages[stage.value] = entry
        residuals[stage.value] = fit.residual
    profile = {
        "name": name,
        "kind": "cascade",
        "unit_samples": vocoder.unit_samples,
        "rate": vocoder.unit_rate,
        "frames_per_token": round(TOKEN_CHARS * frames_per_char, 2),
        "frames_per_char": round(frames_per_char, 3),
        "tokens_per_word": round(max(1.0, timings.tokens / max(1, timings.words)), 2),
        "handover_ms": 0,
        "jitter": jitter_of(timings.steps),
        "stages": stages,
        "kv": {"input_tokens_per_s": 0},
        "devices": {"cpu": {"concurrent": cores, "sharing": round(sharing, 3)}},
    }
    return profile, residuals


def _round(ms: float) -> float:
    return float(f"{ms:.3g}")
