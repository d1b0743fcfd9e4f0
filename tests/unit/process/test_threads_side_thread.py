"""Small pieces of work beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from session_server.process.threads import SideThread
from tests.until import PATIENCE_S

pytestmark = pytest.mark.unit


async def result_of(side: SideThread, work):
    done = asyncio.get_running_loop().create_future()
    side.run(work, done.set_result)
    async with asyncio.timeout(PATIENCE_S):
        return await done


@pytest.mark.asyncio
async def test_work_is_done_elsewhere_and_its_result_told_on_the_loop():
    side, here = SideThread(), threading.get_ident()
    told_on: list[int] = []
    done = asyncio.Event()

    def tell(result):
        told_on.append(threading.get_ident())
        assert result != here
        done.set()

    side.run(threading.get_ident, tell)
    async with asyncio.timeout(PATIENCE_S):
        await done.wait()
    assert told_on == [here]
    side.close()
    assert side.join(PATIENCE_S)


@pytest.mark.asyncio
async def test_what_work_raises_is_its_result_and_the_next_piece_is_done_all_the_same():
    side = SideThread()
    fault = await result_of(side, lambda: [][1])
    assert isinstance(fault, IndexError)
    assert await result_of(side, lambda: 5) == 5
    side.close()
    assert side.join(PATIENCE_S)


@pytest.mark.asyncio
async def test_pieces_are_done_in_order():
    side, order = SideThread(), list[int]()
    loop = asyncio.get_running_loop()
    last = loop.create_future()
    for number in range(50):
        side.run(lambda n=number: n, order.append)
    side.run(lambda: None, last.set_result)
    async with asyncio.timeout(PATIENCE_S):
        await last
    assert order == list(range(50))
    side.close()
    assert side.join(PATIENCE_S)


@pytest.mark.asyncio
async def test_after_the_close_nothing_waits_and_nothing_is_done():
    side, gate, done = SideThread(), threading.Event(), list[object]()
    began = threading.Event()

    def held():
        began.set()
        gate.wait(PATIENCE_S)

    side.run(held, done.append)
    side.run(lambda: "waits", done.append)
    assert await asyncio.to_thread(began.wait, PATIENCE_S)
    side.close()
    side.close()
    side.run(lambda: "late", done.append)
    gate.set()
    assert await asyncio.to_thread(side.join, PATIENCE_S)
    await asyncio.sleep(0)
    assert "waits" not in done
    assert "late" not in done


@pytest.mark.asyncio
async def test_without_work_there_is_no_thread():
    side, before = SideThread(), threading.active_count()
    side.close()
    assert threading.active_count() == before
    assert side.join(0)


def test_a_thread_at_work_does_not_keep_the_process_alive():
    side = SideThread("of its own name")

    async def begin():
        await result_of(side, lambda: None)

    asyncio.run(begin())
    (thread,) = [one for one in threading.enumerate() if one.name == "of its own name"]
    assert thread.daemon
    side.close()
    assert side.join(PATIENCE_S)
