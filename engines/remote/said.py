"""What a model server says about an error, made fit for a client: plain text, one line, at most LONGEST characters, without markup and
without what looks like a key. Pure.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from engines.remote.chat_reply import without_halves
from engines.remote.options import redacted

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
