"""A small OpenAI-compatible server on loopback that streams what a test tells it to, and remembers what it saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Script = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def chunk(text: str = "", finish: str | None = None, **more: object) -> str:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return json.dumps({"object": "chat.completion.chunk", "choices": [choice], **more})


class ChatServer:
    """`script` answers each request. `requests` are the bodies; `gone` counts clients that left before the end."""

    def __init__(self) -> None:
        self.script: Script = self.count_to(5)
        self.models: list[str] = ["tiny", "other"]
        self.models_status = 200
        self.key: str | None = None
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sent_bytes = 0
        self.gone = 0
        self.left = asyncio.Event()
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ChatServer]:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            yield self
        finally:
            await runner.cleanup()

    def _authorised(self, request: web.Request) -> bool:
        return self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}"

    async def _models(self, request: web.Request) -> web.Response:
        if not self._authorised(request):
            body = {"error": {"message": f"bad key {request.headers.get('Authorization')}"}}
            return web.json_response(body, status=401)
        data = [{"id": name} for name in self.models]
        return web.json_response({"data": data}, status=self.models_status)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if not self._authorised(request):
            body = {"error": {"message": f"bad key {request.headers.get('Authorization')}"}}
            return web.json_response(body, status=401)
        body = await request.json()
        self.requests.append(body)
        try:
            return await self.script(request, body)
        except (asyncio.CancelledError, ConnectionError):
            self.gone += 1
            self.left.set()
            raise

    async def open(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        return response

    async def say(self, response: web.StreamResponse, data: str) -> None:
        raw = f"data: {data}\n\n".encode()
        await response.write(raw)
        self.sent_bytes += len(raw)

    def count_to(self, last: int, then: str = "stop", padding: int = 0) -> Script:
        """Numbers as words, the usual ending, the counts."""

        async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            response = await self.open(request)
            for number in range(1, last + 1):
                await self.say(response, chunk(f" {number}" + " " * padding))
            await self.say(response, chunk("", then))
            usage = {"prompt_tokens": 40, "completion_tokens": last}
            await self.say(response, json.dumps({"choices": [], "usage": usage}))
            await self.say(response, "[DONE]")
            return response

        return script

    def refuse(self, status: int, said: str, **headers: str) -> Script:
        async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            error = {"error": {"message": said}}
            return web.json_response(error, status=status, headers=headers)

        return script

    def stall(self, after: int, opened: bool = True) -> Script:
        """`after` words and then silence, until the client goes."""

        async def script(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            if not opened:
                await asyncio.sleep(3600)
            response = await self.open(request)
            for number in range(1, after + 1):
                await self.say(response, chunk(f" {number}"))
            await asyncio.sleep(3600)
            return response

        return script
