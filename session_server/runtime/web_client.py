"""The page that talks: static files of `web_client/`, served beside the API.

Owns the files, read once at start: what is served is looked up by its exact name, so no path can lead out of the folder.
Every answer carries a content security policy that lets the page load and reach nothing but this server. Names do not
change with the content, so browsers ask again each time (`no-cache`) and are mostly told 304.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from aiohttp import web

INDEX = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": "microphone=(self), camera=(self), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, ready to be sent. `tag` stands for its content."""

    body: bytes
    content_type: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """The files by URL path below `/`: from the installed package, or from the checkout; empty: not there."""
    folders: tuple[Traversable, ...] = (
        resources.files("session_server") / "web_client",
        Path(__file__).resolve().parents[2] / "web_client",
    )
    for folder in folders:
        if (folder / INDEX).is_file():
            return _read(folder, "")
    return {}


def _read(folder: Traversable, prefix: str) -> dict[str, PageFile]:
    files: dict[str, PageFile] = {}
    for entry in folder.iterdir():
        name = prefix + entry.name
        if entry.is_dir():
            files.update(_read(entry, f"{name}/"))
        elif content_type := _TYPES.get(Path(name).suffix):
            body = entry.read_bytes()
            files[name] = PageFile(body, content_type, hashlib.sha256(body).hexdigest()[:32])
    return files


def add_page(router: web.UrlDispatcher) -> bool:
    """`/` and the files that it needs, each at a URL of its own; False: there is no page in this installation."""
    files = page_files()

    async def answer(request: web.Request) -> web.Response:
        file = files[request.path[1:] or INDEX]
        seen = request.if_none_match or ()
        fresh = any(etag.value == file.tag for etag in seen)
        response = (
            web.Response(status=304)
            if fresh
            else web.Response(body=file.body, content_type=file.content_type, charset="utf-8")
        )
        response.headers.update(HEADERS)
        response.etag = file.tag
        return response

    for name in files:
        router.add_get("/" if name == INDEX else f"/{name}", answer)
    return bool(files)
