"""Which model the server has: asked once, at the start, so that a wrong address, key or name is told before anyone talks."""

from __future__ import annotations

import asyncio
import json

import aiohttp

from engines.remote.options import RemoteOptions
from engines.remote.refusals import failure_of, said_by
from session_server.types.errors import ConfigError, EngineFault

_LONGEST = 4 << 20
_SHOWN = 5
_LONGEST_NAME = 200


async def choose_model(http: aiohttp.ClientSession, options: RemoteOptions, key: str | None) -> str:
    """The model's name. Raises ConfigError or EngineFault, one line each."""
    names = await _listed(http, options, key)
    if options.model is None:
        if not names:
            raise ConfigError(
                f"remote.openai_chat: {options.base_url} lists no models; set the option model"
            )
        return names[0]
    if names and options.model not in names:
        more = ", ..." if len(names) > _SHOWN else ""
        raise ConfigError(
            f"remote.openai_chat: {options.base_url} has no model {options.model!r}; it has"
            f" {', '.join(names[:_SHOWN])}{more}"
        )
    return options.model


async def _listed(
    http: aiohttp.ClientSession, options: RemoteOptions, key: str | None
) -> list[str]:
    """Names on the models page; none where the server has no such page."""
    url = f"{options.base_url}/models"
    try:
        async with (
            asyncio.timeout(options.first_token_s),
            http.get(url, allow_redirects=False) as response,
        ):
            if response.status in (401, 403):
                source = options.api_key_file or f"environment variable {options.api_key_env}"
                state = "was refused" if key is not None else "is needed and not set"
                raise ConfigError(f"remote.openai_chat: the API key ({source}) {state} by {url}")
            if response.status in (404, 405, 501):
                return []
            if response.status != 200:
                said = await said_by(response, key)
                raise EngineFault(
                    f"remote.openai_chat: {url} answered HTTP {response.status}: {said}"
                )
            return _names(await _body(response))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise EngineFault(f"remote.openai_chat: {url}: {failure_of(error)}") from None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    while piece := await response.content.readany():
        body += piece
        if len(body) > _LONGEST:
            return b""
    return body


def _names(body: bytes) -> list[str]:
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        return []
    entries = page.get("data") if isinstance(page, dict) else None
    found = (
        [e.get("id") for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    )
    return [name for name in found if isinstance(name, str) and _is_name(name)]


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()
