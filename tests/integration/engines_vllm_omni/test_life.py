"""Ends and new beginnings of vllm-omni. Each takes several starts of its processes, so `.ci/engines_vllm_omni` leaves them out."""

import psutil
import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

from engines.conformance.streaming import StreamingKit
from engines.conformance.streaming_lifecycle import LIFE_CHECKS, LifeCheck
from engines.model_store.store import ModelStore
from engines.streaming import StreamingEngine
from engines.vllm_omni.thinker import create
from tests.integration.engines_vllm_omni.conftest import asked

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),
]


def kill(engine: StreamingEngine) -> None:
    """End the thinker's process, as the system would when memory runs out."""
    for child in psutil.Process().children():
        if "StageEngineCoreProc_stage0" in " ".join(child.cmdline()):
            child.kill()


@pytest.mark.parametrize("check", LIFE_CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_contract(options: dict[str, object], check: LifeCheck):
    kit = StreamingKit(
        lambda: create(options, ModelStore()),
        lambda n: asked(n, spoken=False),
        repeats=False,
        kill=kill,
        wait_s=120.0,
    )
    await check(kit)
