"""The HTTP application: which route does what.

Health, readiness, metrics, models, ICE servers and the page are here; the realtime routes are in
`realtime_routes`. `/healthz` says that the process lives, `/readyz` that it takes sessions (503
with reasons while engines load and while draining).

`GET /v1/realtime/ice_servers` gives what a browser needs to get through to this server, as
RTCPeerConnection takes it. The TURN credential is for clients that may connect: with keys
configured, only a key or an ephemeral key gets an answer, which caches never keep.

The page that talks is the static files of `web_client/`, read once at start. A file is looked up by
its exact name, so no path can lead out of the folder. Every answer carries a content security
policy that lets the page load and reach nothing but this server. Names do not change with the
content, so browsers ask again each time (`no-cache`) and are mostly told 304.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from aiohttp import web

from session_server.config import Config
from session_server.config.sources import shipped_folder
from session_server.config.tree import WebRtcConfig
from session_server.http.call_routes import CallRoutes
from session_server.http.errors import allow_origins, errors_as_json, preflight
from session_server.http.realtime_routes import RealtimeRoutes

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
    """The files by URL path below `/`; empty: not there."""
    folder = shipped_folder("web_client")
    return _read(folder, "") if (folder / INDEX).is_file() else {}


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


PATH = "/v1/realtime/ice_servers"


@dataclass(frozen=True, slots=True)
class IceRoute:
    """The handler. `routes` knows who asks."""

    routes: RealtimeRoutes

    async def answer(self, request: web.Request) -> web.Response:
        """All servers; 401 for whoever may not connect."""
        await self.routes.identify(request)
        servers = ice_servers(self.routes.config.webrtc)
        return web.json_response({"ice_servers": servers}, headers={"Cache-Control": "no-store"})


def ice_servers(config: WebRtcConfig) -> list[dict[str, object]]:
    """The configured servers as `RTCIceServer` dictionaries: user name and credential with the TURN ones only."""
    turn = [url for url in config.ice_servers if url.startswith(("turn:", "turns:"))]
    stun = [url for url in config.ice_servers if url not in turn]
    found: list[dict[str, object]] = [{"urls": stun}] if stun else []
    if turn:
        credentials = {"username": config.turn_username, "credential": config.turn_credential}
        found.append({"urls": turn, **credentials})
    return found


_log = logging.getLogger(__name__)

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


Reasons = Callable[[], Awaitable[list[str]]]
"""What keeps the server from taking sessions."""

MetricsPage = Callable[[], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Pages:
    """The routes beside the realtime ones. `started_at`: unix seconds."""

    config: Config
    realtime: RealtimeRoutes
    reasons: Reasons
    metrics_page: MetricsPage
    started_at: int

    async def healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def readyz(self, _request: web.Request) -> web.Response:
        reasons = await self.reasons()
        if not reasons:
            return web.json_response({"status": "ready"})
        return web.json_response(
            {"status": "not ready", "reasons": reasons},
            status=503,
            headers={"Retry-After": str(self.config.limits.retry_after_s)},
        )

    async def metrics(self, _request: web.Request) -> web.Response:
        page = await self.metrics_page()
        return web.Response(body=page, headers={"Content-Type": METRICS_TYPE})

    async def models(self, request: web.Request) -> web.Response:
        await self.realtime.identify(request)
        model = {
            "id": self.config.server.model,
            "object": "model",
            "created": self.started_at,
            "owned_by": "session-server",
        }
        return web.json_response({"object": "list", "data": [model]})


def build_app(
    realtime: RealtimeRoutes,
    reasons: Reasons,
    metrics_page: MetricsPage,
    started_at: int,
    calls: CallRoutes | None = None,
) -> web.Application:
    """The application, ready for a runner. `calls` None: no WebRTC."""
    config = realtime.config
    pages = Pages(config, realtime, reasons, metrics_page, started_at)
    app = web.Application(
        middlewares=[errors_as_json], client_max_size=config.server.max_body_bytes
    )
    app.on_response_prepare.append(allow_origins)
    router = app.router
    for path in ("/v1/realtime", "/realtime"):
        router.add_get(path, realtime.connect, allow_head=False)
    for path in ("/v1/realtime/client_secrets", "/realtime/client_secrets"):
        router.add_post(path, realtime.mint)
    if calls is not None:
        calls.add_to(router)
        router.add_get(PATH, IceRoute(realtime).answer)
    router.add_route("OPTIONS", "/{_:(?:v1/)?realtime(?:/.*)?}", preflight)
    router.add_get("/healthz", pages.healthz)
    router.add_get("/readyz", pages.readyz)
    if config.observability.metrics:
        router.add_get("/metrics", pages.metrics)
    router.add_get("/v1/models", pages.models)
    if config.server.web_client and not add_page(router):
        _log.warning("web_client: its files are not installed; there is no page at /")
    return app
