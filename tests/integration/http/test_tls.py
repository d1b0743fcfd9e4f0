"""https and wss: with the server's own certificate, with one of the user's, and what cannot work said by name."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from session_server.client.offline import converse_once
from session_server.client.realtime_client import ClientError, connected
from session_server.config import Config, load
from session_server.http.server import Address, Server, serving
from session_server.http.tls import client_tls, own_certificate
from session_server.types.errors import ConfigError
from tests.integration.http.test_server import SPEECH

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def configured(**server: object) -> Config:
    flags = {f"server.{key}": value for key, value in {"port": 0, **server}.items()}
    return load(Path("sim.yaml"), flags=flags).config


@asynccontextmanager
async def secure_server(**keys: object) -> AsyncIterator[Server]:
    async with serving(configured(**keys)) as server:
        yield server


@pytest.mark.asyncio
async def test_a_self_signed_server_speaks_https_and_wss_to_a_client_of_this_machine():
    async with secure_server(tls_self_signed=True) as server:
        assert server.address is not None
        assert server.tls is not None
        assert server.address.ws.startswith("wss://")
        async with connected(server.address.ws) as client:
            await client.update({"instructions": "Be brief."})
        fingerprint = bytes.fromhex(server.tls.fingerprint.replace(":", ""))
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{server.address.http}/", ssl=aiohttp.Fingerprint(fingerprint)) as page,
        ):
            assert page.status == 200
            assert "Content-Security-Policy" in page.headers


@pytest.mark.asyncio
async def test_a_stranger_does_not_trust_the_certificate_until_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with secure_server(tls_self_signed=True) as server:
        assert server.address is not None
        assert server.tls is not None
        file = server.tls.certificate
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "of somebody else"))
        with pytest.raises(ClientError, match="its certificate is not trusted"):
            async with connected(server.address.ws):
                pass
        async with connected(server.address.ws, tls=client_tls(file)) as client:
            assert client.closed is None


@pytest.mark.asyncio
async def test_the_checks_own_conversation_works_over_tls_too():
    result, _ = await converse_once(configured(tls_self_signed=True), SPEECH)
    assert result.reply_seconds > 0


@pytest.mark.asyncio
async def test_a_certificate_of_the_users_with_its_key_apart(tmp_path: Path):
    both = own_certificate("127.0.0.1", datetime.datetime.now(datetime.UTC), tmp_path / "b.pem")
    key, mark, rest = both.file.read_text().partition("-----END PRIVATE KEY-----\n")
    (tmp_path / "key.pem").write_text(key + mark)
    (tmp_path / "cert.pem").write_text(rest)
    cert = str(tmp_path / "cert.pem")
    async with secure_server(tls_cert=cert, tls_key=str(tmp_path / "key.pem")) as server:
        assert server.address is not None
        trusted = client_tls(tmp_path / "cert.pem")
        assert trusted.verify_mode is ssl.CERT_REQUIRED
        async with connected(server.address.ws, tls=trusted) as client:
            assert client.closed is None
    with pytest.raises(ConfigError, match=r"server\.tls_cert: .*there is no key in it"):
        await Server(configured(tls_cert=cert)).start()
    other = own_certificate("127.0.0.1", datetime.datetime.now(datetime.UTC), tmp_path / "o.pem")
    with pytest.raises(ConfigError, match=r"server\.tls_key: .*does not belong to the certificate"):
        await Server(configured(tls_cert=cert, tls_key=str(other.file))).start()
    with pytest.raises(ConfigError, match=r"server\.tls_cert: .*No such file"):
        await Server(configured(tls_cert=str(tmp_path / "none.pem"))).start()
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match=r"server\.tls_cert: .*there is no certificate"):
        await Server(configured(tls_cert=str(tmp_path / "text"))).start()
    with pytest.raises(ConfigError, match="not a certificate in PEM"):
        client_tls(tmp_path / "text")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"tls_key": "key.pem"}, r"server\.tls_key: a key without its certificate, server\.tls_c"),
        ({"tls_self_signed": True, "tls_cert": "a"}, r"server\.tls_self_signed: there is a cert"),
        ({"tls_cert": ""}, r"server\.tls_cert: must not be empty"),
    ],
)
def test_what_does_not_go_together_names_the_key(keys: dict[str, object], said: str):
    with pytest.raises(ConfigError, match=said):
        configured(**keys)


def test_a_server_on_every_interface_names_all_its_pages():
    names = ["localhost", "127.0.0.1", "::1", "192.0.2.7", "2001:db8::7"]
    assert Address("0.0.0.0", 8443, secure=True).pages(names) == [
        "https://localhost:8443/",
        "https://127.0.0.1:8443/",
        "https://192.0.2.7:8443/",
        "https://[2001:db8::7]:8443/",
    ]
    assert Address("127.0.0.1", 8000).pages(names) == ["http://127.0.0.1:8000/"]
