"""The page at `/`: what is served, under which policy, and that it needs nothing from anywhere else."""

from __future__ import annotations

import asyncio
import re
from pathlib import PurePosixPath
from urllib.parse import urljoin, urlsplit

import aiohttp
import pytest

from session_server.http.server import Server
from tests.integration.server.conftest import OpenServer

pytestmark = pytest.mark.integration

_IMPORT = re.compile(r"""(?:^|\s)import\s[^'"]*['"]([^'"]+)['"]""")
_WORKLET = re.compile(r"""['"]([a-z_]+_worklet\.js)['"]""")
_LINK = re.compile(r"""(?:src|href)="([^"#]+)\"""")


def base(server: Server) -> str:
    return f"http://127.0.0.1:{server.address.port}"


def needs(url: str, text: str) -> set[str]:
    """The files that a file refers to."""
    if url.endswith(".js"):
        found = _IMPORT.findall(text)
        if url.endswith(("websocket.js", "webrtc.js", "microphone.js")):
            found += [f"../audio/{name}" for name in _WORKLET.findall(text)]
    elif url.endswith("/"):
        found = _LINK.findall(text)
    else:
        found = re.findall(r"url\(['\"]?([^)'\"]+)", text)
    return {urljoin(url, name) for name in found}


@pytest.mark.asyncio
async def test_every_file_that_the_page_needs_is_served_by_this_server(serve: OpenServer):
    async with serve() as server, aiohttp.ClientSession() as http:
        waiting, seen = {f"{base(server)}/"}, dict[str, str]()
        while waiting:
            url = waiting.pop()
            async with http.get(url) as response:
                assert response.status == 200, url
                seen[url] = response.content_type
                found = needs(url, await response.text())
            assert {urlsplit(name).netloc for name in found} <= {urlsplit(base(server)).netloc}
            waiting |= found - seen.keys()
        assert len(seen) > 20
        assert sum(url.endswith("_worklet.js") for url in seen) == 3
        kinds = {PurePosixPath(urlsplit(url).path).suffix: kind for url, kind in seen.items()}
        assert kinds == {
            "": "text/html",
            ".js": "text/javascript",
            ".css": "text/css",
            ".svg": "image/svg+xml",
        }


@pytest.mark.asyncio
async def test_the_page_may_reach_and_run_nothing_but_this_server(serve: OpenServer):
    async with serve() as server, aiohttp.ClientSession() as http:
        async with http.get(f"{base(server)}/") as response:
            policy = response.headers["Content-Security-Policy"]
            text = await response.text()
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert "microphone=(self)" in response.headers["Permissions-Policy"]
        rules = {
            rule.split()[0]: set(rule.split()[1:]) for rule in policy.split(";") if rule.strip()
        }
        assert rules.pop("media-src") == {"'self'", "blob:"}
        assert rules["default-src"] == {"'none'"}
        assert all(sources <= {"'self'", "'none'"} for sources in rules.values())
        assert "<style" not in text
        assert not re.search(r"\son[a-z]+=|\sstyle=", text)  # the policy would stop them
        assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


@pytest.mark.asyncio
async def test_a_browser_that_has_the_file_gets_no_second_copy(serve: OpenServer):
    async with serve() as server, aiohttp.ClientSession() as http:
        async with http.get(f"{base(server)}/main.js") as response:
            assert response.headers["Cache-Control"] == "no-cache"
            tag = response.headers["ETag"]
            assert await response.read()
        async with http.get(f"{base(server)}/main.js", headers={"If-None-Match": tag}) as response:
            assert response.status == 304
            assert await response.read() == b""
        stale = {"If-None-Match": '"something else"'}
        async with http.get(f"{base(server)}/main.js", headers=stale) as response:
            assert response.status == 200


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/model/../../pyproject.toml",
        "/model/%2e%2e/%2e%2e/pyproject.toml",
        "/..%2fpyproject.toml",
        "/model%2fcaptions.js",
        "/model/",
        "/index.html%00.js",
    ],
)
async def test_no_path_leads_out_of_the_folder(serve: OpenServer, path: str):
    async with serve() as server:
        reader, writer = await _open(server)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    status = int(answer.split()[1])
    assert status in (400, 404)
    assert b"[project]" not in answer


async def _open(server: Server):
    return await asyncio.open_connection("127.0.0.1", server.address.port)


@pytest.mark.asyncio
async def test_the_page_can_be_switched_off(serve: OpenServer):
    async with serve(server__web_client=False) as server, aiohttp.ClientSession() as http:
        async with http.get(f"{base(server)}/") as response:
            assert response.status == 404
        async with http.get(f"{base(server)}/healthz") as response:
            assert response.status == 200
