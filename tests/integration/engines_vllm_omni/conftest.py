"""One vllm-omni with the tiny model of `engines.vllm_omni.tiny` for all tests that can share it: its start takes longer than they do.

These tests run in an environment of their own (`.ci/engines`); elsewhere they are skipped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from engines.base import ThinkJob
from engines.model_store.store import ModelStore
from engines.vllm_omni import plugin
from session_server.types.prompt import PromptMessage
from tests.until import until

# The tests import vllm-omni before an engine does: it looks for torchvision, and for a platform, then already.
plugin.prepare()
sys.path.append(str(plugin.CHILD_PATH))

ANSWERS, TOKENS, FRAMES = 4, 24, 40
UNIT = 1920
SAMPLES = FRAMES * UNIT - 555
"""Of a whole answer."""


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`$VLLM_OMNI_TINY` names a folder to keep it in."""
    pytest.importorskip("vllm_omni", reason="needs the environment of .ci/engines")
    from engines.vllm_omni.tiny import tiny

    kept = os.environ.get("VLLM_OMNI_TINY")
    return tiny(Path(kept) if kept else tmp_path_factory.mktemp("omni") / "tiny-qwen3-omni")


@pytest.fixture(scope="session", autouse=True)
def _speech_ends_at_its_limit() -> Iterator[None]:
    """Random weights would end an answer's speech anywhere, once in a while."""
    from engines.vllm_omni.thinker import OmniThinker

    usual = OmniThinker._sampling

    def sampling(self: OmniThinker, answer: Any) -> list[Any]:
        made = usual(self, answer)
        made[1].min_tokens = made[1].max_tokens
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmniThinker, "_sampling", sampling)
        yield


@pytest.fixture(scope="session")
def options(weights: Path) -> dict[str, object]:
    return {
        "weights": str(weights), "answers": ANSWERS, "context": 1024, "talker_context": 1024, "max_tokens": TOKENS,
        "max_frames": FRAMES, "temperature": 0.0, "kv_mb": 64,
    }  # fmt: skip


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(options: dict[str, object]) -> AsyncIterator[object]:
    from engines.vllm_omni.thinker import create

    made = create(options, ModelStore())
    await made.load()
    yield made
    await made.close()


def sound(seconds: float, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(int(seconds * 16_000)) * 6000).astype("<i2").tobytes()


def asked(n: int, spoken: bool = True, instructions: str = "Be kind.", **more: object) -> ThinkJob:
    """Prompts that differ in n: heard ones where n is odd."""
    message = (
        PromptMessage("user", "", audio=sound(0.4 + 0.1 * (n % 5), n))
        if n % 2
        else PromptMessage("user", f"Tell me a story, number {n}.")
    )
    return ThinkJob(instructions, (message,), spoken=spoken, voice="ethan", **more)  # type: ignore[arg-type]


async def all_free(engine: object) -> None:
    """Every stage's scheduler is empty."""

    async def empty() -> bool:
        states = await engine.stage_states()  # type: ignore[attr-defined]
        return not any(state["requests"] for state in states)

    await until(empty)
