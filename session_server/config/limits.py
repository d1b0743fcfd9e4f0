"""Bounds of the configuration: what is impossible is refused at the start, by name, in one line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass

from session_server.config.shape import Where, leaves
from session_server.config.tree import Config
from session_server.protocol.extensions import MAX_FPS, MAX_PICTURE, MIN_FPS, MIN_PICTURE
from session_server.types.errors import ConfigError, shown

_DAY_MS = 86_400_000
_GIB = 1024**3

_BOUNDS: dict[str, tuple[float, float]] = {
    "server.port": (0, 65_535),
    "server.max_body_bytes": (1024, _GIB),
    "server.max_message_bytes": (20 * 1024 * 1024, _GIB),
    "server.heartbeat_s": (0, 3600),
    "server.close_wait_s": (0.1, 60),
    "server.outbox_bytes": (512 * 1024, _GIB),
    "server.outbox_wait_s": (0.1, 600),
    "server.send_buffer_bytes": (0, 64 * 1024 * 1024),
    "server.workers": (1, 64),
    "webrtc.connect_s": (1, 600),
    "webrtc.silence_s": (0.3, 600),
    "webrtc.max_setups": (1, 1000),
    "webrtc.max_unconnected": (1, 10_000),
    "webrtc.max_message_bytes": (16 * 1024, 256 * 1024),
    "webrtc.path_delay_ms": (0, 1000),
    "webrtc.max_lateness_ms": (1, 1000),
    "video.max_fps": (MIN_FPS, MAX_FPS),
    "video.max_bytes": (MIN_PICTURE, MAX_PICTURE),
    "auth.max_secrets": (1, 1_000_000),
    "limits.retry_after_s": (1, 3600),
    "drain.answer_s": (0, 3600),
    "drain.close_s": (0.1, 600),
    "session.speed": (0.25, 1.5),
    "session.silence_ms": (0, 10_000),
    "session.threshold": (0, 1),
    "session.prefix_padding_ms": (0, 5_000),
    "session.max_output_tokens": (1, 4096),
    "core.lead_sent_ms": (40, 60_000),
    "core.delta_ms": (20, 100),
    "core.lead_generated_ms": (40, 120_000),
    "core.speech_off_margin": (0, 1),
    "core.looking_ms": (100, 60_000),
    "core.frame_ms": (100, 60_000),
    "core.camera_wait_ms": (0, 5_000),
    "core.camera_fresh_ms": (100, 60_000),
    "core.camera_lost_ms": (200, 600_000),
    "core.camera_still_ms": (100, 60_000),
    "core.commentary_gap_ms": (1_000, _DAY_MS),
    "core.max_session_ms": (0, 7 * _DAY_MS),
    "core.max_items": (2, 1_000_000),
    "core.max_input_ms": (1_000, _DAY_MS),
    "scheduler.max_sessions": (1, 100_000),
    "scheduler.max_responses_per_session": (1, 1000),
    "scheduler.max_work_per_session": (1, 1000),
    "scheduler.lead_cap_s": (0.1, 600),
    "scheduler.draft_cap_s": (0, 600),
    "scheduler.text_ahead_s": (0.1, 600),
    "scheduler.prefill_tokens": (1, 100_000),
    "scheduler.prefill_batch": (1, 1000),
    "scheduler.first_audio_s": (0.01, 60),
    "scheduler.nearly_dry_s": (0, 60),
    "scheduler.begin_lead_s": (0, 600),
    "scheduler.rush_lead_s": (0, 600),
    "scheduler.late_lead_s": (0, 600),
    "scheduler.rush_cap_s": (0, 600),
    "scheduler.pressing_s": (0, 60),
    "scheduler.urgent_share": (0, 1),
    "scheduler.starve_s": (0.1, 3600),
    "scheduler.lead_idle_s": (0.05, 600),
    "scheduler.safe_lead_s": (0, 60),
    "scheduler.safe_share": (0, 1),
    "scheduler.memory_weight": (0, 1000),
    "scheduler.utilisation": (0.05, 1),
    "scheduler.cores": (0, 4096),
    "scheduler.transport_s": (0, 10),
    "scheduler.chars_per_s": (1, 200),
    "scheduler.audio_s_per_char_cap": (0.01, 60),
    "scheduler.audio_s_floor": (0.1, 600),
    "scheduler.silence_cap_s": (0.1, 600),
    "scheduler.first_audio_limit_s": (0.01, 600),
    "scheduler.longer_chunks_at": (0, 100),
    "scheduler.shorter_answers_at": (0, 100),
    "scheduler.overload_max_tokens": (0, 100_000),
    "scheduler.kv_host_mb": (0, 16_777_216),
    "scheduler.kv_protected_share": (0, 1),
    "scheduler.kv_protect_s": (0, 600),
    "scheduler.kv_busy_share": (0, 1),
    "scheduler.kv_link_mb_s": (1, 10_000_000),
    "observability.loop_lag_ms": (10, 60_000),
    "observability.record_mb": (1, 1_048_576),
}


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


def bounds_of(key: str) -> tuple[float, float]:
    """Least and most of a number. Milliseconds of the core are spans of time: not negative, at most a day."""
    if key in _BOUNDS:
        return _BOUNDS[key]
    if key.startswith("core.") and key.endswith("_ms"):
        return (0, _DAY_MS)
    return (float("-inf"), float("inf"))


def _within(key: str, value: float, bounds: tuple[float, float], where: Where) -> None:
    low, high = bounds
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
