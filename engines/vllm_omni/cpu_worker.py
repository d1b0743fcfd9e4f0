"""Workers for the CPU: vllm-omni's model runners on vLLM's CPU runner, brought together by the order of their bases.

Imported by vllm-omni's processes only, by the names that `cpu_platform` gives.
"""

from __future__ import annotations

from typing import Any

import vllm.v1.worker.cpu_worker as cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner, _torch_cuda_wrapper
from vllm_omni.worker.gpu_ar_model_runner import GPUARModelRunner
from vllm_omni.worker.gpu_generation_model_runner import GPUGenerationModelRunner
from vllm_omni.worker.mixins import OmniWorkerMixin

from engines.vllm.internals import Whatever

_Runner: Any = object
"""What the bases after `_OnCpu` are."""


class _OnCpu(_Runner):  # type: ignore[misc]
    def __init__(self, vllm_config: Whatever, *args: Whatever, **kwargs: Whatever) -> None:
        compilation = vllm_config.compilation_config
        if compilation.max_cudagraph_capture_size is None:
            compilation.max_cudagraph_capture_size = 0
        with _torch_cuda_wrapper():
            super().__init__(vllm_config, *args, **kwargs)
        self._postprocess_tensors()


class CpuArRunner(_OnCpu, GPUARModelRunner, CPUModelRunner):  # type: ignore[misc]
    """Thinker and talker."""


class CpuGenerationRunner(_OnCpu, GPUGenerationModelRunner, CPUModelRunner):  # type: ignore[misc]
    """Code to wave."""


class _Worker(OmniWorkerMixin, cpu_worker.CPUWorker):  # type: ignore[misc]
    model_runner_cls: Any

    def init_device(self) -> None:
        """vLLM's worker makes the runner that its module names; it is given ours for that long."""
        usual = cpu_worker.CPUModelRunner
        cpu_worker.CPUModelRunner = self.model_runner_cls
        try:
            super().init_device()
        finally:
            cpu_worker.CPUModelRunner = usual


class CpuArWorker(_Worker):
    model_runner_cls = CpuArRunner


class CpuGenerationWorker(_Worker):
    model_runner_cls = CpuGenerationRunner
