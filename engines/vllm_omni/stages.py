"""vllm-omni's stages as this process reaches them: a word to each scheduler, and whether their processes live.

Their clients belong to the loop of vllm-omni's orchestrator, which runs in a thread of its own; calls are carried there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from engines.vllm.foreign import Engine


class Stages:
    """Of one AsyncOmni."""

    def __init__(self, omni: Engine) -> None:
        self._omni = omni

    async def call(self, stage: int, method: str, *arguments: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """A method of the stage's core, between two of its steps. Raises what vllm raises when it is gone."""
        client = self._omni.engine.stage_pools[stage].stage_client
        task = client.resources.output_queue_task
        call = client.call_utility_async(method, *arguments)
        future = asyncio.run_coroutine_threadsafe(call, task.get_loop())
        answer: Mapping[str, Any] = await asyncio.wrap_future(future)
        return answer

    @property
    def alive(self) -> bool:
        """All of them can be spoken with."""
        if self._omni.errored:
            return False
        pools = self._omni.engine.stage_pools
        return all(
            pool.live_replica_ids() and not pool.stage_client.resources.engine_dead
            for pool in pools
        )
