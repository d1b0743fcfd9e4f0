"""vllm-omni's schedulers, steered by this server: how far each answer may go in a stage, and how large its next chunk is.

Runs in each stage's process, which imports this module by name (`pipeline`). Answers that we pace carry
`sampling_params.extra_args["pace"] = [name, granted, frames]`; later words come by `EngineCore.session_pace`, always between
two steps. An answer that has reached its grant is *held*: hidden from the base class for the length of `schedule`, its keys and
values kept; its place is given to others. A stage in which all are held has no work and sleeps.

Private names of vLLM and vllm-omni in use are listed in `engines.vllm_omni.internals`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.engine.core import EngineCore
from vllm_omni.core.sched.omni_ar_scheduler import OmniARAsyncScheduler, OmniARScheduler
from vllm_omni.core.sched.omni_generation_scheduler import OmniGenerationScheduler

from engines.vllm.internals import Request, Whatever
from engines.vllm.pacing import Paced, session_pace
from engines.vllm_omni.chunks import WANTED, Wanted

ArBase: Any = OmniARScheduler if current_platform.is_cpu() else OmniARAsyncScheduler
"""The platform's own choice: async scheduling is off on CPU."""
_IDLE_S = 0.003


class PacedArScheduler(Paced, ArBase):  # type: ignore[misc]
    """Of thinker and talker. The third word of a pace: frames of the next chunk."""

    # -- what vLLM calls

    def schedule(self, *args: Whatever, **kwargs: Whatever) -> Whatever:
        held = [request for request in self.running if self._paced_is_held(request)]
        shelf = [request for request in self.waiting if self._paced_is_held(request)]
        if held:
            self.running = [request for request in self.running if request not in held]
            self.max_num_running_reqs -= len(held)
        for request in shelf:
            self.waiting.remove_request(request)
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.running = self.running + held
            self.max_num_running_reqs += len(held)
            for request in shelf:
                self.waiting.add_request(request)
        self.paced_steps += output.total_num_scheduled_tokens > 0
        return output

    # -- what we tell

    def paced_state(self) -> dict[str, Any]:
        held = self._paced_held_count()
        running = len(self.running) - sum(map(self._paced_is_held, self.running))
        return {
            "requests": len(self.requests),
            "running": running,
            "held": held,
            "waiting": max(0, len(self.requests) - running - held),
            "steps": self.paced_steps,
            "kv_used": self.kv_cache_manager.usage,
        }

    # -- within

    def _paced_is_held(self, request: Request) -> bool:
        return super()._paced_is_held(request) and not request.is_finished()

    def _paced_comes(self, request: Request, granted: int | None, third: int) -> None:
        WANTED[request.external_req_id] = Wanted(third, granted)

    _paced_told = _paced_comes

    def _paced_goes(self, request: Request) -> None:
        WANTED.pop(request.external_req_id, None)


class CountedGenerationScheduler(OmniGenerationScheduler):  # type: ignore[misc]
    """Of code to wave: it works on what the talker sends, and so stands still when the talker is held. While it only waits for
    frames it looks for them some hundred times a second, where vLLM alone would a thousand times."""

    def schedule(self, *args: Whatever, **kwargs: Whatever) -> Whatever:
        output = super().schedule(*args, **kwargs)
        if not output.total_num_scheduled_tokens and not output.finished_req_ids:
            time.sleep(_IDLE_S)
        return output

    def paced_pace(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        return {"unknown": [], **self.paced_state()}

    def paced_state(self) -> dict[str, Any]:
        return {
            "requests": len(self.requests),
            "running": len(self.running),
            "held": 0,
            "waiting": max(0, len(self.requests) - len(self.running)),
        }


# Each stage's process imports this module; its core answers utility calls by attribute name.
EngineCore.session_pace = session_pace
