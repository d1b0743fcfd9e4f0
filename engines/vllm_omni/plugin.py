"""What vllm-omni's processes are told when they start: a CPU platform where there is no other, and operators that torchvision asks for.

They find this by the folder `child_path`, which `engines.vllm_omni.launch` puts on their path: entry points, by which vllm-omni finds
platforms, and a `sitecustomize`, because torchvision is imported before any platform is looked for. vllm-omni itself comes with platforms
for accelerators only, and on those it is left alone.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

CHILD_PATH = Path(__file__).parent / "child_path"
_OPERATORS = ("nms", "qnms")


def platform() -> str | None:
    """The platform's class, where vLLM itself runs on the CPU."""
    from vllm.platforms import current_platform

    return "engines.vllm_omni.cpu_platform.CpuOmniPlatform" if current_platform.is_cpu() else None


def prepare() -> None:
    """Let torchvision be imported beside a CPU's torch: its builds for CUDA, the only ones in the registry, stumble over that. Idempotent;
    imports nothing."""
    if not any(isinstance(finder, _Declaring) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Declaring())


class _Declaring(importlib.abc.MetaPathFinder):
    """Declares torchvision's operators just before it is imported; finds nothing itself."""

    def __init__(self) -> None:
        self._kept: Any = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "torchvision" and self._kept is None:
            import torch

            if torch.version.cuda is None and torch.version.hip is None:
                self._kept = torch.library.Library("torchvision", "FRAGMENT")
                for operator in _OPERATORS:
                    self._kept.define(
                        f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                    )
        return None
