"""The HTTP application: which route does what. Owns no state.

Health, readiness, metrics and models here; the realtime routes in `realtime_routes`, the page in `web_client`. `/healthz` says that the
process lives, `/readyz` that it takes sessions (503 with reasons while engines load and while draining).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from session_server.config import Config
from session_server.runtime import ice_routes
from session_server.runtime.call_routes import CallRoutes
from session_server.runtime.http_errors import allow_origins, errors_as_json, preflight
from session_server.runtime.realtime_routes import RealtimeRoutes
from session_server.runtime.web_client import add_page

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
        router.add_get(ice_routes.PATH, ice_routes.IceRoute(realtime).answer)
    router.add_route("OPTIONS", "/{_:(?:v1/)?realtime(?:/.*)?}", preflight)
    router.add_get("/healthz", pages.healthz)
    router.add_get("/readyz", pages.readyz)
    if config.observability.metrics:
        router.add_get("/metrics", pages.metrics)
    router.add_get("/v1/models", pages.models)
    if config.server.web_client and not add_page(router):
        _log.warning("web_client: its files are not installed; there is no page at /")
    return app
