"""Going down: idle sessions close at once, answers may end, nothing waits longer than it may."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from session_server.http.drain import Drain, DrainPhase
from session_server.session.registry import Connection, NotAdmitted, Refusal, SessionRegistry
from session_server.types.ids import SequentialIds

pytestmark = pytest.mark.unit


class Line:
    """An outbox whose close ends the session, unless it is stuck."""

    def __init__(self, leave: ExitStack, stuck: bool = False) -> None:
        self.leave, self.stuck = leave, stuck
        self.closes: list[tuple[int, str]] = []

    def send(self, frame: bytes) -> None: ...

    def send_audio(self, frame: bytes, response_id: str, end_sample: int) -> None: ...

    def purge(self, response_id: str) -> int:
        return 0

    def close(self, code: int, reason: str) -> None:
        self.closes.append((code, reason))
        if not self.stuck:
            self.leave.close()


class Answering:
    """A session that closes its outbox itself when its answer has ended."""

    def __init__(self, line: Line | None = None) -> None:
        self.draining = False
        self.line = line

    def start_drain(self) -> None:
        self.draining = True

    def shut_down(self) -> None:
        if self.line is not None:
            self.line.close(1001, "said how the answer ended")

    def on_frame(self, frame: str | bytes) -> None: ...

    def on_audio_written(self, response_id: str, end_sample: int) -> None: ...

    def on_closed(self) -> None: ...


def opened(registry: SessionRegistry, stuck: bool = False) -> tuple[Connection, Line]:
    leave = ExitStack()
    connection = leave.enter_context(registry.admit())
    connection.outbox = line = Line(leave, stuck)
    return connection, line


def fresh() -> SessionRegistry:
    registry = SessionRegistry(8, 5, SequentialIds())
    registry.open()
    return registry


@pytest.mark.asyncio
async def test_a_request_shuts_the_door_at_once():
    registry = fresh()
    drain = Drain(registry, 1, 1)
    drain.request()
    with pytest.raises(NotAdmitted) as caught, registry.admit():
        pass
    assert caught.value.refusal is Refusal.DRAINING
    assert drain.phase is DrainPhase.FINISHING
    assert await drain.finish()
    assert drain.phase is DrainPhase.DONE


@pytest.mark.asyncio
async def test_an_idle_session_is_closed_with_1001():
    registry = fresh()
    drain = Drain(registry, 5, 5)
    _, line = opened(registry)
    drain.request()
    assert await drain.finish()
    assert [code for code, _ in line.closes] == [1001]


@pytest.mark.asyncio
async def test_a_running_answer_may_end():
    registry = fresh()
    drain = Drain(registry, 5, 5)
    connection, line = opened(registry)
    connection.endpoint = session = Answering()
    drain.request()
    going = asyncio.ensure_future(drain.finish())
    await asyncio.sleep(0)
    assert session.draining
    assert not line.closes
    line.close(1001, "answer over")
    assert await going
    assert line.closes == [(1001, "answer over")]


@pytest.mark.asyncio
async def test_an_answer_that_takes_too_long_is_closed():
    registry = fresh()
    drain = Drain(registry, 0.01, 5)
    connection, line = opened(registry)
    connection.endpoint = Answering()
    drain.request()
    assert await drain.finish()
    assert [code for code, _ in line.closes] == [1001]


@pytest.mark.asyncio
@pytest.mark.parametrize("forced", [False, True])
async def test_a_session_that_is_cut_off_may_not_say_how_its_answer_ended(forced: bool):
    registry = fresh()
    drain = Drain(registry, 100 if forced else 0.01, 5)
    connection, line = opened(registry)
    connection.endpoint = Answering(line)
    drain.request()
    going = asyncio.ensure_future(drain.finish())
    await asyncio.sleep(0)
    if forced:
        drain.request()
    assert await asyncio.wait_for(going, 5)
    assert line.closes[0] == (1001, "said how the answer ended")


@pytest.mark.asyncio
async def test_a_connection_that_never_closes_does_not_hold_up_the_end():
    registry = fresh()
    drain = Drain(registry, 0.01, 0.01)
    opened(registry, stuck=True)
    drain.request()
    assert not await drain.finish()


@pytest.mark.asyncio
async def test_a_second_request_forces_the_end():
    registry = fresh()
    drain = Drain(registry, 100, 100)
    connection, _ = opened(registry, stuck=True)
    connection.endpoint = Answering()
    drain.request()
    going = asyncio.ensure_future(drain.finish())
    await asyncio.sleep(0)
    drain.request()
    assert not await asyncio.wait_for(going, 5)
    assert drain.forced
