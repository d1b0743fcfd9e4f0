"""Options of a duplex engine from a graph's `options:` mapping, by the names and types of a data class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

Options = TypeVar("Options", bound=Any)


def read_options(options: Mapping[str, object], defaults: Options) -> Options:
    """`defaults` with `options` put in. Raises ValueError naming an unknown option or a wrong type."""
    current = {f.name: getattr(defaults, f.name) for f in fields(defaults)}
    changed: dict[str, object] = {}
    for name, value in options.items():
        if name not in current:
            known = ", ".join(sorted(current))
            raise ValueError(f"unknown engine option {name}; known are {known}")
        kind = type(current[name])
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise ValueError(f"engine option {name} must be {kind.__name__}, not {value!r}")
        changed[name] = value
    chosen: Options = replace(defaults, **changed)
    return chosen


def at_least(name: str, value: float, least: float) -> None:
    """Raises ValueError naming the option."""
    if value < least:
        raise ValueError(f"engine option {name} must be at least {least:g}, not {value:g}")
