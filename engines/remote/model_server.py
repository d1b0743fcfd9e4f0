"""What a model server says about itself: which model it has, and what went wrong with it.

The model is asked for once, at the start, so that a wrong address, key or name is told before a
user talks.

Invariants: text of an error is fit for a client: plain, one line, at most LONGEST characters,
without markup, without a stack and without what looks like a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from html.parser import HTMLParser

import aiohttp

from engines.remote.chat_response import without_halves
from engines.remote.options import RemoteOptions, redacted
from engines.streaming import AnswerFailed
from session_server.types.errors import ConfigError, EngineFault

LONGEST = 200
_READ = 20_000
"""Of a text that is longer the rest is not looked at."""
NOTHING = "no reason given"
_SILENT = frozenset({"script", "style", "head", "template", "svg"})
_TAG = re.compile(r"<[A-Za-z/!?][^<>]*>?")
_SECRET = re.compile(
    r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"
    r"|\b(api[_-]?key|key|token|password|secret|authorization)(\"?\s*[=:]\s*\"?)((bearer|basic)\s+)?(?!\s)[^\s\"',;&]{4,}"
    r"|\b(sk|pk|rk|hf|gsk|xai|ghp|glpat|pplx)[-_][\w*.-]{6,}"
    r"|(?<=://)[^\s/@]+(?=@)"
)


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)


def plain(text: str, key: str | None) -> str:
    """`text` as a client may read it."""
    text = redacted(text, key)[:_READ]  # before anything is cut, so that no half of the key stays
    if "<" in text:
        reader = _Text()
        reader.feed(text)
        reader.close()
        text = " ".join(reader.parts)
        text = _TAG.sub(" ", text)  # what was written as entities
    text = "".join(letter if letter.isprintable() else " " for letter in without_halves(text))
    text = " ".join(redacted(_SECRET.sub("***", text), key).split())
    if len(text) > LONGEST:
        text = text[: LONGEST - 3].rstrip() + "..."
    return text or NOTHING


def error_text(body: object, key: str | None) -> str:
    """What an error body says."""
    if isinstance(body, dict):
        body = body.get("error") or body.get("detail") or body.get("message") or body
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict):
        body = next(
            (body[name] for name in ("message", "msg", "detail", "code") if body.get(name)), NOTHING
        )
    return plain(body if isinstance(body, str) else str(body), key)


def later(header: str) -> str:
    """What a Retry-After says, as the end of a sentence; nothing for what cannot be meant."""
    if not header:
        return ""
    if header.isascii() and header.isdigit() and len(header) <= 6:
        seconds = max(1, int(header))
        return f"; try again in {seconds} s" if seconds <= 3600 else "; try again much later"
    return "; try again later"


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
