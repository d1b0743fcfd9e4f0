"""Options of `remote.openai_chat`, checked. Times are seconds, lengths tokens.

A key is never an option: options are printed by `check`. It comes from an environment variable or from a file, and whoever
writes a message passes it through `redacted`. What may be a key in a wrong place is not repeated in an error.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias

from yarl import URL

from engines.options import Place, Read, Share, Text, Within, WrongOption, by_type
from session_server.types.errors import shown

_OPTIONS_FOR = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "priority": "send_priority",
    "model": "model",
    "stream_options": "stream_usage",
}
"""Fields of the request that options of their own set."""
_TAKEN = frozenset({"messages", "stream", "tools", "tool_choice", "n", "best_of", *_OPTIONS_FOR})
_LEAST_SECRET = 6
"""Shorter keys ("EMPTY", "none") are no secrets, and would blot out words."""
_DEEPEST = 16
_ADDRESS = re.compile(
    r"https?://(?P<host>\[[0-9A-Fa-f:.]+\]|[^\W_]([\w.-]*\w)?)(:(?P<port>\d{1,5}))?(/[\w.~%!$&'()*+,;=:-]*)*"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _address(text: str) -> str:
    if "@" in text:
        raise ValueError(
            "must hold no user or password; keys come from api_key_env or api_key_file"
        )
    if "?" in text or "#" in text:
        raise ValueError("must be an address without a query, such as http://127.0.0.1:8001/v1")
    found = _ADDRESS.fullmatch(text)
    problem = ValueError(f"{shown(text)} is not an address such as http://127.0.0.1:8001/v1")
    if found is None or (found["port"] and not 0 < int(found["port"]) < 65_536):
        raise problem
    try:
        URL(text)
    except ValueError:
        raise problem from None
    return text.rstrip("/")


def _variable(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError("must be the name of an environment variable, such as OPENAI_API_KEY")
    return text


def _limit_field(text: str) -> str:
    if _NAME.fullmatch(text) is None or text in _TAKEN - {"max_tokens", "max_completion_tokens"}:
        raise ValueError(
            f"must be max_tokens, max_completion_tokens or what the server calls it, not {shown(text)}"
        )
    return text


def _extra(fields: Mapping[str, object]) -> Mapping[str, object]:
    for name in fields:
        if name in _TAKEN:
            option = _OPTIONS_FOR.get(name)
            which = f"the option {option} sets it" if option else "the server sets it itself"
            raise WrongOption(f"extra.{name}", which)
    _require_json("extra", fields, _DEEPEST)
    return fields


def _require_json(path: str, value: object, deep: int) -> None:
    """Raise WrongOption for what JSON cannot say, or only as `NaN`."""
    if isinstance(value, Mapping | list) and deep == 0:
        raise WrongOption(path, "is nested too deeply")
    if isinstance(value, Mapping):
        for name, item in value.items():
            if not isinstance(name, str):
                raise WrongOption(path, f"the name {shown(name)} must be text")
            _require_json(f"{path}.{name}", item, deep - 1)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            _require_json(f"{path}[{number}]", item, deep - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise WrongOption(path, f"must be a finite number, not {value}")
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        raise WrongOption(path, f"must be a number of 64 bits, not {shown(value)}")
    elif not isinstance(value, str | int | float | None):
        raise WrongOption(path, f"must be what JSON knows, not a {type(value).__name__}")


Wait: TypeAlias = Annotated[float, Within(0.1, 3600.0)]


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """`model` None: the first that the server lists. `extra`: more fields of the request, as they are. `warm`: read prompts
    ahead by a request of one token; worth it where the server keeps prefixes and nobody pays by the token. `send_priority`:
    tell the server the urgency as `priority` (vLLM with `--scheduling-policy priority`). `check`: ask for the list of models
    at the start."""

    base_url: Annotated[str, Read(_address)] = ""
    model: Text | None = None
    api_key_env: Annotated[str, Read(_variable)] = "OPENAI_API_KEY"
    api_key_file: Place | None = None
    temperature: Annotated[float, Within(0.0, 2.0)] | None = None
    top_p: Share | None = None
    max_tokens: Annotated[int, Within(1, 1_000_000)] = 400
    max_tokens_field: Annotated[str, Read(_limit_field)] = "max_tokens"
    context_tokens: Annotated[int, Within(256, 10_000_000)] = 8192
    answers: Annotated[int, Within(1, 10_000)] = 32
    connect_s: Annotated[float, Within(0.1, 600.0)] = 5.0
    first_token_s: Wait = 30.0
    gap_s: Wait = 15.0
    stream_usage: bool = True
    send_priority: bool = False
    warm: bool = False
    check: bool = True
    extra: Annotated[Mapping[str, object], Read(_extra)] = field(default_factory=dict)

    def api_key(self) -> str | None:
        """The key, read anew. Raises ValueError when the file cannot be read, or holds what no header can."""
        if self.api_key_file is not None:
            try:
                key = Path(self.api_key_file).read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"api_key_file: {type(error).__name__}: cannot be read") from None
        else:
            key = os.environ.get(self.api_key_env, "").strip()
        if not key.isascii() or not key.isprintable():
            raise ValueError("the API key holds characters that no key has")
        return key or None


def read_options(options: Mapping[str, object]) -> RemoteOptions:
    """Raises WrongOption."""
    for name in ("api_key", "key"):
        if name in options:
            raise WrongOption(name, "keys stay out of files; use api_key_env or api_key_file")
    read = by_type(options, RemoteOptions())
    if not read.base_url:
        raise WrongOption("base_url", "missing; such as http://127.0.0.1:8001/v1")
    if read.max_tokens_field in read.extra:
        raise WrongOption(
            f"extra.{read.max_tokens_field}", "is the max_tokens_field, which max_tokens sets"
        )
    return read


def redacted(text: str, key: str | None) -> str:
    """`text` without the key."""
    return text.replace(key, "***") if key is not None and len(key) >= _LEAST_SECRET else text
