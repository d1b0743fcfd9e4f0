"""`GET /v1/realtime/ice_servers`: what a browser needs to get through to this server, as RTCPeerConnection takes it.

The TURN credential is for clients that may connect: with keys configured, only a key or an ephemeral key gets an answer.
It is never kept by caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from session_server.config.tree import WebRtcConfig
from session_server.runtime.realtime_routes import RealtimeRoutes

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
