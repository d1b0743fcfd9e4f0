"""What the values in a `graph:` section must be, for graphs of every kind. Whatever is wrong is a ConfigError naming its path."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engines.options import wrong
from session_server.types.errors import ConfigError, shown


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
