"""Options of `remote.openai_chat`, checked. Times are seconds, lengths tokens.

A key is never an option: options are printed by `check`. It comes from an environment variable or from a file, and whoever
writes a message passes it through `redacted`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from urllib.parse import urlsplit

from engines.options import number_within, require_known

_BODY_OF_OURS = frozenset({"messages", "stream", "stream_options", "model", "tools", "tool_choice"})
_LEAST_SECRET = 6
"""Shorter keys ("EMPTY", "none") are no secrets, and would blot out words."""


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """`model` None: the first that the server lists. `extra`: more fields of the request, as they are. `warm`: read prompts
    ahead by a request of one token; worth it where the server keeps prefixes and nobody pays by the token. `send_priority`:
    tell the server the urgency as `priority` (vLLM with `--scheduling-policy priority`). `check`: ask for the list of models
    at the start."""

    base_url: str = ""
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    api_key_file: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int = 400
    max_tokens_field: str = "max_tokens"
    context_tokens: int = 8192
    answers: int = 32
    connect_s: float = 5.0
    first_token_s: float = 30.0
    gap_s: float = 15.0
    stream_usage: bool = True
    send_priority: bool = False
    warm: bool = False
    check: bool = True
    extra: Mapping[str, object] = field(default_factory=dict)

    def api_key(self) -> str | None:
        """The key, read anew. Raises ValueError when the file cannot be read, or holds what no header can."""
        if self.api_key_file is not None:
            try:
                key = Path(self.api_key_file).expanduser().read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"api_key_file: {type(error).__name__}: cannot be read") from None
        else:
            key = os.environ.get(self.api_key_env, "").strip()
        if not key.isascii() or not key.isprintable():
            raise ValueError("the API key holds characters that no key has")
        return key or None


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_p": (0.0, 1.0),
    "max_tokens": (1, 1_000_000),
    "context_tokens": (256, 10_000_000),
    "answers": (1, 10_000),
    "connect_s": (0.1, 600.0),
    "first_token_s": (0.1, 3600.0),
    "gap_s": (0.1, 3600.0),
}
_WHOLE = frozenset({"max_tokens", "context_tokens", "answers"})
_FLAGS = frozenset({"stream_usage", "send_priority", "warm", "check"})
_TEXTS = frozenset({"base_url", "model", "api_key_env", "api_key_file", "max_tokens_field"})
_MAY_BE_NULL = frozenset({"model", "api_key_file", "temperature", "top_p"})


def read_options(options: Mapping[str, object]) -> RemoteOptions:
    """Raises ValueError, one line that begins with the option's name."""
    for name in options:
        if name in ("api_key", "key"):
            raise ValueError(f"{name}: keys stay out of files; use api_key_env or api_key_file")
    require_known(options, {entry.name for entry in fields(RemoteOptions)})
    read = RemoteOptions(**{name: _value(name, value) for name, value in options.items()})  # type: ignore[arg-type]
    _require_url(read.base_url)
    return read


def _value(name: str, value: object) -> object:
    if value is None and name in _MAY_BE_NULL:
        return None
    if name in _FLAGS and not isinstance(value, bool):
        raise ValueError(f"{name}: must be true or false, not {value!r}")
    if name in _TEXTS and (not isinstance(value, str) or not value):
        raise ValueError(f"{name}: must be text, not {value!r}")
    if name == "extra":
        return _extra(value)
    if name in _BOUNDS:
        return _number(name, value)
    return value.rstrip("/") if name == "base_url" and isinstance(value, str) else value


def _number(name: str, value: object) -> float:
    return number_within(name, value, *_BOUNDS[name], whole=name in _WHOLE)


def _extra(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError("extra: must be a mapping of request fields")
    taken = sorted(_BODY_OF_OURS & value.keys())
    if taken:
        raise ValueError(f"extra.{taken[0]}: the server sets this field itself")
    return dict(value)


def _require_url(url: str) -> None:
    if not url:
        raise ValueError("base_url: missing; such as http://127.0.0.1:8001/v1")
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise ValueError(f"base_url: {url!r} is not an address such as http://127.0.0.1:8001/v1")
    if parts.username or parts.password:
        raise ValueError("base_url: keys stay out of addresses; use api_key_env or api_key_file")


def redacted(text: str, key: str | None) -> str:
    """`text` without the key."""
    return text.replace(key, "***") if key is not None and len(key) >= _LEAST_SECRET else text
