"""The thinker on vllm-omni keeps the contract of streaming engines; its answers here are written ones.

In bfloat16 a text depends on who is beside it, so that only its being whole is compared.
"""

import pytest

pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")

from engines.conformance.streaming import CHECKS, Check, StreamingKit
from engines.conformance.streaming_lifecycle import storm
from engines.model_store.store import ModelStore
from engines.vllm_omni.thinker import OmniThinker, create
from tests.integration.engines_vllm_omni.conftest import asked

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def kit(options: dict[str, object]) -> StreamingKit:
    return StreamingKit(
        lambda: create(options, ModelStore()),
        lambda n: asked(n, spoken=False),
        repeats=False,
        alone_or_not=False,
        bad_job=asked(0, spoken=False, max_tokens=4, instructions="much " * 4000),
        wait_s=120.0,
        points=5,
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_it_keeps_the_contract(kit: StreamingKit, engine: OmniThinker, check: Check):
    await check(kit, engine)


async def test_a_storm_leaves_nothing(kit: StreamingKit, engine: OmniThinker):
    await storm(kit, engine, seed=1, moves=40)
