"""Checks of the configuration: what is impossible is refused at the start, by name, in one line.

The bounds of a number stand with its field (`Within`).
"""

from __future__ import annotations

import ipaddress
import math
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from engines.graph import Graph
from session_server.config.shape import Where, leaves
from session_server.config.tree import Config
from session_server.types.bounds import Within
from session_server.types.errors import ConfigError, shown


@dataclass(frozen=True, slots=True)
class _Order:
    """Two keys of which the first must not exceed the second."""

    low: str
    high: str


_ORDERS = (
    _Order("core.lead_sent_ms", "core.lead_generated_ms"),
    _Order("core.delta_ms", "core.lead_sent_ms"),
    _Order("core.duck_ms", "core.commit_ms"),
    _Order("core.complete_silence_ms", "core.incomplete_silence_ms"),
    _Order("core.turn_model_after_ms", "core.complete_silence_ms"),
    _Order("core.max_speech_ms", "core.max_input_ms"),
    _Order("core.camera_fresh_ms", "core.camera_lost_ms"),
)


def check(config: Config, where: Where) -> None:
    """Raise ConfigError for the first value that can't work. The graph was checked when it was read, but for its engines' options,
    which they check themselves."""
    values = {key: value for key, value in leaves(config) if not key.startswith("graph.")}
    for key, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            _within(key, value, bounds_of(key), where)
    for order in _ORDERS:
        low, high = values[order.low], values[order.high]
        if isinstance(low, int) and isinstance(high, int) and low > high:
            raise ConfigError(
                f"{order.low}: {low} is more than {order.high} = {high} ({where(order.low)})"
            )
    for text, say in _TEXTS.items():
        problem = say(values[text])
        if problem:
            raise ConfigError(f"{text}: {problem} ({where(text)})")
    _tls(config, where)
    _turn(config, where)


def bounds_of(key: str) -> Within:
    """Least and most of a number; unbounded where its field has none."""
    return _bounds().get(key, Within(-math.inf, math.inf))


@cache
def _bounds() -> Mapping[str, Within]:
    sections = typing.get_type_hints(Config)
    return {
        f"{name}.{key}": rule
        for name, section in sections.items()
        if section is not Graph
        for key, kind in typing.get_type_hints(section, include_extras=True).items()
        for part in (kind, *typing.get_args(kind))
        for rule in getattr(part, "__metadata__", ())
        if isinstance(rule, Within)
    }


def _within(key: str, value: float, bounds: Within, where: Where) -> None:
    low, high = bounds.low, bounds.high
    if not low <= value <= high:
        raise ConfigError(
            f"{key}: {shown(value)} is not within {low:g} and {high:g} ({where(key)})"
        )


def _tls(config: Config, where: Where) -> None:
    server = config.server
    if server.tls_key is not None and server.tls_cert is None:
        key, problem = "server.tls_key", "a key without its certificate, server.tls_cert"
    elif server.tls_self_signed and server.tls_cert is not None:
        key, problem = "server.tls_self_signed", "there is a certificate, server.tls_cert"
    else:
        return
    raise ConfigError(f"{key}: {problem} ({where(key)})")


def _turn(config: Config, where: Where) -> None:
    """Browsers take no TURN server without both."""
    webrtc = config.webrtc
    if not any(url.startswith(("turn:", "turns:")) for url in webrtc.ice_servers):
        return
    for key, value in (
        ("webrtc.turn_username", webrtc.turn_username),
        ("webrtc.turn_credential", webrtc.turn_credential),
    ):
        if not value:
            raise ConfigError(f"{key}: is needed for the turn: servers ({where(key)})")


def _not_empty(value: object) -> str | None:
    return None if value else "must not be empty"


def _not_blank(value: object) -> str | None:
    return "must not be empty; null records nothing" if value is not None and not value else None


def _not_blank_file(value: object) -> str | None:
    return "must not be empty; null: no file" if value is not None and not value else None


def _proper_keys(value: object) -> str | None:
    keys = value if isinstance(value, tuple) else ()
    if any(not key.strip() or key != key.strip() for key in keys):
        return "a key must not be empty or have blanks around it"
    if any(key.startswith("ek_") for key in keys):
        return "a key must not begin with ek_, which marks ephemeral keys"
    return None


_ICE_URL = re.compile(
    r"(stuns?|turns?):"
    r"(\[[0-9A-Fa-f:.]+\]|[^\s:/?@\[\]]+)(:(?P<port>\d{1,5}))?(\?transport=(udp|tcp))?"
)


def _ice_urls(value: object) -> str | None:
    for url in value if isinstance(value, tuple) else ():
        found = _ICE_URL.fullmatch(url)
        if found is None or (url.startswith("stun") and "?" in url):
            return f"{url!r} is none: each is stun:HOST[:PORT] or turn:HOST[:PORT][?transport=udp or tcp] (also stuns:, turns:)"
        if found["port"] is not None and not 0 < int(found["port"]) < 65_536:
            return f"{url!r}: there is no port {found['port']}"
    return None


def _addresses(value: object) -> str | None:
    for name in value if isinstance(value, tuple) else ():
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return f"{name!r} is not an IP address"
    return None


_TEXTS: dict[str, Callable[[object], str | None]] = {
    "server.host": _not_empty,
    "server.model": _not_empty,
    "server.tls_cert": _not_blank_file,
    "server.tls_key": _not_blank_file,
    "session.voice": _not_empty,
    "models.voices": _not_empty,
    "auth.keys": _proper_keys,
    "observability.record_file": _not_blank,
    "webrtc.ice_servers": _ice_urls,
    "webrtc.host_addresses": _addresses,
}
