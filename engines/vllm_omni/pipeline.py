"""Our topology of Qwen3-Omni: vllm-omni's own, with schedulers that we steer and chunks that we size.

Scheduler and chunking are no settings of vllm-omni's deploy file but part of a topology, and topologies of others may be
registered; the deploy file then names ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
