"""What went wrong with a model server, in words that are fit for a client: no key, no stack, one line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os

import aiohttp

from engines.remote.said import error_text, later, plain
from engines.streaming import AnswerFailed

_LONGEST_BODY = 65_536
_BODY_WAIT_S = 2.0


async def refusal(response: aiohttp.ClientResponse, key: str | None) -> AnswerFailed:
    """The error for a response that is no answer."""
    status = response.status
    if status in (401, 403):
        return AnswerFailed(f"the model server refused the API key (HTTP {status})")
    said = await said_by(response, key)
    if status == 404:
        return AnswerFailed(f"the model server knows no such model or address (HTTP 404: {said})")
    if status == 429:
        wait = later(response.headers.get("Retry-After", ""))
        return AnswerFailed(f"the model server is busy (HTTP 429: {said}){wait}")
    if status >= 500:
        return AnswerFailed(f"the model server has a fault of its own (HTTP {status}: {said})")
    if 300 <= status < 400:
        return AnswerFailed(
            f"the model server points elsewhere (HTTP {status}); correct its base_url"
        )
    return AnswerFailed(f"the model server refused the request (HTTP {status}: {said})")


async def said_by(response: aiohttp.ClientResponse, key: str | None) -> str:
    """The message in an error's body."""
    body = b""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(_BODY_WAIT_S):
            while len(body) < _LONGEST_BODY and (piece := await response.content.readany()):
                body += piece
    try:
        return error_text(json.loads(body), key)
    except (ValueError, RecursionError):
        return plain(body.decode("utf-8", "replace"), key)


def failure_of(error: Exception) -> str:
    """The reason why a server did not answer at all, or no longer."""
    if isinstance(error, TimeoutError):
        return "the model server did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return "the model server's certificate is not trusted"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the model server's name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = os.strerror(error.os_error.errno) if error.os_error.errno else "no connection"
        return f"the model server cannot be reached: {reason.lower()}"
    if isinstance(error, aiohttp.ClientError | ConnectionError):
        return "the model server broke off the connection"
    return "the model server's answer could not be read"
