"""Virtual users with cameras against a whole server on simulated engines: frames come, are looked at, and the talk goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from loadgen.camera import film
from loadgen.drivers.camera_feed import Cameras
from loadgen.drivers.load_run import LoadOutcome, LoadPlan
from loadgen.drivers.webrtc import RtcDriver
from loadgen.drivers.websocket import WsDriver
from loadgen.drivers.wire_client import UserPlan
from loadgen.lab.report import build
from loadgen.server_probe import ServerProbe
from loadgen.speech import Material, clip_from_pcm
from session_server.http.server import Server
from session_server.simulation.spec import CameraUse
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.patient_loop import LoopClock
from tests.until import until

pytestmark = pytest.mark.integration

MS = 1_000_000
SEEING = {
    "webrtc__host_addresses": ["127.0.0.1"],
    "graph__stages__vision__engine": "sim.vision",
}
MATERIAL = Material(
    "tones",
    (clip_from_pcm("question", bytes(4800) + speech(0.5) + bytes(4800), None),),
    (clip_from_pcm("interruption", bytes(4800) + speech(0.6) + bytes(4800), None),),
    (),
)
USE = CameraUse("pan", fps=15.0, width=160, height=120, share=0.5)
VAD = {"type": "server_vad", "silence_duration_ms": 200}


def plan_of(use: CameraUse | None) -> UserPlan:
    cameras = None
    if use is not None:
        cameras = Cameras.of(use, film(use) if use.is_on else None)
    even = UserPlan.even(2, pause_ns=500 * MS, turn_detection=VAD)
    return replace(even, cameras=cameras)


async def drive(server: Server, kind: str, use: CameraUse | None) -> LoadOutcome:
    assert server.address is not None
    http = server.address.http
    url = server.address.ws if kind == "ws" else f"{http}/v1/realtime/calls"
    load = LoadPlan(url, plan_of(use), MATERIAL, (0.0, 0.05), 1)
    driver = WsDriver if kind == "ws" else RtcDriver
    return await driver(load, ServerProbe(http), clock=LoopClock()).run()


def reported(outcome: LoadOutcome, use: CameraUse | None) -> dict:
    return build(
        outcome, users=2, planned=4, seed=1, workload={}, origin="metrics", camera=use
    )  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["ws", "webrtc"])
async def test_frames_are_looked_at_while_the_users_talk(serve: OpenServer, kind: str):
    async with serve(**SEEING) as server:
        tasks = len(asyncio.all_tasks())
        outcome = await drive(server, kind, USE)
        await until(lambda: len(server.registry) == 0)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        report = reported(outcome, USE)
        assert report["errors"] == 0, report["error_kinds"]
        assert report["turns_ended"] == {"played": 4}
        client, seen = report["video"]["client"], report["video"]["server"]
        assert client["cameras"] == 1
        assert client["sent"] > 20
        assert seen["looks"] >= 2
        assert seen["kept"] >= 2
        assert seen["look_ms"]["count"] == seen["looks"]
        assert seen["frames"].get("undecodable", 0) == seen["frames"].get("too_large", 0) == 0
        counted = seen["kept"] + seen["not_kept"]
        assert 0.5 * client["sent"] < counted <= client["sent"], "each once; some after the look"
        assert (report["without_camera"]["turns"], report["with_camera"]["turns"]) == (2, 2)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["ws", "webrtc"])
async def test_cameras_that_are_off_send_nothing(serve: OpenServer, kind: str):
    async with serve(**SEEING) as server:
        off = replace(USE, kind="none")
        report = reported(await drive(server, kind, off), off)
        assert report["errors"] == 0, report["error_kinds"]
        assert report["video"]["client"]["sent"] == 0
        assert report["video"]["server"]["looks"] == 0
        assert report["with_camera"]["turns"] == 2


@pytest.mark.asyncio
async def test_a_server_without_eyes_says_so_and_the_talk_goes_on(serve: OpenServer):
    async with serve() as server:
        report = reported(await drive(server, "ws", USE), USE)
        assert report["turns_ended"] == {"played": 4}
        assert report["video"]["client"]["sent"] == 0
        assert report["error_kinds"].keys() >= {"no_video"}
        assert report["errors"] == 2, report["error_kinds"]
