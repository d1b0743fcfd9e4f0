"""Service levels: a YAML file that says which figures of a report must hold.

    ttfa_ms.p95: {max: 1500}
    c100: {min: 0.98}
    barge_in.stale_chunks: {max: 0}

A key is a path into the report. A figure that is null (nothing measured, or too few events to judge) misses its
bar: what was not shown does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from session_server.types.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the file; at least one of `least` and `most` is set."""

    path: str
    least: float | None
    most: float | None

    def __str__(self) -> str:
        parts = [f">= {self.least:g}"] if self.least is not None else []
        if self.most is not None:
            parts.append(f"<= {self.most:g}")
        return f"{self.path} {' and '.join(parts)}"


@dataclass(frozen=True, slots=True)
class BarVerdict:
    bar: Bar
    figure: float | None
    held: bool


def read_bars(path: Path) -> list[Bar]:
    """Raises ConfigError naming the file and the key that is wrong."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as fault:
        raise ConfigError(f"SLO file {path}: {fault.strerror}") from fault
    except yaml.YAMLError as fault:
        raise ConfigError(f"SLO file {path}: not YAML: {' '.join(str(fault).split())}") from fault
    if not isinstance(content, dict) or not content:
        raise ConfigError(f"SLO file {path}: must map report keys to {{min: ..., max: ...}}")
    return [_bar(path, str(key), value) for key, value in content.items()]


def judge(bars: list[Bar], report: Mapping[str, Any]) -> list[BarVerdict]:
    """Raises ConfigError for a key that the report does not have, or that is not a number."""
    return [_judge(bar, _figure(bar.path, report)) for bar in bars]


def _bar(file: Path, key: str, value: object) -> Bar:
    where = f"SLO file {file}: {key}"
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{where}: must be {{min: NUMBER}}, {{max: NUMBER}} or both")
    for name, bound in value.items():
        if name not in ("min", "max"):
            raise ConfigError(f"{where}.{name}: unknown key; there are min and max")
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise ConfigError(f"{where}.{name}: must be a number, not {bound!r}")
    return Bar(key, value.get("min"), value.get("max"))


def _figure(path: str, report: Mapping[str, Any]) -> float | None:
    found: Any = report
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise ConfigError(f"SLO key {path}: the report has no such figure")
        found = found[part]
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ConfigError(f"SLO key {path}: not a number in the report")
    return float(found)


def _judge(bar: Bar, figure: float | None) -> BarVerdict:
    held = figure is not None
    if figure is not None:
        held = (bar.least is None or figure >= bar.least) and (
            bar.most is None or figure <= bar.most
        )
    return BarVerdict(bar, figure, held)
