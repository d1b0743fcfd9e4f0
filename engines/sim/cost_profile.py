"""What each step of a model costs: profiles from YAML, as plain data with one cost function a stage.

A step's cost is a table by batch size (`step_ms`, linear between its points, the last slope beyond them), or linear in
batch and units (`linear`), or that of a vocoder that recomputes left context and gains by batching (`chunk`); a
prompt that is read in the step adds `prefill`. A look at a picture takes a step for each figure of `look` (`objects_ms`, and
`text_ms` where text is wanted), which is the step's cost. A stage with a `busy_share` gives way: while the others
take all places of its device it has only that share of one, as a thread of low priority. `host_gap_ms` comes on top of every step. Times are nanoseconds
outside of this file, milliseconds in YAML. Stages of one device run at most `concurrent` steps at once; a step that
begins while another stage's runs there takes 1 / `sharing` of its time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engines.base import Stage
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Table:
    """Points (batch, milliseconds or factor), rising."""

    points: tuple[tuple[float, float], ...]

    def at(self, x: float) -> float:
        points = self.points
        if len(points) == 1 or x <= points[0][0]:
            return points[0][1]
        low, high = points[0], points[1]
        for low, high in itertools.pairwise(points):  # noqa: B007 - the last one serves what is beyond
            if x <= high[0]:
                break
        (x0, y0), (x1, y1) = low, high
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class StageCost:
    """One stage. `left_context` counts frames that a chunk recomputes; `prefill_*` and `prompt_room` are the thinker's:
    tokens of conversation that fit into a prompt, beyond which it is trimmed and read again (0: any number). `per_session`: what every open
    session adds to the time of a step, relative to it, where the host's own work runs beside the stage."""

    stage: Stage
    device: str
    max_batch: int
    steps: Table | None = None
    base_ms: float = 0.0
    per_item_ms: float = 0.0
    per_unit_ms: float = 0.0
    left_context: int = 0
    batch_gain: Table | None = None
    prefill_floor_ms: float = 0.0
    prefill_per_token_ms: float = 0.0
    prefill_batch: int = 1
    host_gap_ms: float = 0.0
    slots: int | None = None
    prompt_room: int = 0
    per_session: float = 0.0
    objects_ms: tuple[float, ...] = ()
    text_ms: tuple[float, ...] = ()
    busy_share: float | None = None

    def step_ns(self, batch: int, units: int, prompt_tokens: int = 0) -> int:
        """A step of `batch` jobs; `units`: the longest chunk where there is a gain by batching, else their sum.
        `prompt_tokens` are read besides."""
        ms = self.host_gap_ms
        if prompt_tokens:
            ms += self.prefill_floor_ms + self.prefill_per_token_ms * prompt_tokens
        if batch and self.steps is not None:
            ms += self.steps.at(batch)
        elif batch and self.batch_gain is not None:
            single = self.base_ms + self.per_unit_ms * (units + self.left_context)
            ms += single * batch / self.batch_gain.at(batch)
        elif batch:
            ms += self.base_ms + self.per_item_ms * batch + self.per_unit_ms * units
        return int(ms * NS_PER_MS)


@dataclass(frozen=True, slots=True)
class Device:
    """`concurrent` 0: any number of steps at once."""

    concurrent: int = 0
    sharing: float = 1.0


@dataclass(frozen=True, slots=True)
class KvCosts:
    """The thinker's memory for prompts (0 tokens: without bound), the link to the host's memory, each way, and what of
    that may be used."""

    bytes_per_token: int = 0
    pool_tokens: int = 0
    input_tokens_per_s: float = 13.0
    h2d_gb_per_s: float = 50.0
    host_gb: float = 1000.0


@dataclass(frozen=True, slots=True)
class Profile:
    """A model on a machine. `kind`: cascade, or duplex (lockstep, its ticks in `duplex`). `tokens_per_word` decides
    how soon a first clause is written, for talkers that need one."""

    name: str
    kind: str = "cascade"
    unit_samples: int = 1920
    rate: int = 24_000
    frames_per_token: float = 3.75
    frames_per_char: float = 5.0
    tokens_per_word: float = 1.0
    handover_ms: float = 0.0
    jitter_sigma: float = 0.05
    spike_every: int = 1000
    spike_factor: float = 3.0
    stages: Mapping[Stage, StageCost] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    kv: KvCosts = KvCosts()
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    duplex: Mapping[str, Any] = field(default_factory=dict)

    @property
    def streams_text(self) -> bool:
        """The talker speaks while the text is being written; there is no codec stage."""
        return Stage.CODEC not in self.stages


_KEYS = {
    "name", "inherit", "kind", "unit_samples", "rate", "frames_per_token", "frames_per_char", "tokens_per_word",
    "handover_ms",
    "jitter", "stages", "devices", "kv", "scheduler", "duplex", "about",
}  # fmt: skip
_STAGE_KEYS = {
    "device", "max_batch", "step_ms", "linear", "chunk", "prefill", "host_gap_ms", "slots", "prompt_room", "per_session",
    "look", "busy_share",
}  # fmt: skip


_NUMBERS_ONLY = {"jitter", "stages", "devices", "kv", "duplex"}
_DIVISORS = {
    "unit_samples", "rate", "frames_per_token", "frames_per_char", "tokens_per_word", "tokens_per_s", "max_batch", "sharing",
    "tick_ms",
}  # fmt: skip


def load_profile(path: Path) -> Profile:
    """Read a profile. Raises ConfigError naming the file and the key that is wrong."""
    return parse_profile(_read(path, ()), str(path))


def _read(path: Path, seen: Sequence[Path]) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as fault:
        raise ConfigError(f"profile {path}: {fault.strerror}") from fault
    except yaml.YAMLError as fault:
        raise ConfigError(f"profile {path}: not YAML: {' '.join(str(fault).split())}") from fault
    if not isinstance(content, dict):
        raise ConfigError(f"profile {path}: must be a mapping")
    parent = content.pop("inherit", None)
    if parent is None:
        return content
    if path in seen:
        raise ConfigError(f"profile {path}: inherits itself")
    base = _read(path.with_name(f"{parent}.yaml"), (*seen, path))
    return _merged(base, content)


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins; `step_ms` tables are replaced whole, other mappings key by key."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        nested = isinstance(old, dict) and isinstance(value, dict) and key != "step_ms"
        out[key] = _merged(old, value) if nested and isinstance(old, dict) else value
    return out


def parse_profile(content: Mapping[str, Any], where: str) -> Profile:
    try:
        unknown = sorted(set(content) - _KEYS)
        if unknown:
            raise ConfigError(f"profile {where}: {unknown[0]}: unknown key")
        _require_numbers(content)
        jitter = content.get("jitter", {})
        plain = {
            key: content[key]
            for key in (
                "kind", "unit_samples", "rate", "frames_per_token", "frames_per_char", "tokens_per_word",
                "handover_ms", "scheduler", "duplex",
            )
            if key in content
        }  # fmt: skip
        return Profile(
            name=str(content["name"]),
            jitter_sigma=float(jitter.get("sigma", 0.05)),
            spike_every=int(jitter.get("spike_every", 1000)),
            spike_factor=float(jitter.get("spike_factor", 3.0)),
            stages={Stage(k): _stage(Stage(k), v) for k, v in content.get("stages", {}).items()},
            devices={k: Device(**v) for k, v in content.get("devices", {}).items()},
            kv=KvCosts(**content.get("kv", {})),
            **plain,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise ConfigError(f"profile {where}: {fault}") from fault


def _require_numbers(content: Mapping[Any, Any], path: str = "") -> None:
    """Each number is finite and not negative, and one that divides is not zero. Raises ValueError."""
    for key, value in content.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            _require_numbers(value, f"{name}.")
        elif isinstance(value, str):
            if path.split(".")[0] in _NUMBERS_ONLY and key != "device":
                raise ValueError(f"{name}: must be a number, not {value!r}")
        elif isinstance(value, int | float):
            least = key in _DIVISORS or path.endswith("batch_gain.")
            if not math.isfinite(value) or value < 0 or (least and value == 0):
                above = "above 0" if least else "of 0 or more"
                raise ValueError(f"{name}: must be a finite number {above}, not {value}")


def _stage(stage: Stage, content: Mapping[str, Any]) -> StageCost:
    unknown = sorted(set(content) - _STAGE_KEYS)
    if unknown:
        raise ValueError(f"stages.{stage.value}.{unknown[0]}: unknown key")
    linear, chunk = content.get("linear", {}), content.get("chunk", {})
    prefill = content.get("prefill", {})
    look = _look(stage, content.get("look"))
    rate = float(prefill.get("tokens_per_s", math.inf))
    return StageCost(
        stage=stage,
        device=str(content.get("device", stage.value)),
        max_batch=int(content.get("max_batch", 1)),
        steps=_table(content["step_ms"]) if "step_ms" in content else None,
        base_ms=float(linear.get("base", chunk.get("base", 0.0))),
        per_item_ms=float(linear.get("per_item", 0.0)),
        per_unit_ms=float(linear.get("per_unit", chunk.get("per_frame", 0.0))),
        left_context=int(chunk.get("left_context_frames", 0)),
        batch_gain=_table(chunk["batch_gain"]) if "batch_gain" in chunk else None,
        prefill_floor_ms=float(prefill.get("floor_ms", 0.0)),
        prefill_per_token_ms=1000.0 / rate,
        prefill_batch=int(prefill.get("max_batch", 1)),
        host_gap_ms=float(content.get("host_gap_ms", 0.0)),
        slots=content.get("slots"),
        prompt_room=int(content.get("prompt_room", 0)),
        per_session=float(content.get("per_session", 0.0)),
        objects_ms=look["objects_ms"],
        text_ms=look["text_ms"],
        busy_share=_busy_share(stage, content.get("busy_share")),
    )


def _busy_share(stage: Stage, share: object) -> float | None:
    if share is None:
        return None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
        raise ValueError(f"stages.{stage.value}.busy_share: must be within 0 and less than 1")
    return float(share)


def _look(stage: Stage, content: Mapping[str, Any] | None) -> dict[str, tuple[float, ...]]:
    """The steps of a look; only eyes have one, and they must."""
    where = f"stages.{stage.value}.look"
    if (content is not None) is not (stage is Stage.VISION):
        raise ValueError(f"{where}: goes with the vision stage, which needs it")
    given = content or {}
    unknown = sorted(set(given) - {"objects_ms", "text_ms"})
    if unknown:
        raise ValueError(f"{where}.{unknown[0]}: unknown key")
    steps = {name: tuple(map(float, given.get(name, ()))) for name in ("objects_ms", "text_ms")}
    if content is not None and not steps["objects_ms"]:
        raise ValueError(f"{where}.objects_ms: needs the milliseconds of at least one step")
    if any(ms < 0 for times in steps.values() for ms in times):
        raise ValueError(f"{where}: milliseconds must not be below 0")
    return steps


def _table(content: Mapping[Any, Any]) -> Table:
    points = tuple(sorted((float(x), float(y)) for x, y in content.items()))
    if not points:
        raise ValueError("a table needs a point")
    return Table(points)
