"""More sessions than slots: a conversation in which nothing is said gives up its slot and goes on where it was."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engines.graph import PROCESS, DuplexSpec, RestSpec
from engines.model_store.store import ModelStore
from engines.sim.duplex import answer_name
from engines.sim.wave import verify
from session_server.duplex.core.slots import SeatState
from session_server.duplex.duplex_host import DuplexHost
from session_server.duplex.engine_keeper import watch_duplex
from session_server.duplex.engines import DuplexProcess
from session_server.host.messages import (
    CloseSession,
    DuplexFrame,
    DuplexLost,
    HearUser,
    OpenSession,
    SessionOpened,
    SessionRefused,
    TakeSeat,
    ToSession,
)
from session_server.host.stages import engine_keeper
from session_server.observability.metrics import Metrics
from session_server.process.clock import MonotonicClock
from session_server.scheduler.params import SchedulerParams
from tests.integration.duplex.conftest import OpenDuplex, calling, loud, quiet
from tests.until import until

pytestmark = pytest.mark.integration

SIZE = 480
REST = RestSpec(after_s=0.1, wait_limit_s=0.2)
SPEC = DuplexSpec(
    "sim.duplex",
    options={"frame_samples": SIZE, "slots": 1, "answer_frames": 6},
    rest=REST,
)


class House:
    """A host, and what it says to whom."""

    def __init__(self, spec: DuplexSpec) -> None:
        self.seen: list[ToSession] = []
        self.metrics = Metrics(strict=True)
        params = SchedulerParams(max_sessions=8)
        self.host = DuplexHost(
            spec, ModelStore(Path()), params, MonotonicClock(), self.seen.append, self.metrics
        )
        watch_duplex(self.host, self.metrics)

    def open(self, *names: str) -> None:
        for name in names:
            self.host.post(OpenSession(name))
            assert SessionOpened(name) in self.seen, self.seen
            self.host.post(TakeSeat(name, name, ""))

    def say(self, name: str, pcm: bytes) -> None:
        self.host.post(HearUser(name, pcm))

    def frames(self, name: str) -> list[DuplexFrame]:
        return [m for m in self.seen if isinstance(m, DuplexFrame) and m.session == name]

    def lost(self, name: str) -> list[str]:
        return [m.reason for m in self.seen if isinstance(m, DuplexLost) and m.session == name]

    def answers(self, name: str) -> list[bytes]:
        """The frames between TAKE and YIELD, joined, of each answer."""
        found: list[list[bytes]] = []
        speaking = False
        for frame in self.frames(name):
            if "take" in frame.actions:
                speaking = True
                found.append([])
            if speaking:
                found[-1].append(frame.pcm)
            if "yield" in frame.actions:
                speaking = False
        return [b"".join(answer) for answer in found]

    async def ask(self, name: str, number: int) -> None:
        """The user speaks and falls silent; the whole of answer `number` (from 1) comes."""
        self.say(name, loud(6) + quiet(8))
        await until(lambda: len(self.answers(name)) >= number)
        await until(lambda: any("yield" in f.actions for f in self.frames(name)[-3:]))

    def place(self, name: str) -> SeatState:
        return self.host._seating.place(name)

    def figure(self, line: str) -> float:
        page = self.metrics.render().decode()
        return float(next(x for x in page.splitlines() if x.startswith(line)).rsplit(" ", 1)[1])


@asynccontextmanager
async def house(spec: DuplexSpec = SPEC) -> AsyncIterator[House]:
    made = House(spec)
    await made.host.start()
    try:
        yield made
    finally:
        for name in list(made.host._sitters):
            made.host.post(CloseSession(name))
        made.host.check_integrity()
        await made.host.stop()


async def idle(made: House, *, names: Sequence[str]) -> None:
    """Until each of them could be asked for its slot."""
    await asyncio.sleep(REST.after_s)
    assert not made.lost(names[0])


@pytest.mark.asyncio
async def test_three_conversations_in_one_slot_go_on_where_they_were() -> None:
    async with house() as made:
        names = ("a", "b", "c")
        for name in names:
            made.open(name)
            await made.ask(name, 1)
            await idle(made, names=names)
        assert made.host.places() == {SeatState.SEATED: 1, SeatState.RESTING: 2}
        assert made.host.saved_bytes > 0
        for number in (2, 3):
            for name in names:
                await made.ask(name, number)
                await idle(made, names=names)
        for name in names:
            answers = made.answers(name)
            assert len(answers) == 3
            for number, pcm in enumerate(answers, 1):
                assert verify(pcm, answer_name(name, number), SIZE).complete
        assert made.figure("session_server_duplex_slots_given_up_total") == 8
        assert made.figure("session_server_duplex_slot_wait_seconds_count") == 6
        assert made.figure('session_server_duplex_sessions{place="resting"}') == 2
        assert not [m for m in made.seen if isinstance(m, DuplexLost)]


@pytest.mark.asyncio
async def test_silence_does_not_wake_a_session_that_rests_and_is_no_part_of_its_time() -> None:
    async with house() as made:
        made.open("a")
        await made.ask("a", 1)
        await idle(made, names="a")
        made.open("b")
        await until(lambda: len(made.frames("b")) > 2)
        told = len(made.frames("a"))
        for _ in range(20):
            made.say("a", quiet(4))
        assert made.place("a") is SeatState.RESTING
        await until(lambda: len(made.frames("b")) > 10)
        assert len(made.frames("a")) == told


@pytest.mark.asyncio
async def test_who_finds_no_slot_is_told_after_its_limit_and_gets_one_when_it_speaks_later() -> (
    None
):
    async with house(replace(SPEC, options={**SPEC.options, "answer_frames": 200})) as made:
        made.open("a")
        await idle(made, names="a")
        made.open("b")
        made.say("b", loud(6) + quiet(8))
        await until(lambda: any("take" in f.actions for f in made.frames("b")))
        made.host.post(OpenSession("c"))
        refused = made.seen[-1]
        assert isinstance(refused, SessionRefused)
        assert "all are in use" in refused.reason
        made.say("a", loud(2))
        assert made.place("a") is SeatState.WAITING
        await until(lambda: bool(made.lost("a")))
        assert made.lost("a") == [
            "All slots of the model are taken; the conversation rests until you speak again."
        ]
        assert made.place("a") is SeatState.RESTING
        assert made.figure("session_server_duplex_slot_waits_missed_total") == 1
        made.host.post(CloseSession("b"))
        told = len(made.frames("a"))
        made.say("a", loud(6) + quiet(8))
        await until(lambda: any("take" in f.actions for f in made.frames("a")[told:]))


@pytest.mark.parametrize("placement", ["thread", PROCESS])
@pytest.mark.asyncio
async def test_a_conversation_that_rests_does_not_notice_that_the_model_died(
    placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state is here; the one in the slot is lost and told so once."""
    monkeypatch.setattr(engine_keeper, "RETRY_S", (0.01,))
    options = dict(SPEC.options)
    if placement == "thread":
        options["throw_at_tick"] = 60
    async with house(replace(SPEC, placement=placement, options=options)) as made:
        made.open("a")
        await made.ask("a", 1)
        await idle(made, names="a")
        made.open("b")
        await until(lambda: len(made.frames("b")) > 2)
        if placement == PROCESS:
            beat = made.host._keeper.beat
            assert beat is not None
            engine = beat._engine
            assert isinstance(engine, DuplexProcess)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: bool(made.lost("b")))
        assert made.lost("b") == ["The model failed; the conversation with it begins anew."]
        assert not made.lost("a")
        await until(lambda: made.host.stage_states["duplex"] == "busy")
        told = len(made.frames("b"))
        await until(lambda: len(made.frames("b")) > told + 2)
        await idle(made, names="a")
        made.say("a", loud(6) + quiet(8))
        await until(lambda: len(made.answers("a")) == 2)
        await until(lambda: "yield" in made.frames("a")[-1].actions)
        assert verify(made.answers("a")[1], answer_name("a", 2), SIZE).complete


@pytest.mark.asyncio
async def test_six_stock_clients_talk_in_two_slots(open_duplex: OpenDuplex) -> None:
    """Each speaks in its turn and is then muted, as a browser's track is."""
    flags: dict[str, object] = {"graph.rest.after_s": 2.0, "scheduler.max_sessions": 6}
    async with open_duplex(flags, slots=2) as server, AsyncExitStack() as stack:
        callers = []
        for number in range(6):
            caller = await stack.enter_async_context(calling(server))
            callers.append(caller)
            caller.say(4)
            await caller.wait("response.done")
            if number % 2:
                await asyncio.sleep(2.05)
        for caller in callers[:2]:
            caller.say(4)
            await caller.wait("response.done", 2)
        for caller in callers:
            done = caller.of("response.done")
            assert [event.response.status for event in done] == ["completed"] * len(done)
            assert not caller.of("error")
        page = server.metrics.render().decode()
        assert 'session_server_duplex_sessions{place="resting"} 4.0' in page
