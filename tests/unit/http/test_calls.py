"""Calls that never connect: few can stand there, and while others wait they give way."""

from __future__ import annotations

import asyncio

import pytest

from session_server.http.calls import Doorstep, SetupStep
from session_server.session.registry import NotAdmitted, Refusal

pytestmark = pytest.mark.unit


def refusal(reason: Refusal, message: str) -> NotAdmitted:
    return NotAdmitted(reason, message, 5)


def leaves(step: SetupStep) -> None:
    """The call is answered; told to give way, it ends."""
    step.answered(step.leave)


@pytest.mark.asyncio
async def test_when_all_places_are_taken_the_next_one_waits_and_is_refused():
    doorstep = Doorstep(2, refusal, patience_s=60, wait_s=0.01)
    first = await doorstep.enter()
    leaves(await doorstep.enter())
    with pytest.raises(NotAdmitted) as caught:
        await doorstep.enter()
    assert (caught.value.refusal, caught.value.retry_after_s) == (Refusal.CONNECTING, 5)
    first.leave()
    first.leave()
    await doorstep.enter()
    assert len(doorstep) == 2


@pytest.mark.asyncio
async def test_a_call_that_connects_makes_room_for_whoever_waits():
    doorstep = Doorstep(1, refusal, patience_s=60, wait_s=60)
    step = await doorstep.enter()
    waiting = asyncio.ensure_future(doorstep.enter())
    await asyncio.sleep(0)
    assert not waiting.done()
    step.leave()
    await waiting


@pytest.mark.asyncio
async def test_calls_that_never_connect_give_way_once_they_had_their_time():
    doorstep = Doorstep(3, refusal, patience_s=0.02, wait_s=60)
    for _ in range(3):
        leaves(await doorstep.enter())
    for _ in range(6):
        leaves(await doorstep.enter())
    assert len(doorstep) == 3


@pytest.mark.asyncio
async def test_nobody_gives_way_while_nobody_waits():
    doorstep = Doorstep(2, refusal, patience_s=0.0, wait_s=60)
    leaves(await doorstep.enter())
    await asyncio.sleep(0.02)
    leaves(await doorstep.enter())
    await asyncio.sleep(0.02)
    assert len(doorstep) == 2


@pytest.mark.asyncio
async def test_a_call_that_is_not_answered_yet_has_not_begun_its_time():
    doorstep = Doorstep(1, refusal, patience_s=0.0, wait_s=0.05)
    await doorstep.enter()
    with pytest.raises(NotAdmitted):
        await doorstep.enter()


@pytest.mark.asyncio
async def test_whoever_stops_waiting_leaves_nothing_behind():
    doorstep = Doorstep(1, refusal, patience_s=60, wait_s=60)
    step = await doorstep.enter()
    waiting = asyncio.ensure_future(doorstep.enter())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    step.leave()
    await doorstep.enter()
    assert len(doorstep) == 1
