"""What vllm-omni asks of a platform, answered for the CPU. Imported by vllm-omni's processes only."""

from __future__ import annotations

from typing import Any

import psutil
import torch
from vllm.platforms.cpu import CpuPlatform
from vllm_omni.platforms.interface import OmniPlatform, OmniPlatformEnum

from engines.vllm.internals import Whatever


class CpuOmniPlatform(OmniPlatform, CpuPlatform):  # type: ignore[misc]
    """vLLM's CPU platform, with vllm-omni's questions."""

    _omni_enum = OmniPlatformEnum.OOT

    @classmethod
    def get_omni_ar_worker_cls(cls) -> str:
        return "engines.vllm_omni.cpu_worker.CpuArWorker"

    @classmethod
    def get_omni_generation_worker_cls(cls) -> str:
        return "engines.vllm_omni.cpu_worker.CpuGenerationWorker"

    @classmethod
    def get_default_stage_config_path(cls) -> str:
        return "vllm_omni/deploy"

    @classmethod
    def get_torch_device(cls, local_rank: int | None = None) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def get_device_count(cls) -> int:
        return 1

    @classmethod
    def get_device_version(cls) -> str | None:
        return None

    @classmethod
    def synchronize(cls) -> None:
        """Nothing runs beside."""

    @classmethod
    def get_free_memory(cls, device: Any = None) -> int:  # noqa: ANN401
        return int(psutil.virtual_memory().available)

    @classmethod
    def get_device_memory(cls, device: Any = None) -> tuple[int, int]:  # noqa: ANN401
        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    @classmethod
    def supports_torch_inductor(cls) -> bool:
        return False

    @classmethod
    def get_diffusion_attn_backend_cls(cls, *args: Whatever, **kwargs: Whatever) -> str:
        from vllm_omni.diffusion.attention.backends.registry import DiffusionAttentionBackendEnum

        return str(DiffusionAttentionBackendEnum.TORCH_SDPA.get_path())
