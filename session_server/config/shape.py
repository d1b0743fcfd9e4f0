"""From untyped values (YAML, text of a variable) to the data classes of `tree`, with exact complaints.

Invariants: every error is a ConfigError whose text names the dotted key and nothing but one line; an
unknown key is an error with the nearest known name; no value is converted silently, except an integer to a
float and a list to a tuple or frozenset.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from session_server.config.tree import SECRET_KEYS
from session_server.types.errors import ConfigError, shown

Where = Callable[[str], str]
"""Says where the value of a dotted key came from: `file x.yaml`, `variable Y`, `flag --z`."""

_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


_DEEPEST = 40
_MOST_VALUES = 100_000


def require_plain(name: str, tree: Mapping[str, object]) -> None:
    """Raise ConfigError unless `tree`, which is what `name` holds, is named by text all through, and of a size that can be meant:
    YAML can put a mapping into itself."""
    open_: list[tuple[str, object, int]] = [("", tree, 0)]
    for _ in range(_MOST_VALUES):
        if not open_:
            return
        if len(open_) > _MOST_VALUES:
            break
        path, value, depth = open_.pop()
        if depth > _DEEPEST:
            raise ConfigError(f"{path.split('.')[0]}: is nested too deeply ({name})")
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ConfigError(
                        f"{path or name}: the name {shown(key)} must be text ({name})"
                    )
                open_.append((f"{path}.{key}" if path else key, item, depth + 1))
        elif isinstance(value, list | tuple):
            open_ += [(f"{path}[{i}]", item, depth + 1) for i, item in enumerate(value)]
    raise ConfigError(f"{name}: holds more than {_MOST_VALUES} values")


@cache
def hints(cls: type) -> dict[str, Any]:
    """Resolved annotations of a data class's fields."""
    return typing.get_type_hints(cls)


def build(cls: type, values: Mapping[str, object], where: Where, prefix: str = "") -> Any:  # noqa: ANN401
    """An instance of data class `cls`; absent keys keep their defaults."""
    known = [f.name for f in dataclasses.fields(cls)]
    arguments: dict[str, object] = {}
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if key not in known:
            raise ConfigError(f"{dotted}: unknown key{_guess(key, known)} ({where(dotted)})")
        arguments[key] = convert(hints(cls)[key], value, where, dotted)
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
        and f.name not in arguments
    ]
    if missing:
        raise ConfigError(f"{prefix}{missing[0]}: is missing ({where(prefix.rstrip('.'))})")
    try:
        return cls(**arguments)
    except ValueError as error:  # the class's own check of how its fields fit together
        raise ConfigError(f"{prefix.rstrip('.')}: {error} ({where(prefix.rstrip('.'))})") from None


def convert(kind: Any, value: object, where: Where, key: str) -> object:  # noqa: ANN401
    """`value` as `kind`, or a ConfigError that names `key`."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        if isinstance(value, cast("type", kind)):
            return value
        return build(cast("type", kind), _mapping(value, where, key), where, f"{key}.")
    if origin in (typing.Union, types.UnionType):
        return _union(args, value, where, key)
    if origin is typing.Literal:
        if value not in args:
            allowed = ", ".join(str(a) for a in args)
            raise ConfigError(
                f"{key}: must be one of {allowed}, not {_shown(key, value)} ({where(key)})"
            )
        return value
    if origin in (tuple, frozenset, list):
        items = _list(value, where, key)
        return origin(convert(args[0], item, where, f"{key}[{i}]") for i, item in enumerate(items))
    if origin is not None and issubclass(origin, Mapping):
        named = _mapping(value, where, key)
        return {n: convert(args[1], item, where, f"{key}.{n}") for n, item in named.items()}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        members = [member.value for member in kind]
        if value not in members:
            names = ", ".join(map(str, members))
            raise ConfigError(
                f"{key}: must be one of {names}, not {_shown(key, value)} ({where(key)})"
            )
        return kind(value)
    return _plain(kind, value, where, key)


def _plain(kind: Any, value: object, where: Where, key: str) -> object:  # noqa: ANN401
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ConfigError(f"{key}: the number is too large ({where(key)})") from None
    if kind in _NAMES and type(value) is not kind:
        hint = _as_yaml_number(value) if kind in (int, float) else ""
        raise ConfigError(
            f"{key}: must be {_NAMES[kind]}, not {_shown(key, value)}{hint} ({where(key)})"
        )
    if kind is type(None) and value is not None:
        raise ConfigError(f"{key}: must be null ({where(key)})")
    return value


def _as_yaml_number(value: object) -> str:
    """YAML takes `1e9` for text: it wants a point and a sign, which nobody expects."""
    if not isinstance(value, str):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    shown = f"{number:.0f}" if number.is_integer() and abs(number) < 1e16 else repr(number)
    mantissa, e, exponent = shown.partition("e")
    if e and "." not in mantissa:
        shown = f"{mantissa}.0e{exponent}"
    return f", which YAML takes for text: write {shown}"


def _union(kinds: tuple[Any, ...], value: object, where: Where, key: str) -> object:
    if value is None and type(None) in kinds:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    # the exact type first: an int must not become a float where both are allowed
    for kind in sorted(rest, key=lambda kind: type(value) is not kind):
        try:
            return convert(kind, value, where, key)
        except ConfigError:
            if len(rest) == 1:
                raise
    raise ConfigError(f"{key}: {_shown(key, value)} has a wrong type ({where(key)})")


def _mapping(value: object, where: Where, key: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(
            f"{key}: must be a section of named keys, not {_shown(key, value)} ({where(key)})"
        )
    return dict(value)


def _list(value: object, where: Where, key: str) -> list[object]:
    if not isinstance(value, list | tuple | frozenset | set):
        raise ConfigError(f"{key}: must be a list, not {_shown(key, value)} ({where(key)})")
    return list(value)


def _shown(key: str, value: object) -> str:
    """The value for an error text; a secret stays out of it."""
    return "(hidden)" if key.split("[")[0] in SECRET_KEYS else shown(value)


def _guess(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f", did you mean '{near[0]}'?" if near else ""


def leaves(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Dotted key and value of every leaf, in the order of definition; enums by their values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    elif isinstance(value, Mapping) and value:
        named = dict(value)
    else:
        yield prefix, value.value if isinstance(value, enum.Enum) else value
        return
    for name, item in named.items():
        yield from leaves(item, f"{prefix}.{name}" if prefix else name)
