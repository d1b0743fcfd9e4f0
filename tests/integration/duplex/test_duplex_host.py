"""What the host of a duplex model does when there is no model, or none any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from engines import registry
from engines.graph import DuplexSpec
from engines.model_store.store import ModelStore
from engines.sim.duplex import DuplexOptions, SimDuplex
from session_server.core.actions import CancelGeneration
from session_server.duplex.core.slots import SeatState
from session_server.duplex.duplex_host import DuplexHost
from session_server.duplex.engines import try_duplex
from session_server.host.messages import (
    ClearHeard,
    CloseSession,
    DuplexFrame,
    DuplexLost,
    FromSession,
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
from session_server.types.errors import ConfigError, EngineFault, ModelsMissing
from tests.until import until

pytestmark = pytest.mark.integration

STORE = ModelStore(Path())


class Brittle(SimDuplex):
    """Fails to load as often as `failures` says, and does not load before `may_load`."""

    failures: list[Exception] = []  # noqa: RUF012 - emptied by the loads of a test
    may_load = threading.Event()

    def load(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.may_load.wait(10.0)
        super().load()


def brittle(options: Mapping[str, object], store: ModelStore) -> Brittle:
    return Brittle(
        DuplexOptions(frame_samples=480, slots=2, throw_at_tick=int(str(options.get("throw", 0))))
    )


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> DuplexSpec:
    monkeypatch.setattr(registry, "DUPLEX", {"brittle": f"{__name__}:brittle", **registry.DUPLEX})
    monkeypatch.setattr(engine_keeper, "RETRY_S", (0.01,))
    Brittle.failures = []
    Brittle.may_load.set()
    return DuplexSpec("brittle")


def host(spec: DuplexSpec, seen: list[ToSession], max_sessions: int = 9) -> DuplexHost:
    params = SchedulerParams(max_sessions=max_sessions)
    return DuplexHost(spec, STORE, params, MonotonicClock(), seen.append, Metrics(strict=True))


@pytest.mark.parametrize(
    ("thrown", "told"),
    [
        (ModelsMissing("no weights"), "no weights"),
        (RuntimeError("out of\nmemory"), "brittle: RuntimeError: out of memory"),
    ],
)
@pytest.mark.asyncio
async def test_a_model_that_cannot_be_loaded_is_one_line(
    spec: DuplexSpec, thrown: Exception, told: str
) -> None:
    Brittle.failures = [thrown]
    made = host(spec, [])
    with pytest.raises((ModelsMissing, EngineFault), match=told):
        await made.start()
    assert made.stage_states == {"duplex": "down"}
    await made.stop()


@pytest.mark.asyncio
async def test_a_first_load_that_hangs_ends_the_start_at_its_limit(spec: DuplexSpec) -> None:
    Brittle.may_load.clear()
    made = host(DuplexSpec("brittle", load_limit_s=0.1), [])
    with pytest.raises(EngineFault, match=r"brittle: TimeoutError: loading took over 0\.1 s"):
        async with asyncio.timeout(5.0):
            await made.start()
    Brittle.may_load.set()
    assert made.stage_states == {"duplex": "down"}
    await made.stop()


@pytest.mark.asyncio
async def test_a_model_that_dies_again_and_again_is_begun_after_ever_longer_pauses(
    spec: DuplexSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_keeper, "RETRY_S", (0.01, 0.01, 3600.0))
    seen: list[ToSession] = []
    made = host(DuplexSpec("brittle", options={"throw": 2}), seen)
    await made.start()
    made.post(OpenSession("a"))
    made.post(TakeSeat("a", "", ""))
    lost = DuplexLost("a", "The model failed; the conversation with it begins anew.")
    await until(lambda: seen.count(lost) == 3)
    await asyncio.sleep(0.3)
    assert made.stage_states == {"duplex": "down"}
    assert seen.count(lost) == 3
    await made.stop()


@pytest.mark.asyncio
async def test_a_model_that_does_not_come_back_at_once_is_tried_again(spec: DuplexSpec) -> None:
    seen: list[ToSession] = []
    made = host(DuplexSpec("brittle", options={"throw": 3}), seen)
    await made.start()
    made.post(OpenSession("a"))
    made.post(OpenSession("a"))
    made.post(TakeSeat("a", "", ""))
    made.post(TakeSeat("a", "", ""))
    made.post(OpenSession("b"))  # admitted, not there yet: it has nothing to lose
    Brittle.failures = [RuntimeError("not yet"), RuntimeError("not yet")]
    await until(
        lambda: DuplexLost("a", "The model failed; the conversation with it begins anew.") in seen
    )
    lost = len(seen)
    made.post(OpenSession("c"))
    assert seen[-1] == SessionRefused("c", "the duplex model is down")
    await until(lambda: any(isinstance(m, DuplexFrame) for m in seen[lost:]))
    assert sum(isinstance(m, DuplexLost) for m in seen) >= 1
    assert not any(isinstance(m, DuplexLost) and m.session == "b" for m in seen)
    assert not Brittle.failures
    for name in ("a", "b", "b"):
        made.post(CloseSession(name))
    made.check_integrity()
    await made.stop()
    await made.stop()


@pytest.mark.asyncio
async def test_sessions_are_admitted_by_slots_and_messages_of_strangers_do_nothing(
    spec: DuplexSpec,
) -> None:
    seen: list[ToSession] = []
    made = host(spec, seen)
    await made.start()
    for name in ("a", "b", "c"):
        made.post(OpenSession(name))
    assert seen[:2] == [SessionOpened("a"), SessionOpened("b")]
    assert seen[2] == SessionRefused("c", "all 2 slots of the duplex model are taken")
    assert made.slots == (2, 2)
    assert made.places() == {SeatState.SEATED: 2}
    with pytest.raises(AssertionError, match="a, b"):
        made.check_integrity()
    for message in (HearUser("x", b""), ClearHeard("x"), CloseSession("x"), TakeSeat("x", "", "")):
        made.post(message)
    made.post(FromSession("a", CancelGeneration("resp")))
    made.post(HearUser("a", b"\0\0"))  # before it has taken its seat
    made.post(TakeSeat("a", "", ""))
    await until(lambda: any(isinstance(m, DuplexFrame) for m in seen))
    made.post(CloseSession("a"))
    made.post(CloseSession("b"))
    seen.clear()
    await asyncio.sleep(0.1)
    assert not seen  # what was under way is nobody's
    assert made.stage_states == {"duplex": "idle"}
    await made.stop()


def test_the_check_says_what_a_tick_costs_or_what_is_missing(spec: DuplexSpec) -> None:
    good = try_duplex(spec, STORE)
    assert good.ok
    assert good.detail.startswith("brittle: 2 slots; a tick of 20 ms takes ")
    Brittle.failures = [ModelsMissing("no weights"), RuntimeError("broken")]
    assert try_duplex(spec, STORE).detail == "no weights"
    assert try_duplex(spec, STORE).detail == "RuntimeError: broken"
    assert "unknown engine" in try_duplex(DuplexSpec("nothing"), STORE).detail


def test_a_wrong_option_is_named_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"graph\.options\.slot: unknown option;"):
        host(DuplexSpec("sim.duplex", options={"slot": 1}), [])
