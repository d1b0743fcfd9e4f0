"""A graph of `kind: duplex` as a value: one engine that hears and speaks, in place of stages and edges.

How many sessions it holds is an option of the engine (its slots); times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines import graph_values as values

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
    values.only(mapping, _KEYS, where)
    return DuplexSpec(
        values.engine(mapping.get("engine"), f"{where}.engine", "moshi.duplex"),
        values.seconds(mapping.get("tick_limit_s", 5.0), f"{where}.tick_limit_s"),
        values.seconds(mapping.get("load_limit_s", 600.0), f"{where}.load_limit_s"),
        values.options(mapping, where),
    )
