"""Which vLLM and vllm-omni this was written for, and their names that are not public.

Owns those names, the versions that are known, and our topology of Qwen3-Omni: vllm-omni's own, with
schedulers that we steer and chunks that we size. Scheduler and chunking are no settings of
vllm-omni's deploy file but part of a topology, and topologies of others may be registered
(`register`); the deploy file then names ours. `missing_names` is the contract test.

Errors: another version is refused, unless the option `any_version` says otherwise; a name that is
gone is refused always, by name.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engines.vllm.internals import lacking, version

PINNED: Mapping[str, str | None] = {"vllm": "0.30.0", "vllm-omni": "0.30.0"}

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.scheduler:Scheduler": (
        "add_request", "schedule", "get_num_unfinished_requests", "_free_request",
    ),
    "vllm.v1.request:Request": ("num_output_tokens", "is_finished"),
    "vllm.v1.engine.core:EngineCore": ("step",),
    "vllm.v1.engine.core_client:AsyncMPClient": ("call_utility_async",),
    "vllm.v1.worker.cpu_worker:CPUWorker": ("init_device",),
    "vllm.v1.worker.cpu_model_runner:_torch_cuda_wrapper": (),
    "vllm.v1.worker.cpu_model_runner:CPUModelRunner": ("_postprocess_tensors",),
    "vllm.platforms.cpu:CpuPlatform": (),
    "vllm.platforms:current_platform": ("is_cpu",),
    "vllm_omni.platforms.interface:OmniPlatformEnum": ("OOT",),
    "vllm_omni.platforms.interface:OmniPlatform": (
        "get_omni_ar_worker_cls", "get_omni_generation_worker_cls", "get_default_stage_config_path", "get_torch_device",
        "get_device_count", "get_device_version", "synchronize", "get_free_memory", "supports_torch_inductor",
        "get_diffusion_attn_backend_cls",
    ),
    "vllm_omni.worker.mixins:OmniWorkerMixin": (),
    "vllm_omni.worker.gpu_ar_model_runner:GPUARModelRunner": (),
    "vllm_omni.worker.gpu_generation_model_runner:GPUGenerationModelRunner": (),
    "vllm_omni.core.sched.omni_ar_scheduler:OmniARScheduler": ("schedule", "_free_request"),
    "vllm_omni.core.sched.omni_ar_scheduler:OmniARAsyncScheduler": ("schedule", "_free_request"),
    "vllm_omni.core.sched.omni_generation_scheduler:OmniGenerationScheduler": ("schedule",),
    "vllm_omni.config.pipeline_registry:OMNI_PIPELINES": (),
    "vllm_omni.config.pipeline_registry:register_pipeline": (),
    "vllm_omni.model_executor.models.qwen3_omni.pipeline:QWEN3_OMNI_PIPELINE": ("stages", "model_type", "duplex_plugin"),
    "vllm_omni.data_entry_keys:OmniPayloadStruct": (),
    "vllm_omni.data_entry_keys:CodesStruct": (),
    "vllm_omni.data_entry_keys:MetaStruct": (),
    "vllm_omni.engine.stage_pool:StagePool": ("live_replica_ids", "stage_client"),
    "vllm_omni.entrypoints.async_omni:AsyncOmni": ("generate", "abort", "shutdown", "errored"),
}  # fmt: skip
"""Module and object -> attributes of the object."""

ASSIGNED: Mapping[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.scheduler": (
        "self.running: ", "self.waiting = ", "self.requests: ", "self.max_num_running_reqs = ", "self.kv_cache_manager = ",
    ),
    "vllm.v1.request": ("self.num_output_placeholders = ", "self.sampling_params = "),
    "vllm.v1.engine.core": ("self.scheduler: ",),
    "vllm.v1.engine.core_client": ("resources.output_queue_task = ",),
    "vllm.v1.core.sched.output": ("total_num_scheduled_tokens: ", "finished_req_ids: "),
    "vllm_omni.distributed.omni_connectors.transfer_adapter.chunk_transfer_adapter": (
        "self.code_prompt_token_ids: ", "self.connector = ",
    ),
    "vllm_omni.engine.stage_engine_core_proc": ("scheduler_request.external_req_id = ",),
    "vllm_omni.engine.omni_engine_base": ("self.stage_pools = ", "self.default_sampling_params_list = "),
    "vllm_omni.entrypoints.async_omni_base": ("self.final_output_task: ",),
}  # fmt: skip
"""Module -> beginnings of the statements that make an instance's attributes."""


def versions() -> dict[str, str | None]:
    """The installed ones, without the build's suffix."""
    try:
        omni = importlib.metadata.version("vllm-omni").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        omni = None
    return {"vllm": version(), "vllm-omni": omni}


def missing_names() -> list[str]:
    """Names in use that these lack. Needs both."""
    return lacking(ATTRIBUTES, ASSIGNED)


PIPELINE = "session_server_qwen3_omni"
STAGES = ("thinker", "talker", "code2wav")
"""In their order: a stage's number is its place."""
_AR = "engines.vllm_omni.schedulers.PacedArScheduler"
_CHANGES: dict[str, dict[str, Any]] = {
    "thinker": {"scheduler_cls": _AR},
    "talker": {
        "scheduler_cls": _AR,
        "async_chunk_process_next_stage_input_func": "engines.vllm_omni.chunks.talker_to_code2wav",
    },
    "code2wav": {"scheduler_cls": "engines.vllm_omni.schedulers.CountedGenerationScheduler"},
}


def register() -> str:
    """Make the topology known in this process; its name. Idempotent."""
    from vllm_omni.config import pipeline_registry
    from vllm_omni.model_executor.models.qwen3_omni.pipeline import QWEN3_OMNI_PIPELINE

    if PIPELINE not in pipeline_registry.OMNI_PIPELINES:
        usual = QWEN3_OMNI_PIPELINE
        found = tuple(stage.model_stage for stage in usual.stages)
        if found != STAGES:
            raise ValueError(f"this vllm-omni makes Qwen3-Omni of {', '.join(found)}")
        stages = tuple(replace(stage, **_CHANGES[stage.model_stage]) for stage in usual.stages)
        ours = replace(usual, model_type=PIPELINE, stages=stages, duplex_plugin=None)
        pipeline_registry.register_pipeline(ours)
    return PIPELINE
