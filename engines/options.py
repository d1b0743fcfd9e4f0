"""An engine's options, as a graph gives them, put into a data class of its own.

The annotation of a field says what its option may be: int, float, bool, str, Literal, Mapping[str, object], each of them `| None`,
with the bounds that the aliases here name. Numbers are finite and, unless their annotation says otherwise, in 0..MOST; a whole number
is taken for a real one. Whatever is wrong is a WrongOption.

What the values in a `graph:` section must be, for graphs of every kind. Whatever is wrong is a ConfigError naming its path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from session_server.types.bounds import Within as Within
from session_server.types.errors import ConfigError, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Options = TypeVar("Options", bound="DataclassInstance")
MOST = 2**31 - 1


class WrongOption(ValueError):
    """An option that cannot be; the text begins with its name (`slots: ...`, `extra.n: ...`)."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Read:
    """`by` gives what the option is taken for, once its type is right. Raises ValueError saying what it must be, or WrongOption with a
    name below the option's own."""

    by: Callable[[Any], object]


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if not text.isprintable():
        raise ValueError(f"holds characters that no name has: {shown(text)}")
    return text


def _place(text: str) -> str:
    text = _not_empty(text)
    try:
        return str(Path(text).expanduser()) if text.startswith("~") else text
    except RuntimeError:
        raise ValueError(f"{shown(text)}: there is no such user") from None


Count: TypeAlias = Annotated[int, Within(1, MOST)]
Share: TypeAlias = Annotated[float, Within(0.0, 1.0)]
Text: TypeAlias = Annotated[str, Read(_not_empty)]
Place: TypeAlias = Annotated[str, Read(_place)]
"""A file or folder; a tilde is the user's home."""
_NAMES: Mapping[object, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
}


def by_type(options: Mapping[str, object], defaults: Options) -> Options:
    """`defaults` with `options` put in. Raises WrongOption."""
    kinds = _kinds(type(defaults))
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in kinds:
            known = ", ".join(sorted(kinds))
            raise WrongOption(str(name), f"unknown option; known are {known}")
        values[name] = _value(name, kinds[name], value)
    return replace(defaults, **values)


def wrong(where: str, error: ValueError) -> ConfigError:
    """The same mistake by its path in the configuration; `where` is that of the options."""
    return ConfigError(f"{where}{'.' if isinstance(error, WrongOption) else ': '}{error}")


@cache
def _kinds(cls: type) -> Mapping[str, object]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def _value(name: str, kind: object, value: object) -> object:
    if get_origin(kind) in (Union, UnionType):
        kinds = get_args(kind)
        if value is None and type(None) in kinds:
            return None
        kind = next(each for each in kinds if each is not type(None))
    rules: tuple[object, ...] = ()
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        rules = tuple(more)
    taken = _typed(name, kind, value)
    if kind in (int, float):
        bounds = next((rule for rule in rules if isinstance(rule, Within)), Within(0, MOST))
        _require_within(name, taken, bounds, value)
    for rule in rules:
        if isinstance(rule, Read):
            try:
                taken = rule.by(taken)
            except WrongOption:
                raise
            except ValueError as error:
                raise WrongOption(name, str(error)) from None
    return taken


def _typed(name: str, kind: object, value: object) -> object:
    if get_origin(kind) is Literal:
        if not isinstance(value, str) or value not in get_args(kind):
            allowed = ", ".join(map(str, get_args(kind)))
            raise WrongOption(name, f"must be one of {allowed}, not {shown(value)}")
        return value
    if get_origin(kind) is Mapping:
        if not isinstance(value, Mapping):
            raise WrongOption(name, f"must be a mapping, not {shown(value)}")
        return dict(value)
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf
    if kind in _NAMES and type(value) is not kind:
        raise WrongOption(name, f"must be {_NAMES[kind]}, not {shown(value)}")
    return value


def _require_within(name: str, number: object, bounds: Within, given: object) -> None:
    assert isinstance(number, int | float)
    if not bounds.low <= number <= bounds.high:
        what = "a whole number" if isinstance(number, int) else "a number"
        limits = f"{bounds.low:.10g}..{bounds.high:.10g}"
        raise WrongOption(name, f"must be {what} in {limits}, not {shown(given)}")


def mapping(value: object, where: str) -> Mapping[str, object]:
    """A mapping whose names are text."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: must be a mapping, not {shown(value)}")
    for name in value:
        if not isinstance(name, str):
            raise ConfigError(f"{where}: the name {shown(name)} must be text")
    return value


def only(section: Mapping[str, object], known: Collection[str], where: str) -> None:
    for key in section:
        if key not in known:
            names = ", ".join(sorted(known))
            raise ConfigError(f"{where}.{key}: unknown key; known are {names}")


def engine(value: object, where: str, such_as: str) -> str:
    """An engine's name."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{where}: must name an engine, such as {such_as}, not {shown(value)}")
    return value


def options(section: Mapping[str, object], where: str) -> Mapping[str, object]:
    """`options` of a section; none where the key is not there or null."""
    value = section.get("options")
    return {} if value is None else dict(mapping(value, f"{where}.options"))


def integer(value: object, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{where}: must be a whole number in {low}..{high}, not {shown(value)}")
    return value


def seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise ConfigError(f"{where}: must be seconds in 0..3600, not {shown(value)}")
    return float(value)


def wrong_option(error: ValueError, where: str, device: str | None = None) -> ConfigError:
    """What an engine said of its options, by the path in the configuration; `where` is that of the engine's section. A `device` of
    the section is an option to the engine."""
    if device is not None and getattr(error, "name", None) == "device":
        return wrong(where, error)
    return wrong(f"{where}.options", error)
