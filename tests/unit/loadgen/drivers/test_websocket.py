"""The WebSocket driver against a small real server on loopback that hears tones and answers with them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.utils import accept_key

from loadgen.camera import Film
from loadgen.cli import main
from loadgen.drivers.camera_feed import Cameras
from loadgen.drivers.load_run import LoadPlan, RefusedCall, RunFailed
from loadgen.drivers.websocket import WsDriver, why_closed
from loadgen.drivers.wire_client import UserPlan
from loadgen.measure import duration_s, measure
from loadgen.server_probe import ServerProbe
from loadgen.speech import Material
from session_server.simulation.spec import CameraUse
from tests.patient_loop import LoopClock
from tests.unit.loadgen.drivers.scripted import clip, tone

pytestmark = pytest.mark.integration

MS = 1_000_000
MATERIAL = Material(
    "tones", (clip("a", 200, "one"), clip("b", 200, "two")), (clip("c", 300, "three"),), ()
)
METRICS = (
    "process_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 1e8\n"
    'session_server_build_info{version="0.1",python="3.11"} 1\n'
)


class Talker:
    """One connection: 100 ms of silence after a tone ends a turn; a tone over the answer stops it."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.quiet = 0
        self.speech = 0
        self.turns = 0
        self.answering: asyncio.Task[None] | None = None
        self.frames = 0
        self.pictures: list[bytes] = []
        self.wants_video = True

    async def say(self, kind: str, **fields: object) -> None:
        await self.socket.send_json({"type": kind, "event_id": "e", **fields})

    async def hear(self, event: dict) -> None:
        if event["type"] == "session.update":
            if "extensions" in event["session"] and not self.wants_video:
                await self.say("error", error={"code": "unknown_parameter", "message": "no video"})
                return
            await self.say("session.updated", session={"id": "sess_1", **event["session"]})
        if event["type"] == "input_image_buffer.append":
            self.pictures.append(base64.b64decode(event["image"]))
        if event["type"] != "input_audio_buffer.append":
            return
        self.frames += 1
        samples = np.frombuffer(base64.b64decode(event["audio"]), "<i2").astype(float)
        assert len(samples) == 480
        if np.sqrt(np.mean(samples**2)) > 500:
            self.speech += 1
            self.quiet = 0
            if self.speech == 5 and self.answering is not None and not self.answering.done():
                await self.stop()
        elif self.speech:
            self.quiet += 1
            if self.quiet == 5:
                self.speech = 0
                await self.turn()

    async def turn(self) -> None:
        self.turns += 1
        await self.say("input_audio_buffer.committed", item_id=f"u{self.turns}_{id(self)}")
        self.answering = asyncio.create_task(self.answer(f"r{self.turns}_{id(self)}"))

    async def answer(self, response: str) -> None:
        await self.say("response.created", response={"id": response, "status": "in_progress"})
        try:
            for _ in range(12):
                await self.say(
                    "response.output_audio.delta",
                    response_id=response,
                    item_id=f"i{response}",
                    delta=base64.b64encode(tone(100)).decode(),
                )
                await asyncio.sleep(0.09)
        except asyncio.CancelledError:
            body = {"id": response, "status": "cancelled", "status_details": {"type": "cancelled"}}
            await self.say("response.done", response=body)
            raise
        await self.say("response.done", response={"id": response, "status": "completed"})

    async def stop(self) -> None:
        assert self.answering is not None
        self.answering.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.answering
        await self.say("input_audio_buffer.speech_started", item_id="u", audio_start_ms=0)


class Server:
    """`status`: refuse with it, everybody or as many as `refusals` says; `die_after`: hang up behind so many microphone frames."""

    def __init__(
        self, *, status: int = 0, refusals: int = 1 << 30, die_after: int = 0, metrics: bool = True
    ) -> None:
        self.status = status
        self.refusals = refusals
        self.die_after = die_after
        self.talkers: list[Talker] = []
        self.headers: list[dict[str, str]] = []
        self.app = web.Application()
        self.app.router.add_get("/v1/realtime", self.realtime)
        if metrics:
            self.app.router.add_get("/metrics", self.metrics)

    async def __aenter__(self) -> Server:
        self.runner = web.AppRunner(self.app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        port = self.runner.addresses[0][1]
        self.url = f"ws://127.0.0.1:{port}/v1/realtime"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()

    async def metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=METRICS)

    async def realtime(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if self.status and self.refusals:
            self.refusals -= 1
            body = {"error": {"message": "the server is busy"}}
            return web.json_response(body, status=self.status, headers={"Retry-After": "0"})
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        talker = Talker(socket)
        self.talkers.append(talker)
        await talker.say("session.created", session={"id": "sess_1"})
        async for message in socket:
            assert message.type is WSMsgType.TEXT
            await talker.hear(json.loads(message.data))
            if self.die_after and talker.frames >= self.die_after:
                await socket.close(code=1011)
        if talker.answering is not None:
            talker.answering.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await talker.answering
        return socket


def load(server: Server, plan: UserPlan, users: int = 1, **more) -> LoadPlan:
    return LoadPlan(server.url, plan, MATERIAL, [0.05 * i for i in range(users)], 1, **more)


async def drive(server: Server, plan: UserPlan, users: int = 1, **more):
    driver = WsDriver(load(server, plan, users, **more), ServerProbe(server.url), clock=LoopClock())
    return await driver.run()


@pytest.mark.asyncio
async def test_users_talk_listen_and_interrupt_over_real_sockets():
    plan = UserPlan.even(3, barge_in=0.5, pause_ns=100 * MS, limit_ns=5000 * MS)
    async with Server() as server:
        outcome = await drive(server, plan, users=3)
    figures = measure(outcome.records, duration_s(outcome.records))
    assert figures["error_kinds"] == {}
    assert figures["turns"] == 9
    assert figures["leaks"] == 0
    assert figures["barge_in"]["stale_chunks"] == 0
    assert figures["barge_in"]["count"] >= 1
    assert figures["turns_ended"].keys() <= {"played", "interrupted"}
    # 100 ms of silence end the turn; the answer is at the listener within a few frames of that
    assert 60 < figures["endpoint_ms"]["p50"] < 1000
    assert 0 < figures["response_ms"]["p50"] < 1000
    assert outcome.sessions == 3
    assert outcome.looks[0][1].cpu_s == 1.5
    instants, leads = zip(*outcome.lead, strict=True)
    assert 0.0 in leads
    assert 0.05 < max(leads) < 1.2, (
        "an answer has 1.2 s of sound, and comes a little faster than it is played"
    )
    assert list(instants) == sorted(instants)


@pytest.mark.asyncio
async def test_the_microphone_keeps_real_time():
    plan = UserPlan.even(1, pause_ns=0, limit_ns=5000 * MS)
    async with Server() as server:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await drive(server, plan)
        took = loop.time() - begun
        frames = server.talkers[0].frames
    assert abs(frames * 0.02 - took) < 1.5
    assert frames <= took / 0.02 + 1


@pytest.mark.asyncio
async def test_each_round_is_a_fresh_session():
    plan = UserPlan.even(1, pause_ns=0, limit_ns=5000 * MS)
    async with Server() as server:
        outcome = await drive(server, plan, rounds=2)
    assert outcome.sessions == len(server.talkers) == 2
    assert measure(outcome.records, 1.0)["turns"] == 2


@pytest.mark.asyncio
async def test_the_key_is_sent_as_bearer():
    plan = UserPlan.even(1, pause_ns=0, limit_ns=5000 * MS)
    async with Server() as server:
        await drive(server, plan, api_key="k1")
        assert server.headers[0]["Authorization"] == "Bearer k1"


@pytest.mark.asyncio
async def test_a_server_that_hangs_up_is_an_error_for_that_user():
    plan = UserPlan.even(2, pause_ns=0, limit_ns=5000 * MS)
    async with Server(die_after=30) as server:
        outcome = await drive(server, plan)
    assert measure(outcome.records, 1.0)["error_kinds"] == {"closed:1011": 1}


@pytest.mark.asyncio
async def test_a_run_that_is_stopped_keeps_what_its_users_saw():
    plan = UserPlan.even(500, pause_ns=0, limit_ns=5000 * MS)
    heard = asyncio.Event()
    async with Server() as server:
        driver = WsDriver(
            load(server, plan, 2),
            ServerProbe(server.url),
            progress=lambda _: heard.set(),
            clock=LoopClock(),
        )
        running = asyncio.create_task(driver.run())
        await heard.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    figures = measure(driver.outcome.records, 1.0)
    assert len(driver.outcome.records) == 2
    assert figures["turns_ended"].get("played", 0) >= 1
    assert figures["errors"] == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "words"), [(401, "--api-key"), (503, "no more sessions"), (404, "nothing is served")]
)
async def test_a_refusal_is_one_clear_line(status, words):
    async with Server(status=status) as server:
        with pytest.raises(RunFailed, match=words) as failed:
            await drive(server, UserPlan.even(1))
    assert "\n" not in str(failed.value)
    assert f"HTTP {status}" in str(failed.value)


@pytest.mark.asyncio
async def test_a_refused_user_comes_again_when_the_server_says():
    plan = UserPlan.even(1, pause_ns=0, limit_ns=5000 * MS)
    async with Server(status=503, refusals=2) as server:
        outcome = await drive(server, plan, knock_again=True)
    assert outcome.refusals == [RefusedCall("the server is busy", 0)] * 2
    assert outcome.sessions == 1
    assert measure(outcome.records, 1.0)["error_kinds"] == {}


@pytest.mark.asyncio
async def test_a_user_who_does_not_come_again_is_lost_with_the_servers_words():
    async with Server(status=503) as server:
        with pytest.raises(RunFailed, match="no more sessions now: the server is busy"):
            await drive(server, UserPlan.even(1))
    assert len(server.headers) == 1


def test_no_server_is_one_clear_line_and_exit_code_3(capsys, monkeypatch):
    monkeypatch.setattr("loadgen.cli.running.synthesised", lambda: MATERIAL)
    assert main(["run", "--url", "ws://127.0.0.1:9"]) == 3
    shown = capsys.readouterr().err
    assert "is the server running?" in shown
    assert "Traceback" not in shown


@pytest.mark.asyncio
async def test_a_server_that_answers_no_ping_is_told_apart_from_a_lost_connection():
    """Both were `closed:1006`, though in one case the load generator itself had hung up."""

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        (key,) = (line.split(": ")[1] for line in head.splitlines() if "Sec-WebSocket-Key" in line)
        answer = (
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept_key(key)}"
        )
        writer.write(f"HTTP/1.1 101 Switching Protocols\r\n{answer}\r\n\r\n".encode())
        if "/lost" in head:
            writer.close()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    async with server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for path, why in (("/deaf", "closed:no pong"), ("/lost", "closed:1006")):
            async with connect(
                url + path, proxy=None, ping_interval=0.05, ping_timeout=0.05, close_timeout=0.1
            ) as socket:
                with pytest.raises(ConnectionClosed):
                    await socket.recv()
            assert why_closed(socket) == why


CAMERAS = Cameras.of(
    CameraUse("static", fps=25.0, share=0.5), Film(25.0, tuple(b"%d" % n for n in range(10)))
)


@pytest.mark.asyncio
async def test_users_with_a_camera_film_while_they_talk():
    plan = replace(UserPlan.even(2, pause_ns=100 * MS, limit_ns=5000 * MS), cameras=CAMERAS)
    async with Server() as server:
        outcome = await drive(server, plan, users=4)
        pictures = [talker.pictures for talker in server.talkers]
    assert [record.camera for record in outcome.records].count(True) == 2
    assert measure(outcome.records, 1.0)["error_kinds"] == {}
    assert measure(outcome.records, 1.0)["turns"] == 8
    assert sorted(bool(one) for one in pictures) == [False, False, True, True]
    for seen in filter(None, pictures):
        numbers = [int(one.split(b"\0")[0]) for one in seen]
        assert len(numbers) > 20
        forward = [(b - a) % 10 for a, b in itertools.pairwise(numbers)]
        assert forward.count(1) > 0.8 * len(forward), "one after the other, few left out"
    film = outcome.film
    assert film.cameras == 2
    assert film.sent >= sum(map(len, pictures)) > 0


@pytest.mark.asyncio
async def test_a_server_that_takes_no_video_gets_none_and_the_talk_goes_on(
    monkeypatch: pytest.MonkeyPatch,
):
    plan = replace(UserPlan.even(1, pause_ns=100 * MS, limit_ns=5000 * MS), cameras=CAMERAS)
    born = Talker.__init__

    def blind(self: Talker, socket: web.WebSocketResponse) -> None:
        born(self, socket)
        self.wants_video = False

    monkeypatch.setattr(Talker, "__init__", blind)
    async with Server() as server:
        outcome = await drive(server, plan, users=2)
        assert not any(talker.pictures for talker in server.talkers)
    assert measure(outcome.records, 1.0)["error_kinds"] == {
        "error:unknown_parameter": 1,
        "no_video": 1,
    }
    assert measure(outcome.records, 1.0)["turns"] == 2
    assert outcome.film.cameras == 0
