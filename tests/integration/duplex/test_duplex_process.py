"""A duplex engine in a process of its own: the same contract, and what happens when the process ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.conformance.duplex import CHECKS, Check, DuplexKit
from engines.duplex_engine import DuplexConfig, DuplexEngine
from engines.graph import PROCESS, DuplexSpec
from engines.model_store.store import ModelStore
from session_server.duplex.engines import DuplexProcess, engine_maker
from session_server.types.errors import ConfigError, EngineFault, ModelsMissing

pytestmark = pytest.mark.integration

STORE = ModelStore(Path())


def made(slots: int = 2, **options: object) -> DuplexProcess:
    spec = DuplexSpec("sim.duplex", placement=PROCESS, options={"slots": slots, **options})
    engine = engine_maker(spec, STORE)[0]()
    assert isinstance(engine, DuplexProcess)
    return engine


def test_an_engine_in_a_process_keeps_the_contract() -> None:
    """All checks on a few processes: each costs a start."""
    kept: dict[int, DuplexProcess] = {}

    class Kept:
        """The process goes on; `close` empties it."""

        def __init__(self, engine: DuplexProcess) -> None:
            self._engine = engine

        def __getattr__(self, name: str) -> object:
            return getattr(self._engine, name)

        def close(self) -> None:
            for slot in range(self._engine.capabilities.slots):
                self._engine.leave(slot)

    def create(slots: int) -> DuplexEngine:
        if slots not in kept:
            kept[slots] = made(slots)
        return Kept(kept[slots])  # type: ignore[return-value]

    kit = DuplexKit(create, ticks=40)
    try:
        for check in CHECKS:
            check(kit)
    finally:
        for engine in kept.values():
            engine.close()


@pytest.mark.parametrize("check", [CHECKS[-1]], ids=lambda check: check.__name__)
def test_a_process_that_was_closed_begins_anew(check: Check) -> None:
    check(DuplexKit(made, ticks=12))


def _killed(engine: DuplexProcess) -> None:
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine.tick({0: None}),
        lambda engine: engine.save_state(0),
        lambda engine: engine.leave(0),
    ],
)
def test_a_process_that_is_killed_is_one_clear_fault(
    call: Callable[[DuplexEngine], object],
) -> None:
    engine = made()
    engine.load()
    engine.join(0, DuplexConfig())
    engine.tick({0: None})
    _killed(engine)
    with pytest.raises(EngineFault, match="its process was killed by signal 9"):
        call(engine)
    engine.close()
    engine.close()
    assert engine.pid is None
    with pytest.raises(EngineFault, match="its process is not there"):
        call(engine)


def test_a_call_that_hangs_ends_when_the_engine_is_closed() -> None:
    engine = made(hang_at_tick=1)
    engine.load()
    engine.join(0, DuplexConfig())
    ended: list[Exception] = []

    def tick() -> None:
        try:
            engine.tick({0: None})
        except EngineFault as fault:
            ended.append(fault)

    thread = threading.Thread(target=tick)
    thread.start()
    while not engine._calling:
        pass
    engine.close()
    thread.join(20)
    assert not thread.is_alive()
    assert len(ended) == 1


def test_what_the_engine_throws_arrives_as_what_it_is() -> None:
    engine = made(throw_at_tick=1)
    engine.load()
    with pytest.raises(ValueError, match="slot 0 is not joined"):
        engine.tick({0: None})
    engine.join(0, DuplexConfig())
    with pytest.raises(EngineFault, match="tick 1 was told to throw"):
        engine.tick({0: None})
    engine.close()


def test_a_model_that_is_missing_is_named_by_the_process_too() -> None:
    pytest.importorskip("moshi", reason="needs engines/duplex/requirements.txt")
    spec = DuplexSpec("moshi.duplex", placement=PROCESS, options={"device": "cpu"})
    engine = engine_maker(spec, STORE)[0]()
    with pytest.raises(ModelsMissing, match=r"options\.folder"):
        engine.load()
    engine.close()


def test_rest_needs_an_engine_that_can_save(monkeypatch: pytest.MonkeyPatch) -> None:
    from engines.graph import RestSpec
    from engines.sim.duplex import SimDuplex

    before = SimDuplex.__init__

    def cannot(self: SimDuplex, options: object) -> None:
        before(self, options)  # type: ignore[arg-type]
        self.capabilities = type(self.capabilities)(24_000, 480, 1)

    monkeypatch.setattr(SimDuplex, "__init__", cannot)
    with pytest.raises(ConfigError, match=r"graph\.rest: sim\.duplex cannot save"):
        engine_maker(DuplexSpec("sim.duplex", rest=RestSpec()), STORE)
