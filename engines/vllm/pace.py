"""The words between this server and our schedulers in an engine's process: what comes with an answer, and what is said of it later.

Used there by `engines.vllm.scheduler` and `engines.vllm_omni.schedulers`, which say what a pace holds beside an answer's name. Imports
nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.vllm.foreign import Core, Request


def pace_of(request: Request) -> Sequence[Any] | None:
    """The pace that the answer came with, its name first; None: it is none of ours."""
    pace: Sequence[Any] | None = (getattr(request.sampling_params, "extra_args", None) or {}).get(
        "pace"
    )
    return pace


def session_pace(core: Core, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The control channel's one word, as a method of the core: paces, and the scheduler's state in return."""
    answer: dict[str, Any] = core.scheduler.paced_pace(changes)
    return answer
