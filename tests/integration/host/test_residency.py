"""More sessions than slots, on a real (tiny, random) thinker: its state is moved out and back, and nobody can tell."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from engines.base import Stage
from engines.cpu.thinker import ThinkerEngine
from engines.model_store.recipes import SMOLLM_GRAPH, SMOLLM_TOKENIZER
from engines.model_store.store import ModelStore
from session_server.core.actions import StartGeneration, WarmPrefix
from session_server.core.settings import Modality
from session_server.host.messages import CloseSession, Failed, FromSession, OpenSession
from session_server.scheduler.params import KvEviction, SchedulerParams
from session_server.types.prompt import PromptMessage
from session_server.types.tools import ToolChoice
from tests.unit.engines.cpu.conftest import tiny_shape, write_graph, write_tokenizer

pytestmark = pytest.mark.integration

SESSIONS = [f"s{i}" for i in range(6)]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> ModelStore:
    folder = tmp_path_factory.mktemp("tiny-thinker")
    write_graph(folder / SMOLLM_GRAPH, tiny_shape(write_tokenizer(folder / SMOLLM_TOKENIZER)))
    return ModelStore(folder)


class Talks:
    """Conversations whose every turn repeats all that was said before."""

    def __init__(self, bench, sessions=SESSIONS) -> None:
        self.bench = bench
        self.sessions = sessions
        self.history: dict[str, list[PromptMessage]] = {name: [] for name in sessions}
        bench.post(*(OpenSession(name) for name in sessions))

    def ask(self, session: str, turn: int, epoch: int | None = 1) -> str:
        response = f"{session}-{turn}"
        self.history[session].append(PromptMessage("user", f"{session} asks {turn} " * 3))
        self.bench.post(
            FromSession(session, StartGeneration(response, "default", epoch, f"You are {session}.", tuple(self.history[session]), (), ToolChoice(), Modality.TEXT, "heart", 1.0, 12, 0))
        )  # fmt: skip
        return response

    async def turn(self, number: int) -> None:
        asked = {name: self.ask(name, number) for name in self.sessions}
        await self.bench.ended(*asked.values())
        for name, response in asked.items():
            assert not isinstance(self.bench.end(response), Failed), self.bench.end(response)
            self.history[name].append(PromptMessage("assistant", self.bench.text(response)))

    def warm(self, session: str) -> None:
        self.bench.post(
            FromSession(session, WarmPrefix(f"warm-{session}-{len(self.history[session])}", f"You are {session}.", tuple(self.history[session]), (), ToolChoice()))
        )  # fmt: skip


def kept(folder: Path) -> list[Path]:
    return list(folder.rglob("*.kv"))


async def converse(
    open_bench, replace_engine, store, slots, params, warm=False, sessions=SESSIONS, turns=3
):
    engine = ThinkerEngine(store, slots=slots, context=512, prefix_bytes=0)
    bench = await open_bench(make=replace_engine(Stage.THINKER, lambda: engine), params=params)
    talks = Talks(bench, sessions)
    for number in range(turns):
        if warm and number:
            for name in SESSIONS:
                talks.warm(name)
            await bench.settle()
        await talks.turn(number)
    said = {name: [m.content for m in lines] for name, lines in talks.history.items()}
    cached = [m.cached_tokens for m in bench.got if hasattr(m, "cached_tokens")]
    return bench, engine, said, cached


@pytest.mark.asyncio
@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("order", [KvEviction.NEXT_USE, KvEviction.LRU])
async def test_answers_are_the_same_with_two_slots_as_with_eight(
    open_bench, replace_engine, store, tmp_path: Path, where, order
):
    off = SchedulerParams(kv_eviction=KvEviction.OFF)
    roomy, _, expected, cached = await converse(open_bench, replace_engine, store, 8, off)
    folder = str(tmp_path) if where == "file" else None
    params = SchedulerParams(kv_eviction=order, kv_folder=folder)
    tight, engine, said, again = await converse(open_bench, replace_engine, store, 2, params)
    assert all(len(lines) == 6 for lines in said.values())
    assert said == expected
    assert sorted(again) == sorted(cached), "a prompt was read again that had been moved out"
    residency = tight.host.residency
    assert residency.machine is not None
    residency.machine.check()
    assert tight.metrics.kv["evicted"] >= 2 * (len(SESSIONS) - 2)
    assert (residency.held_bytes > 0) == (where == "memory")
    assert (len(kept(tmp_path)) > 0) == (where == "file")
    await tight.close(*SESSIONS)
    assert residency.held_bytes == 0
    assert not kept(tmp_path)
    assert not any(slot.tokens for slot in engine.table.slots), "a closed session's state is kept"
    await roomy.close(*SESSIONS)


@pytest.mark.models
@pytest.mark.asyncio
async def test_the_real_thinker_says_the_same_with_two_slots_as_with_four(
    open_bench, replace_engine
):
    root = os.environ.get("SESSION_SERVER_MODELS")
    if not root or (models := ModelStore(Path(root))).missing():
        pytest.skip("SESSION_SERVER_MODELS does not name a folder with all models")
    said = []
    for slots, order in ((4, KvEviction.OFF), (2, KvEviction.NEXT_USE)):
        params = SchedulerParams(kv_eviction=order)
        bench, _, lines, _ = await converse(
            open_bench, replace_engine, models, slots, params, sessions=SESSIONS[:3], turns=2
        )
        said.append(lines)
        await bench.close(*SESSIONS[:3])
    assert bench.metrics.kv["evicted"] > 0
    assert all(len(line) > 3 for lines in said[0].values() for line in lines)
    assert said[0] == said[1]


@pytest.mark.asyncio
async def test_speech_brings_the_state_back_before_the_answer(open_bench, replace_engine, store):
    params = SchedulerParams(kv_protected_share=1.0)
    bench, *_ = await converse(open_bench, replace_engine, store, 4, params, warm=True)
    counts = bench.metrics.kv
    assert counts["hit"] > 0
    assert counts["reloaded"] > 0
    await bench.close(*SESSIONS)


@pytest.mark.asyncio
async def test_host_memory_is_bounded_and_answers_still_come(open_bench, replace_engine, store):
    params = SchedulerParams(kv_host_mb=0.2)
    bench, _, said, _ = await converse(open_bench, replace_engine, store, 2, params)
    assert all(len(lines) == 6 for lines in said.values())
    assert bench.metrics.kv["host_full"] > 0
    assert bench.host.residency.held_bytes <= 0.2 * (1 << 20)
    await bench.close(*SESSIONS)


@pytest.mark.asyncio
async def test_a_turn_takes_the_slot_of_a_draft(open_bench, replace_engine, store):
    engine = ThinkerEngine(store, slots=2, context=512)
    bench = await open_bench(make=replace_engine(Stage.THINKER, lambda: engine))
    talks = Talks(bench)
    drafts = [talks.ask(name, 0, epoch=None) for name in SESSIONS[:2]]
    turns = [talks.ask(name, 0) for name in SESSIONS[2:4]]
    await bench.ended(*turns)
    assert not any(isinstance(bench.end(turn), Failed) for turn in turns)
    ends = [bench.end(draft) for draft in drafts]
    assert bench.metrics.kv["gave_way"] == sum(isinstance(end, Failed) for end in ends) > 0
    await bench.close(*SESSIONS)


@pytest.mark.asyncio
async def test_sessions_that_close_in_mid_move_leave_nothing(open_bench, replace_engine, store):
    bench, engine, _, _ = await converse(open_bench, replace_engine, store, 2, SchedulerParams())
    talks = Talks(bench)
    for name in SESSIONS:
        talks.ask(name, 9)
    for name in SESSIONS:
        bench.post(CloseSession(name))
        await asyncio.sleep(0)
    await bench.close()
    machine = bench.host.residency.machine
    assert machine is not None
    machine.check()
    assert machine.blocks()["free"] == 2
    assert bench.host.residency.held_bytes == 0
    assert not any(slot.tokens for slot in engine.table.slots)
