"""Callers come, talk and leave, hundreds of times (`SOAK_CYCLES=300`): nothing of them is left, and memory stands still."""

from __future__ import annotations

import asyncio
import gc
import threading

import psutil
import pytest

from loadgen.drivers.load_run import LoadPlan
from loadgen.drivers.webrtc import RtcDriver
from loadgen.drivers.wire_client import UserPlan
from loadgen.server_probe import ServerProbe
from tests.integration.loadgen.test_calls_over_loopback import MATERIAL, MS, ONLY_LOOPBACK, VAD, url
from tests.integration.server.conftest import OpenServer
from tests.integration.transports.webrtc.rtc_caller import calling, vanish
from tests.patient_loop import LoopClock
from tests.until import until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

AT_ONCE = 4
WARM_CYCLES = 100
MOST_GROWTH = 0.02
NOTICED_S = 4.0


def sockets() -> int:
    return len(psutil.Process().net_connections())


def rss() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss


@pytest.mark.asyncio
async def test_calls_leave_no_task_no_thread_no_socket_and_no_memory(
    serve: OpenServer, cycles: int, capsys: pytest.CaptureFixture[str]
):
    """Server and callers share this process, so it is the growth of both. The first calls fill caches and pools; growth counts
    from the hundredth on."""
    async with serve(**ONLY_LOOPBACK) as server:
        plan = UserPlan.even(1, pause_ns=40 * MS, turn_detection=VAD)
        grown: list[tuple[int, int]] = []

        async def talk(rounds: int) -> None:
            starts = [0.03 * user for user in range(AT_ONCE)]
            load = LoadPlan(url(server), plan, MATERIAL, starts, 1, rounds)
            driver = RtcDriver(load, ServerProbe("http://127.0.0.1:1"), clock=LoopClock())
            outcome = await driver.run()
            ended = [turn.ended for record in outcome.records for turn in record.turns]
            assert ended == ["played"] * (rounds * AT_ONCE)
            await until(lambda: len(server.registry) == 0)

        await talk(1)
        tasks, before, open_sockets = len(asyncio.all_tasks()), threading.active_count(), sockets()
        done = AT_ONCE
        while done < cycles:
            rounds = min(5, -(-(cycles - done) // AT_ONCE))
            await talk(rounds)
            done += rounds * AT_ONCE
            grown.append((done, rss()))
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: threading.active_count() <= before)
        await until(lambda: sockets() <= open_sockets)
        warm = [size for count, size in grown if count >= WARM_CYCLES]
        if cycles >= 3 * WARM_CYCLES:
            with capsys.disabled():
                print(
                    "", *(f"{count} calls: {size / 1e6:.1f} MB" for count, size in grown), sep="\n"
                )
            assert warm[-1] <= warm[0] * (1 + MOST_GROWTH)


@pytest.mark.asyncio
async def test_a_caller_who_vanishes_is_noticed_in_time_by_a_server_as_it_is_configured(
    serve: OpenServer,
):
    async with serve(**ONLY_LOOPBACK) as server:
        async with calling(server, lawful=False) as caller:
            await caller.until(lambda: len(caller.ear) > 5)
            before = threading.active_count()
            gone = asyncio.get_running_loop().time()
            await vanish(caller)
            await until(lambda: len(server.registry) == 0)
            assert asyncio.get_running_loop().time() - gone <= NOTICED_S
        await until(lambda: threading.active_count() < before)
