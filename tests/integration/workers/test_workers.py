"""Two workers in front of one engine host: what is exact over both, and what happens when one is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import aiohttp
import pytest
from websockets.exceptions import InvalidStatus

from session_server.http.worker_identity import slot_of
from session_server.workers import worker_process
from session_server.workers.worker_process import Child
from tests.integration.server.bystander import assert_answers
from tests.integration.server.caller import Caller
from tests.integration.transports.webrtc.rtc_caller import calling as calling_by_webrtc
from tests.integration.workers.conftest import LIMIT, TwoWorkers
from tests.until import until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


async def test_connects_at_once_at_both_workers_let_in_exactly_the_limit(workers: TwoWorkers):
    inside: list[Caller] = []
    refused: list[tuple[int, str, str, str]] = []
    async with AsyncExitStack() as stack:

        async def attempt(slot: int) -> None:
            try:
                inside.append(await stack.enter_async_context(workers.calling(slot, strict=False)))
            except InvalidStatus as error:
                body = json.loads(error.response.body or b"{}")["error"]
                again = error.response.headers["Retry-After"]
                status = error.response.status_code
                refused.append((status, again, body["param"], body["message"]))

        before = await workers.metrics(0)
        await asyncio.gather(*(attempt(number % 2) for number in range(30)))
        assert len(inside) == LIMIT
        assert len(refused) == 30 - LIMIT
        assert set(refused) == {
            (
                503,
                "7",
                "full",
                f"No session can be opened now: the server holds its limit of {LIMIT} sessions.",
            )
        }
        pages = [await workers.metrics(slot) for slot in (0, 1)]
        for page in pages:
            assert page["sessions_active"] == LIMIT
            for name, more in (
                ("sessions_rejected_totalfull", 30 - LIMIT),
                ("admission_decisions_totaladmitsession", LIMIT),
                ("admission_decisions_totalrefusesessions", 30 - LIMIT),
            ):
                assert page[name] - before.get(name, 0) == more, name
        await asyncio.gather(*(assert_answers(c, f"number {k}") for k, c in enumerate(inside)))
        await inside[0].socket.close()
        await until(lambda: len(workers.server.desk) == LIMIT - 1)
        async with workers.calling(1) as late:
            await assert_answers(late, "There is room again")


async def test_an_ephemeral_key_of_one_worker_opens_its_session_at_the_other(workers: TwoWorkers):
    session = {"type": "realtime", "instructions": "Speak French."}
    _, _, minted = await workers.post(0, "/v1/realtime/client_secrets", {"session": session})
    for slot in (1, 0, 1):
        async with workers.calling(slot, key=minted["value"]) as caller:
            assert caller.events[0]["session"]["instructions"] == "Speak French."
    with pytest.raises(InvalidStatus) as caught:
        async with workers.calling(1, key=minted["value"][:-1]):
            pass
    assert caught.value.response.status_code == 401


async def test_a_session_with_integers_beyond_64_bits_is_minted_and_found(workers: TwoWorkers):
    huge = 10**26
    limit = {"type": "object", "properties": {"x": {"type": "integer", "maximum": huge}}}
    tool = {"type": "function", "name": "t", "description": "d", "parameters": limit}
    session = {"type": "realtime", "tools": [tool]}
    status, _, minted = await workers.post(0, "/v1/realtime/client_secrets", {"session": session})
    assert status == 200
    async with workers.calling(1, key=minted["value"]) as caller:
        (shown,) = caller.events[0]["session"]["tools"]
        assert shown["parameters"]["properties"]["x"]["maximum"] == huge
        await assert_answers(caller, "hello")


async def test_both_workers_say_the_same_of_themselves(workers: TwoWorkers):
    for path in ("/readyz", "/v1/models", "/healthz"):
        first, second = [await workers.get(slot, path) for slot in (0, 1)]
        assert first == second
        assert first[0] == 200


async def test_hanging_up_and_joining_at_the_wrong_worker_reach_the_call(workers: TwoWorkers):
    async with calling_by_webrtc(workers.server, key="sk-test") as caller:  # type: ignore[arg-type]
        slot = slot_of(caller.call_id)
        assert slot in (0, 1)
        wrong = 1 - slot
        async with workers.calling(wrong, query=f"?call_id={caller.call_id}") as beside:
            assert beside.session_id == caller.events[0]["session"]["id"]
            shown = await beside.update({"instructions": "changed from beside"})
            assert (await caller.wait("session.updated"))["session"] == shown
            await beside.ended(await beside.ask("anything"))
            for connection in (caller, beside):
                await connection.wait("output_audio_buffer.stopped")
            assert caller.types(1) == beside.types(1)
            status, _, _ = await workers.post(wrong, f"/v1/realtime/calls/{caller.call_id}/hangup")
            assert status == 200
            assert (await beside.closed())[0] == 1000
        await caller.closed()
        await assert_no_such_call(workers, caller.call_id)


async def assert_no_such_call(workers: TwoWorkers, call_id: str) -> None:
    for slot in (0, 1):
        status, headers, body = await workers.post(slot, f"/v1/realtime/calls/{call_id}/hangup")
        assert (status, body["error"]["code"]) == (404, "call_not_found")
        assert headers["Access-Control-Allow-Origin"] == "*"
        with pytest.raises(InvalidStatus) as caught:
            async with workers.calling(slot, query=f"?call_id={call_id}"):
                pass
        assert caught.value.response.status_code == 404
        assert json.loads(caught.value.response.body or b"")["error"]["code"] == "call_not_found"


@pytest.mark.parametrize("call_id", ["rtc_x", "rtc_w0_x", "rtc_w1_x", "rtc_w7_x", "rtc_w0_..%2Fx"])
async def test_a_call_that_is_nowhere_is_404_at_both(workers: TwoWorkers, call_id: str):
    await assert_no_such_call(workers, call_id)


async def test_a_key_is_asked_for_before_anything_is_passed_on(workers: TwoWorkers):
    wrong = {"Authorization": "Bearer sk-wrong"}
    async with (
        workers.http(0) as http,
        http.post("/v1/realtime/calls/rtc_w1_x/hangup", headers=wrong) as answer,
    ):
        assert answer.status == 401


async def test_a_killed_worker_takes_its_sessions_with_it_and_no_others(workers: TwoWorkers):
    before = await workers.metrics(1)
    async with workers.calling(1) as kept, workers.calling(0) as lost:
        answer = await kept.begin_long_answer(0.1)
        await lost.begin_long_answer(0.1)
        await workers.metrics(1)  # so that the host knows what the lost one counted
        old = workers.server.children[0]
        os.kill(old.pid, signal.SIGKILL)
        assert (await lost.closed())[0] == 1006
        await until(lambda: len(workers.server.desk) == 1)
        await kept.hear(answer, 0.5)
        async with await again(workers, 0, old) as late:
            await assert_answers(late, "back again")
        await kept.send({"type": "response.cancel"})
        await kept.ended(answer)
        await assert_answers(kept, "still here")
        after = await workers.metrics(0)
        assert after["worker_ends_total"] == before["worker_ends_total"] + 1
        fallen = [
            name
            for name, value in before.items()
            if name.endswith(("_total", "_count", "_sum")) and after.get(name, 0) < value
        ]
        assert fallen == []


async def again(workers: TwoWorkers, slot: int, old: Child) -> AbstractAsyncContextManager[Caller]:
    """A connection to the worker that has taken the place of an old one."""
    children = workers.server.children
    await until(lambda: children.get(slot) not in (None, old) and children[slot].is_open)
    return workers.calling(slot)


async def test_a_worker_told_to_end_drains_alone_and_the_other_gets_what_comes(workers: TwoWorkers):
    async with workers.calling(0) as kept, workers.calling(1) as ending:
        await ending.begin_long_answer(0.1)
        old = workers.server.children[1]
        os.kill(old.pid, signal.SIGTERM)
        async with workers.http(1) as http:

            async def is_draining() -> bool:
                return (await http.get("/readyz")).status != 200

            await until(is_draining)
        address = workers.server.address
        assert address is not None
        for _ in range(12):  # each on a connection of its own
            async with aiohttp.ClientSession() as http, http.get(f"{address.http}/readyz") as ready:
                assert ready.status == 200
        await ending.send({"type": "response.cancel"})
        assert (await ending.closed())[0] == 1001
        async with await again(workers, 1, old) as late:
            await assert_answers(late, "hello")
        await assert_answers(kept, "still here")


async def test_a_worker_that_stands_still_is_killed_and_another_takes_its_place(
    workers: TwoWorkers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker_process, "_ASK_S", 0.2)
    async with workers.calling(0) as kept, workers.calling(1) as lost:
        stuck = workers.server.children[1]
        os.kill(stuck.pid, signal.SIGSTOP)
        await stuck.watch()
        assert (await lost.closed())[0] == 1006
        async with await again(workers, 1, stuck) as late:
            await assert_answers(late, "hello")
        await assert_answers(kept, "still here")
