"""Questions between processes: answered, late, never; nothing waits for ever and nothing is kept."""

from __future__ import annotations

import asyncio

import pytest

from session_server.host.messages import (
    CloseSession,
    Finished,
    OpenSession,
    SessionOpened,
    SessionRefused,
)
from session_server.http.host_port import HostSilent
from session_server.workers.control import AskReady, Control, Minted, Ready
from session_server.workers.host_rpc import Asks, RemoteHost
from tests.unit.workers.conftest import Sent

pytestmark = pytest.mark.unit


@pytest.mark.asyncio
async def test_each_question_gets_its_own_answer_in_any_order():
    sent = Sent()
    asks = Asks(sent)
    both = [asyncio.ensure_future(asks.ask(AskReady, Ready, 5)) for _ in range(2)]
    await asyncio.sleep(0)
    first, second = (message.ask for message in sent.of(AskReady))
    asks.answered(Ready(second, ("two",)))
    asks.answered(Ready(first, ("one",)))
    assert [answer.reasons for answer in await asyncio.gather(*both)] == [("one",), ("two",)]
    assert len(asks) == 0


@pytest.mark.asyncio
async def test_a_question_without_an_answer_ends_at_its_deadline_and_is_forgotten():
    sent = Sent()
    asks = Asks(sent)
    with pytest.raises(HostSilent, match="no answer"):
        await asks.ask(AskReady, Ready, 0.01)
    assert len(asks) == 0
    asks.answered(Ready(sent.of(AskReady)[0].ask, ()))  # it comes after all: nobody waits


@pytest.mark.asyncio
async def test_a_lost_link_ends_every_question_and_takes_no_further_one():
    asks = Asks(Sent())
    asked = asyncio.ensure_future(asks.ask(AskReady, Ready, 60))
    await asyncio.sleep(0)
    asks.end()
    with pytest.raises(HostSilent, match="gone"):
        await asked
    with pytest.raises(HostSilent, match="gone"):
        await asks.ask(AskReady, Ready, 60)


@pytest.mark.asyncio
async def test_an_answer_of_the_wrong_kind_is_no_answer():
    def answers(message: Control) -> None:
        assert isinstance(message, AskReady)
        asks.answered(Minted(message.ask, "ek_1", 1))

    asks = Asks(answers)
    with pytest.raises(HostSilent, match="Minted"):
        await asks.ask(AskReady, Ready, 60)


@pytest.mark.asyncio
async def test_no_more_than_so_many_questions_wait():
    asks = Asks(Sent())
    waiting = [asyncio.ensure_future(asks.ask(AskReady, Ready, 60)) for _ in range(1024)]
    await asyncio.sleep(0)
    with pytest.raises(HostSilent, match="too many"):
        await asks.ask(AskReady, Ready, 60)
    asks.end()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.asyncio
async def test_each_session_gets_its_own_admission():
    sent = Sent()
    host = RemoteHost(sent)
    both = [asyncio.ensure_future(host.open(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    assert sent.messages == [OpenSession("a"), OpenSession("b")]
    refused = SessionRefused("b", "full", 5, full=True)
    for answer in (refused, SessionOpened("a"), SessionOpened("a")):
        host.deliver(answer)
    assert await asyncio.gather(*both) == [SessionOpened("a"), refused]


@pytest.mark.asyncio
async def test_an_admission_that_comes_after_all_is_dropped():
    host = RemoteHost(Sent())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await host.open("a")
    host.deliver(SessionOpened("a"))


def test_messages_from_the_link_reach_their_session_and_no_other_until_it_is_closed():
    link, one, other = Sent(), Sent(), Sent()
    host = RemoteHost(link)
    host.attach("a", one)
    host.attach("b", other)
    host.deliver(Finished("a", "r", "stop"))
    assert (len(one.messages), len(other.messages)) == (1, 0)
    host.post(CloseSession("a"))
    host.deliver(Finished("a", "r", "stop"))
    assert (len(one.messages), len(other.messages)) == (1, 0)
    assert link.messages == [CloseSession("a")]
