"""The variables that vLLM reads when it is imported and when its processes start.

Only what the user has not set is set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

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
