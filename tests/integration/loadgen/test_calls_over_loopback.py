"""Virtual users call a whole server on simulated engines: they are answered, interrupt, hang up, vanish; nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

import pytest

from loadgen.call_reception import BadNetwork
from loadgen.drivers import webrtc
from loadgen.drivers.load_run import LoadOutcome, LoadPlan, RunFailed
from loadgen.drivers.webrtc import RtcDriver
from loadgen.drivers.wire_client import UserPlan
from loadgen.lab.report import build
from loadgen.server_probe import ServerProbe
from loadgen.speech import Clip, Material, clip_from_pcm
from session_server.http.server import Server
from session_server.simulation.spec import Distribution, Workload
from tests.aiortc_inside import abort_sockets
from tests.integration.server.conftest import OpenServer
from tests.integration.server.sounds import speech
from tests.patient_loop import LoopClock
from tests.until import until

pytestmark = pytest.mark.integration

MS = 1_000_000
ONLY_LOOPBACK = {"webrtc__host_addresses": ["127.0.0.1"]}
NOW = Distribution(0.0, kind="constant")
VAD = {"type": "server_vad", "silence_duration_ms": 200}


def clip(name: str, seconds: float) -> Clip:
    return clip_from_pcm(name, bytes(4800) + speech(seconds) + bytes(4800), None)


MATERIAL = Material("noise", (clip("a", 0.8), clip("b", 0.6)), (clip("c", 0.7),), ())


def url(server: Server) -> str:
    assert server.address is not None
    return f"{server.address.http}/v1/realtime/calls"


def load(
    address: str, plan: UserPlan, starts: Sequence[float] = (0.0, 0.05), **more: object
) -> LoadPlan:
    return LoadPlan(address, plan, MATERIAL, starts, 1, **more)  # type: ignore[arg-type]


async def call(server: Server, plan: UserPlan, **more: object) -> LoadOutcome:
    extensions = "?extensions=playback" if plan.playback else ""
    network = more.pop("network", None)
    one = load(url(server) + extensions, plan, **more)  # type: ignore[arg-type]
    driver = RtcDriver(one, ServerProbe("http://127.0.0.1:1"), clock=LoopClock(), network=network)  # type: ignore[arg-type]
    outcome = await driver.run()
    assert not driver.live
    return outcome


def threads() -> int:
    return sum(thread.name.endswith("-decoder") for thread in threading.enumerate())


@pytest.mark.asyncio
@pytest.mark.parametrize("playback", [False, True])
async def test_two_users_talk_and_leave_nothing(serve: OpenServer, playback: bool):
    async with serve(**ONLY_LOOPBACK) as server:
        tasks, before = len(asyncio.all_tasks()), threads()
        plan = UserPlan.even(1, pause_ns=100 * MS, turn_detection=VAD, playback=playback)
        outcome = await call(server, plan)
        await until(lambda: len(server.registry) == 0)
        await until(lambda: threads() == before)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        report = build(outcome, users=2, planned=2, seed=1, workload={}, origin=None)
        assert report["turns_ended"] == {"played": 2}, report["error_kinds"]
        assert report["errors"] == report["leaks"] == report["barge_in"]["stale_chunks"] == 0
        assert report["ttfa_ms"]["count"] == 2
        calls = report["webrtc"]
        assert report["driver"]["kind"] == "webrtc"
        assert calls["packets"] > 50
        assert calls["packets_lost"] == 0
        assert calls["connect_ms"]["count"] == calls["media_ms"]["count"] == 2
        assert calls["connect_ms"]["p50"] >= calls["media_ms"]["p50"] >= calls["ice_ms"]["p50"] > 0
        source = {"source": "client" if playback else "estimate"}
        assert server.metrics.value("frontier_cuts_total", **source) == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("playback", [False, True])
async def test_an_interruption_stops_the_answer_at_the_listener(serve: OpenServer, playback: bool):
    early = Distribution(0.15, kind="constant")
    workload = Workload(
        barge_in=1.0, barge_in_at=early, opening_s=NOW, think_least_s=NOW, think_s=NOW
    )
    async with serve({"thinker": {"words": 20}}, **ONLY_LOOPBACK) as server:
        plan = UserPlan(2, workload, VAD, playback=playback)
        outcome = await call(server, plan, starts=[0.0])
        (barge_in,) = outcome.records[0].barge_ins
        assert barge_in.fence is not None
        assert barge_in.silent is not None
        assert barge_in.silent - barge_in.fence <= 200 * MS
        assert barge_in.fence_event == (
            "playback.mute" if playback else "output_audio_buffer.cleared"
        )
        source = "client" if playback else "estimate"
        assert server.metrics.value("frontier_cuts_total", source=source) == 1
        assert [turn.ended for turn in outcome.records[0].turns] == ["interrupted", "played"]


@pytest.mark.asyncio
async def test_a_bad_network_loses_packets_and_the_talk_goes_on(serve: OpenServer):
    async with serve(**ONLY_LOOPBACK) as server:
        plan = UserPlan.even(2, pause_ns=100 * MS, turn_detection=VAD)
        network = BadNetwork(loss=0.05, jitter_ms=10)
        outcome = await call(server, plan, starts=[0.0], network=network)
        assert [turn.ended for turn in outcome.records[0].turns] == ["played", "played"]
        (figures,) = outcome.calls or ()
        assert figures.lost > 0


@pytest.mark.asyncio
async def test_callers_who_vanish_are_noticed_and_free_everything(serve: OpenServer):
    workload = Workload(drop=1.0, opening_s=NOW, wait_limit_s=10.0)
    async with serve({"thinker": {"words": 20}}, **ONLY_LOOPBACK, webrtc__silence_s=0.5) as server:
        before = threads()
        outcome = await call(server, UserPlan(1, workload, VAD), starts=[0.0], rounds=2)
        assert [turn.ended for one in outcome.records for turn in one.turns] == ["left", "left"]
        await until(lambda: len(server.registry) == 0)
        await until(lambda: threads() == before)


@pytest.mark.asyncio
async def test_a_server_that_vanishes_ends_the_call(
    serve: OpenServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(webrtc, "SILENT_NS", 500 * MS)
    async with serve(**ONLY_LOOPBACK, webrtc__silence_s=0.5) as server:
        calls = server.calls
        assert calls is not None

        async def cut_the_line() -> None:
            await until(lambda: any(live.call.outbox.playout.next_index > 20 for live in calls))
            for live in calls:
                abort_sockets(live.call.peer)

        cutting = asyncio.create_task(cut_the_line())
        outcome = await call(server, UserPlan.even(1, turn_detection=VAD), starts=[0.0])
        await cutting
        assert outcome.records[0].errors == {"closed:lost": 1}


@pytest.mark.asyncio
async def test_servers_that_take_no_calls_are_one_clear_line(serve: OpenServer):
    plan = UserPlan.even(1)
    probe = ServerProbe("http://127.0.0.1:1")
    table: list[tuple[dict[str, object], str]] = [
        ({"webrtc__enabled": False}, "HTTP 40[45]: no calls are served here"),
        ({"auth__keys": ["sk-right"]}, "HTTP 401: the server wants a key"),
        ({"scheduler__max_sessions": 1}, "HTTP 503: the server takes no more"),
    ]
    for flags, said in table:
        async with serve(**ONLY_LOOPBACK, **flags) as server:
            full = "scheduler__max_sessions" in flags
            driver = RtcDriver(load(url(server), plan), probe, clock=LoopClock())
            with (
                server.registry.admit() if full else contextlib.nullcontext(),
                pytest.raises(RunFailed, match=said),
            ):
                await driver.run()
    one = load("http://127.0.0.1:1/v1/realtime/calls", plan)
    with pytest.raises(RunFailed, match="cannot connect: is the server running"):
        await RtcDriver(one, probe, clock=LoopClock()).run()
