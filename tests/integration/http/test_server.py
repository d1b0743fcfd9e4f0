"""The whole server with simulated engines: a conversation, admission, ends, and bad neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engines.sim.wave import WaveReport, verify
from session_server.client.dialogue import ask, hear_out, session_settings
from session_server.client.offline import converse_once
from session_server.client.realtime_client import ClientError, connected, microphone
from session_server.client.sound import write_wav
from session_server.client.talk import talk_recorded
from session_server.config import Config, load
from session_server.http.server import Server, serving
from session_server.types.errors import ConfigError, ModelsMissing

pytestmark = pytest.mark.integration


def speechlike(seconds: float) -> bytes:
    """A buzz with a voice's harmonics and syllables: what a voice activity detector takes for speech."""
    t = np.arange(int(seconds * 24_000)) / 24_000
    buzz = sum(np.sin(2 * np.pi * 130 * k * t) / k for k in range(1, 30))
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * t)
    return (buzz * syllables * 6000).astype("<i2").tobytes()


SPEECH = speechlike(1.5)


def simulated(**sections: object) -> Config:
    config = load(Path("sim.yaml")).config
    server = replace(config.server, port=0, outbox_wait_s=0.5, close_wait_s=0.5)
    return replace(config, server=server, **sections)


@asynccontextmanager
async def server_of(config: Config) -> AsyncIterator[tuple[Server, str]]:
    async with serving(config) as server:
        assert server.address is not None
        yield server, server.address.ws


async def typed_answer(url: str, started: asyncio.Event) -> WaveReport:
    """Ask by text; what the check of the known waveform says. Sets `started` when the first audio came."""
    async with connected(url) as client, microphone(client):
        content = [{"type": "input_text", "text": "Please tell me about the moon."}]
        item = {"type": "message", "role": "user", "content": content}
        await client.send({"type": "conversation.item.create", "item": item})
        await client.send({"type": "response.create", "response": {"max_output_tokens": 40}})
        first = await client.wait("response.output_audio.delta")
        started.set()
        await client.wait("response.done", first.number)
        response_id = first.event["response_id"]
        return verify(bytes(client.parts[response_id].pcm), response_id)


@pytest.mark.asyncio
async def test_a_spoken_turn_is_answered_and_leaves_nothing_behind():
    async with server_of(simulated()) as (server, url):
        async with connected(url) as client, microphone(client):
            await client.update(session_settings(None, "server_vad"))
            exchange = await ask(client, SPEECH)
            await hear_out(client, exchange)
            assert exchange.status == "completed"
            assert exchange.reply.startswith("You said: ")
            assert exchange.reply_seconds > 1
            assert [leg.ms >= 0 for leg in exchange.legs] == [True] * 3
        await gone(server)
        server.host.check_integrity()


@pytest.mark.asyncio
async def test_a_recording_with_a_pause_gets_the_answer_to_all_of_it(tmp_path: Path):
    """The pause ends a turn, whose answer the rest of the recording interrupts: nobody waits for that one to be played."""
    file = tmp_path / "with-a-pause.wav"
    write_wav(file, speechlike(0.8) + bytes(48_000) + speechlike(0.8))
    told: list[tuple[str, str]] = []
    async with server_of(simulated()) as (server, url):
        answers = await talk_recorded(
            url, None, "server_vad", [file], lambda who, text: told.append((who, text))
        )
        await gone(server)
    assert len(answers) > 24_000, "half a second at least"
    assert [who for who, _ in told].count("user") == 2, "the pause was an end of turn"
    assert [text for who, text in told if who == "note"][-1].startswith("first audio after")


@pytest.mark.asyncio
async def test_talk_without_a_key_is_told_which_option_has_it():
    config = simulated()
    async with server_of(replace(config, auth=replace(config.auth, keys=("sk-1",)))) as (_, url):
        with pytest.raises(ClientError, match=r"HTTP 401: .* --key, or OPENAI_API_KEY"):
            async with connected(url):
                pass


@pytest.mark.asyncio
async def test_a_client_that_is_refused_hears_the_servers_reason_and_when_to_come_again():
    config = simulated()
    config = replace(config, scheduler=replace(config.scheduler, max_sessions=1))
    async with server_of(config) as (_, url), connected(url):
        with pytest.raises(ClientError, match=r"HTTP 503: .*limit of 1 sessions.* Try again in"):
            async with connected(url):
                pass


CUT_BODY = zlib.compress(b'{"expires_after": {"anchor": "created_at", "seconds": 600}}')[:-8]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (
            b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: h\r\nContent-Encoding: deflate\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (len(CUT_BODY), CUT_BODY),
            "invalid_body",
        ),
        (b"GET / HTTP/1.1\r\nHost: h\r\nbad header\r\n\r\n", "invalid_request"),
    ],
    ids=["a compressed body that is cut off", "a line that is no header"],
)
async def test_what_never_reaches_a_route_is_refused_in_the_shape_of_the_api(
    request_bytes: bytes, code: str, caplog: pytest.LogCaptureFixture
):
    async with server_of(simulated()) as (server, _):
        assert server.address is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        writer.write(request_bytes)
        head, _, body = (await asyncio.wait_for(reader.read(), 30)).partition(b"\r\n\r\n")
        writer.close()
        assert b" 400 " in head.splitlines()[0]
        assert b"application/json" in head
        error = json.loads(body)["error"]
        assert error["code"] == code
        assert error["type"] == "invalid_request_error"
    assert [record for record in caplog.records if record.exc_info] == [], "no fault of ours"


async def gone(server: Server) -> None:
    """Until the last session has left."""
    left = asyncio.Event()
    server.registry.on_empty(left.set)
    if len(server.registry):
        await asyncio.wait_for(left.wait(), 40)


@pytest.mark.asyncio
async def test_a_turn_from_a_file_is_answered_and_measured():
    result, pcm = await converse_once(simulated(), SPEECH)
    assert result.reply_text.startswith("You said: ")
    assert result.reply_seconds == round(len(pcm) / 48_000, 3)
    assert result.first_audio_ms > 0


@pytest.mark.asyncio
async def test_a_hundred_connects_at_limit_eight():
    config = simulated()
    config = replace(config, scheduler=replace(config.scheduler, max_sessions=8))
    async with server_of(config) as (server, url):
        opened: list[ClientConnection] = []
        refused: list[int] = []

        async def attempt() -> None:
            try:
                opened.append(await connect(url, proxy=None))
            except InvalidStatus as error:
                refused.append(error.response.status_code)

        await asyncio.gather(*(attempt() for _ in range(100)))
        assert (len(opened), refused) == (8, [503] * 92)
        for socket in opened:
            assert json.loads(await socket.recv())["type"] == "session.created"
        assert server.metrics.value("sessions_rejected_total", reason="full") == 92
        await asyncio.gather(*(socket.close() for socket in opened))
        await gone(server)
        server.host.check_integrity()


@pytest.mark.asyncio
async def test_a_missing_model_is_said_at_the_start_and_the_port_is_free_again(tmp_path: Path):
    config = load().config
    server = replace(config.server, port=0)
    config = replace(config, server=server, models=replace(config.models, folder=str(tmp_path)))
    with pytest.raises(ModelsMissing, match="session-server models fetch"):
        await Server(config).start()


@pytest.mark.asyncio
async def test_a_port_in_use_names_the_key():
    async with server_of(simulated()) as (server, _url):
        assert server.address is not None
        config = simulated()
        taken = replace(config, server=replace(config.server, port=server.address.port))
        with pytest.raises(ConfigError, match=r"server\.port: port \d+ of 127\.0\.0\.1 is in use"):
            await Server(taken).start()


@pytest.mark.asyncio
async def test_an_unknown_engine_or_voice_names_the_key():
    config = simulated()
    asr = replace(config.graph.stages[0], engine="sim.nobody")
    graph = replace(config.graph, stages=(asr, *config.graph.stages[1:]))
    with pytest.raises(ConfigError, match=r"graph\.stages\.asr\.engine: unknown engine"):
        Server(replace(config, graph=graph))
    voiced = replace(config, session=replace(config.session, voice="nobody"))
    with pytest.raises(ConfigError, match=r"session\.voice: 'nobody' is not among models\.voices"):
        await Server(voiced).start()


# -- bad neighbours: what each does, beside a session whose audio must not change by one sample


async def never_reads(url: str) -> None:
    """Starts a long answer, then stops reading; closed by the server in the end."""
    socket = await connect(url, proxy=None, max_queue=1, ping_interval=None)
    await socket.recv()
    await ask_long(socket)
    socket.transport.pause_reading()
    await asyncio.sleep(1.5)
    socket.transport.abort()


async def vanishes(url: str) -> None:
    """Drops its socket in mid-answer."""
    socket = await connect(url, proxy=None)
    await ask_long(socket)
    while json.loads(await socket.recv())["type"] != "response.output_audio.delta":
        pass
    socket.transport.abort()


async def sends_too_much(url: str) -> None:
    """One message above the limit: closed with 1009."""
    async with connect(url, proxy=None) as socket:
        with contextlib.suppress(ConnectionClosed):
            await socket.send("x" * (33 * 1024 * 1024))
            while True:
                await socket.recv()
        assert socket.close_code in (1009, 1006)


async def ask_long(socket: ClientConnection) -> None:
    content = [{"type": "input_text", "text": "word " * 60}]
    item = {"type": "message", "role": "user", "content": content}
    await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))


Neighbour = Callable[[str], Awaitable[None]]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "neighbour", [never_reads, vanishes, sends_too_much], ids=lambda n: n.__name__
)
async def test_a_bad_neighbour_does_not_change_one_sample(neighbour: Neighbour):
    async with server_of(simulated()) as (server, url):
        started = asyncio.Event()
        beside = asyncio.create_task(typed_answer(url, started))
        await started.wait()
        await neighbour(url)
        report = await beside
        assert report.complete, report.faults
        assert report.samples > 24_000
        await gone(server)
        server.host.check_integrity()


@pytest.mark.asyncio
async def test_a_server_that_goes_away_is_one_clear_error_for_its_client():
    async with server_of(simulated()) as (server, url), connected(url) as client:
        waiting = asyncio.create_task(client.wait("response.created"))
        server.drain.request()
        await server.drain.finish()
        with pytest.raises(ClientError, match="1001"):
            await waiting


def test_the_client_of_a_server_that_is_not_there_says_so():
    async def attempt() -> None:
        async with connected("ws://127.0.0.1:9/v1/realtime"):
            pass

    with pytest.raises(ClientError, match="cannot connect"):
        asyncio.run(attempt())
