"""The Omni stages in processes of their own: the same contract, tensors in shared memory, and a whole spoken turn about a picture through
all of them."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import Pipe

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from engines.base import Stage
from engines.conformance import stepped
from engines.graph import Placement, StageSpec
from engines.model_store.store import ModelStore
from session_server.config import load
from session_server.process.shared_memory import Arena, BulkChannel
from tests.integration.engines_omni.kinds import QWEN3, Kind
from tests.integration.engines_omni.looking import painted, picture_item
from tests.integration.engines_omni.test_conformance import GREEDY, SLOTS, STAGES as SPOKEN, kits
from tests.integration.engines_omni.test_through_the_server import (
    DETECTION,
    ENDED,
    frames,
    serving,
    turn,
)
from tests.integration.server.caller import calling
from tests.placed import PlacedEngine
from tests.until import until

__all__ = ["kits"]  # a fixture
STAGES = (*SPOKEN, Stage.VISION)
pytestmark = [pytest.mark.integration, pytest.mark.timeout(1000)]

PICTURE_TOKENS = 30
"""Of a picture of 200x150 pixels: six columns of 32, five rows."""
HANG_S = 400
"""No bar: to load transformers takes seconds, and minutes on a busy machine."""
IN_PROCESSES = {f"graph.stages.{stage.value}.placement": "process" for stage in STAGES}


@pytest.fixture(scope="module")
def kind() -> Kind:
    """One of them: what crosses is of the same kind in both, and each process takes seconds to load transformers."""
    return QWEN3


@pytest.fixture(scope="module")
def placed(kind: Kind, options, tmp_path_factory) -> Iterator[dict[Stage, PlacedEngine]]:
    own = {
        Stage.THINKER: {**GREEDY, "context": 512, "max_tokens": 6},
        Stage.TALKER: {**GREEDY, "context": 256, "max_frames": 10},
        Stage.VOCODER: {"slots": SLOTS, "left_frames": 0},
        Stage.VISION: {"slots": SLOTS, "max_batch": 2},
    }
    graph = load(kind.config).config.graph
    store = ModelStore(tmp_path_factory.mktemp("store"))
    engines = {}
    for stage in STAGES:
        named = graph.stage(stage)
        assert named is not None
        spec = StageSpec(stage, named.engine, 8, Placement.PROCESS, options=options | own[stage])
        engines[stage] = PlacedEngine(spec, store)
        engines[stage].load()
    yield engines
    for engine in engines.values():
        engine.end()


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.value)
@pytest.mark.parametrize("check", stepped.CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract_in_a_process(kits, placed, stage: Stage, check: Callable[..., None]):
    check(replace(kits[stage], held=None), placed[stage])


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.value)
def test_a_storm_leaves_nothing_behind_in_a_process(kits, placed, stage: Stage):
    stepped.storm(replace(kits[stage], held=None), placed[stage], 1)
    fed_with_tensors = stage in (Stage.TALKER, Stage.VOCODER)
    assert (placed[stage].worker.process.channel.in_arena > 0) == fed_with_tensors


@pytest.fixture
def ends() -> Iterator[tuple[BulkChannel, BulkChannel]]:
    here, there = Pipe()
    out, into = Arena.new(1 << 20), Arena.new(1 << 20)
    one = BulkChannel(here, out, into)
    other = BulkChannel(there, Arena(os.dup(into.descriptor)), Arena(os.dup(out.descriptor)))
    yield one, other
    one.close()
    other.close()


TENSORS = {
    "float32": torch.arange(600.0).reshape(20, 30),
    "bfloat16": torch.arange(7.0).to(torch.bfloat16),
    "int64": torch.arange(9),
    "bool": torch.tensor([True, False]),
    "single": torch.tensor(3.5),
    "empty": torch.zeros(0, 16, dtype=torch.long),
    "a view": torch.arange(24).reshape(4, 6).t()[1:3],
    "with a gradient": torch.ones(3, requires_grad=True),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_cross_beside_the_message_as_they_were(ends, name: str):
    one, other = ends
    sent = TENSORS[name]
    one.send({"tensor": sent, "array": np.ones(3)})
    came = other.receive()["tensor"]
    assert (came.dtype, came.shape) == (sent.dtype, sent.shape)
    assert torch.equal(came, sent)
    assert one.in_arena >= sent.numel() * sent.element_size() + 24
    came += came.clone()  # it is the receiver's own


@pytest.mark.asyncio
async def test_a_spoken_turn_about_a_picture_through_processes_one_of_which_is_killed(
    kind, options
):
    async with (
        serving(kind, options, **IN_PROCESSES) as server,
        calling(server.address.ws) as caller,
    ):
        await caller.detect(DETECTION)
        await caller.send(picture_item(painted(1)))
        first = await caller.ended(await turn(caller, 0.7, 1))
        assert first["status"] == ENDED
        assert len(caller.pcm(first["id"])) == 2 * kind.samples(frames(kind))
        workers = {stage: server.host.stages.runners[stage]._worker for stage in STAGES}
        assert first["usage"]["input_tokens"] > 20 + PICTURE_TOKENS
        assert (
            workers[Stage.THINKER].process.channel.in_arena > 0
        )  # the picture, as it was embedded
        assert workers[Stage.TALKER].process.channel.in_arena > 0
        assert workers[Stage.VOCODER].process.channel.in_arena > 0

        name = await turn(caller, 0.5, 2)
        os.kill(workers[Stage.THINKER].pid, signal.SIGKILL)
        failed = await caller.ended(name)
        assert failed["status"] == "failed"
        message = failed["status_details"]["error"]["message"]
        assert message == "the thinker engine failed: its process was killed by signal 9"

        await until(lambda: server.host.ready, HANG_S, every_s=0.1)
        last = await caller.ended(await turn(caller, 0.6, 3))
        assert last["status"] == ENDED
        assert len(caller.pcm(last["id"])) == 2 * kind.samples(frames(kind))
