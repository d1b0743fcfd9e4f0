"""A graph of `kind: duplex` as a value: one engine that hears and speaks, in place of stages and edges.

How many sessions it holds is an option of the engine (its slots); times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from session_server.errors import ConfigError

KIND = "duplex"
_KEYS = {"kind", "engine", "tick_limit_s", "load_limit_s", "options"}


@dataclass(frozen=True, slots=True)
class DuplexSpec:
    """A tick longer than `tick_limit_s`, or a load longer than `load_limit_s`, counts as hung."""

    engine: str
    tick_limit_s: float = 5.0
    load_limit_s: float = 600.0
    options: Mapping[str, object] = field(default_factory=dict)


def duplex_spec(mapping: Mapping[str, object], where: str) -> DuplexSpec:
    """Read a `graph:` section of this kind. Raises ConfigError naming the key."""
    for key in mapping:
        if key not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            raise ConfigError(f"{where}.{key}: unknown key of a duplex graph; known are {known}")
    engine, options = mapping.get("engine"), mapping.get("options") or {}
    if not isinstance(engine, str) or not engine:
        raise ConfigError(f"{where}.engine: must name a duplex engine, such as moshi.duplex")
    if not isinstance(options, Mapping):
        raise ConfigError(f"{where}.options: must be a mapping")
    return DuplexSpec(
        engine,
        _seconds(mapping.get("tick_limit_s", 5.0), f"{where}.tick_limit_s"),
        _seconds(mapping.get("load_limit_s", 600.0), f"{where}.load_limit_s"),
        dict(options),
    )


def _seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise ConfigError(f"{where}: must be seconds in 0..3600, not {value!r}")
    return float(value)
