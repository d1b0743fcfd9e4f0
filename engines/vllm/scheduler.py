"""A vLLM scheduler that this server steers: how far each answer may go, and who is served before whom.

Runs in vLLM's engine process, which imports this module by name (`scheduler_cls`). Answers that we pace carry
`sampling_params.extra_args["pace"] = [name, granted, urgency]`; later words come by `EngineCore.session_pace`, always between
two steps.

In each step the most urgent answers take part, at most `max_num_active_reqs`. An answer is left out, its keys and values
kept, when it has reached its grant (*held*) or when more urgent ones want its place (*parked*). What is left out is hidden from the
base class for the length of `schedule`, and there again afterwards. When memory runs short the least urgent of those left out
give theirs back and are read again later, mostly from the prefix cache. An engine in which all are held has no work and sleeps.

Private names of vLLM in use are listed in `engines.vllm.internals`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.request import RequestStatus

from engines.vllm.internals import Core, Request, Whatever
from engines.vllm.pacing import Paced, RankedRequest, select, session_pace

Base: Any = Scheduler if current_platform.is_cpu() else AsyncScheduler
"""The platform's own choice: async scheduling is off on CPU."""

_QUEUED = (RequestStatus.WAITING, RequestStatus.PREEMPTED)


class PacedScheduler(Paced, Base):  # type: ignore[misc]
    """Urgency, the third word of a pace, is vLLM's own `priority`, smaller is sooner."""

    def __init__(self, *args: Whatever, **kwargs: Whatever) -> None:
        super().__init__(*args, **kwargs)
        self.paced_schedule_calls = 0
        self.paced_evictions = 0
        self.paced_parked_steps = 0
        self._paced_came: dict[str, int] = {}
        self.paced_first_token_steps = 0

    # -- what vLLM calls

    def schedule(self, *args: Whatever, **kwargs: Whatever) -> Whatever:
        step = self._paced_choose()
        self._paced_make_room(step)
        self.running = step.active
        for request in step.shelved:
            self.waiting.remove_request(request)
        self.paced_parked_steps += step.parked
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.running = self.running + step.left_out
            for request in step.shelved:
                self.waiting.add_request(request)
        self.paced_schedule_calls += 1
        self.paced_steps += output.total_num_scheduled_tokens > 0
        self._paced_note_first_tokens(output.num_scheduled_tokens)
        return output

    # -- what we tell

    def paced_evict(self, name: str) -> dict[str, Any]:
        """Take an answer's memory back; it is read again when it goes on."""
        request = self._paced_named.get(name)
        if request is not None and request in self.running:
            self._paced_evict(request)
        return self.paced_state()

    def paced_state(self) -> dict[str, Any]:
        pool = self.kv_cache_manager.block_pool
        held_running = sum(map(self._paced_is_held, self.running))
        held_evicted = self._paced_held_count() - held_running
        return {
            "running": len(self.running) - held_running,
            "held": held_running + held_evicted,
            "waiting": max(0, len(self.requests) - len(self.running) - held_evicted),
            "steps": self.paced_steps,
            "schedule_calls": self.paced_schedule_calls,
            "evictions": self.paced_evictions,
            "parked_steps": self.paced_parked_steps,
            "first_token_steps": self.paced_first_token_steps,
            "free_blocks": pool.get_num_free_blocks(),
            "blocks": pool.num_gpu_blocks,
        }

    # -- within

    def _paced_comes(self, request: Request, granted: int | None, third: int) -> None:
        self._paced_came[request.request_id] = self.paced_steps
        request.priority = third

    def _paced_goes(self, request: Request) -> None:
        self._paced_came.pop(request.request_id, None)

    def _paced_told(self, request: Request, granted: int | None, third: int) -> None:
        if request.priority == third:
            return
        queued = request.status in _QUEUED and request in list(self.waiting)
        if queued:
            self.waiting.remove_request(request)
        request.priority = third
        if queued:
            self.waiting.add_request(request)

    def _paced_choose(self) -> _Step:
        running = [self._paced_candidate(r) for r in self.running]
        queue = list(self.waiting)
        waiting = [self._paced_candidate(r) for r in queue]
        choice = select(running, waiting, self.max_num_active_reqs)
        active, left_out = _parted(self.running, lambda r: r.request_id in choice.active)
        shelved, ready = _parted(queue, self._paced_is_held)
        coming = ready[: self.max_num_active_reqs - len(active)]
        return _Step(active, left_out, coming, shelved, choice.parked)

    def _paced_candidate(self, request: Request) -> RankedRequest:
        return RankedRequest(request.request_id, request.priority, self._paced_is_held(request))

    def _paced_make_room(self, step: _Step) -> None:
        """Evict the least urgent of those left out while memory (or the model runner's slots) would not do."""
        # a bound on what the step takes: a block for each that goes on, and the prompts that are let in
        prompts = sum(int(r.num_tokens) // int(self.block_size) + 1 for r in step.coming)
        wanted = len(step.active) + prompts
        step.left_out.sort(key=lambda r: r.priority)
        while step.left_out and (
            self._paced_free_blocks() < wanted
            or (
                self.use_v2_model_runner
                and len(self.running) + len(step.coming) > self.max_num_running_reqs
            )
        ):
            victim = step.left_out.pop()
            self._paced_evict(victim)
            if self._paced_is_held(victim):
                step.shelved.append(victim)

    def _paced_free_blocks(self) -> int:
        free: int = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return free

    def _paced_note_first_tokens(self, scheduled: Mapping[str, int]) -> None:
        """Of answers whose prompt is read to its end in this step: which step that is, counted from their coming."""
        for name in [name for name in self._paced_came if name in scheduled]:
            request = self.requests[name]
            if request.num_computed_tokens >= request.num_prompt_tokens:
                self.paced_first_token_steps = self.paced_steps - self._paced_came.pop(name)

    def _paced_evict(self, request: Request) -> None:
        self.running.remove(request)
        self._preempt_request(request, time.monotonic())
        self.paced_evictions += 1


class _Step(NamedTuple):
    """Who takes part in a step: `active` of those that run, and `coming` of those that wait. `left_out` run, and keep their
    state; `shelved` are held and wait, since they were evicted. `parked` of those left out could go on."""

    active: list[Request]
    left_out: list[Request]
    coming: list[Request]
    shelved: list[Request]
    parked: int


def _parted(
    requests: Iterable[Request], true: Callable[[Request], bool]
) -> tuple[list[Request], list[Request]]:
    """Those of which it is true, and the others."""
    parts: tuple[list[Request], list[Request]] = ([], [])
    for request in requests:
        parts[not true(request)].append(request)
    return parts


def session_evict(core: Core, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = core.scheduler.paced_evict(name)
    return answer


# The engine process imports this module; its core answers utility calls by attribute name.
EngineCore.session_pace = session_pace
EngineCore.session_evict = session_evict
