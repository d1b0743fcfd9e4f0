"""An engine's options, as a graph gives them, put into a data class of its own. Every mistake is a ValueError that names the option."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

Options = TypeVar("Options", bound=Any)


def by_type(options: Mapping[str, object], defaults: Options) -> Options:
    """`defaults` with `options` put in, each of its default's type; a whole number is taken for a real one, and None where the
    field may be None."""
    known = {field.name: field for field in fields(defaults)}
    values: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"unknown engine option {name}; known are {', '.join(sorted(known))}")
        default = getattr(defaults, name)
        kind = int if default is None else type(default)
        if kind is float and type(value) is int:
            value = float(value)
        may_be_none = str(known[name].type).endswith("| None")
        if type(value) is not kind and not (value is None and may_be_none):
            raise ValueError(f"engine option {name} must be {kind.__name__}, not {value!r}")
        values[name] = value
    chosen: Options = replace(defaults, **values)
    return chosen


def require_known(options: Collection[str], known: Collection[str]) -> None:
    for name in options:
        if name not in known:
            raise ValueError(f"{name}: unknown option; known are {', '.join(sorted(known))}")


def number_within(name: str, value: object, low: float, high: float, *, whole: bool) -> float:
    """`value`, which must be a number in low..high; as an int where it is to be whole."""
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise ValueError(f"{name}: must be a {'whole ' if whole else ''}number, not {value!r}")
    if not low <= value <= high:
        raise ValueError(f"{name}: must be in {low:g}..{high:g}, not {value!r}")
    return value if whole else float(value)


def at_least(name: str, value: float, least: float) -> None:
    if value < least:
        raise ValueError(f"engine option {name} must be at least {least:g}, not {value:g}")
