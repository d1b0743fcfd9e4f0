"""vLLM keeps the contract of `engines.streaming`."""

import pytest

pytest.importorskip("vllm", reason="needs the environment of .ci/engines")

from engines.conformance.streaming import CHECKS, Check, StreamingKit
from engines.conformance.streaming_lifecycle import LIFE_CHECKS, LifeCheck, storm
from engines.vllm.thinker import VllmThinker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_contract(check: Check, tools: StreamingKit, engine: VllmThinker) -> None:
    await check(tools, engine)


async def test_much_at_once_in_random_order(tools: StreamingKit, engine: VllmThinker) -> None:
    await storm(tools, engine, 1)


@pytest.mark.parametrize("check", LIFE_CHECKS, ids=lambda check: check.__name__)
async def test_the_life_of_an_engine(check: LifeCheck, tools: StreamingKit) -> None:
    await check(tools)
