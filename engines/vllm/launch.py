"""How vLLM is started and asked: the environment that it reads, its arguments, the parameters of one answer; and what is missing
for it here. The only module of this package, beside the scheduler, that imports vLLM.

vLLM's variables are set only where the user has not set them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from engines.base import HOST
from engines.model_store.store import ModelStore
from engines.vllm import internals
from engines.vllm.convert import SMOLLM, converted
from engines.vllm.internals import Engine, Params, Source, set_environment
from engines.vllm.options import VllmOptions, read_options
from session_server.types.errors import (
    ConfigError,
    EngineFault,
    ModelsMissing,
    SessionServerError,
    one_line,
)

SCHEDULER = "engines.vllm.scheduler.PacedScheduler"
_INSTALL = "see docs/big_engines.md"


def model_path(options: VllmOptions, store: ModelStore) -> str:
    """The folder of the weights. Raises ModelsMissing, or ConfigError for a folder without a model in it."""
    if options.model == SMOLLM:
        return str(converted(store))
    folder = Path(options.model).expanduser()
    if not folder.is_dir():
        if os.sep in options.model and options.model.startswith((os.sep, "~", ".")):
            raise ConfigError(f"vllm.thinker: option model: there is no folder {options.model}")
        return options.model  # a name for the hub's cache; vLLM knows where that is
    if not (folder / "config.json").is_file():
        raise ConfigError(f"vllm.thinker: option model: {folder} holds no config.json")
    if not any(any(folder.glob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.gguf")):
        raise ConfigError(f"vllm.thinker: option model: {folder} holds no weights")
    return str(folder)


def missing(mapping: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is missing for these options, a line each: the packages' version, weights, memory. Loads nothing."""
    try:
        options = read_options(mapping)
    except ValueError as error:
        return [f"option {error}"]
    lines = [] if internals.version() is None else _version_problem(options)
    try:
        model_path(options, store)
    except SessionServerError as error:
        lines.append(str(error))
    return lines + _memory_problem(options, store)


def _version_problem(options: VllmOptions) -> list[str]:
    found = internals.version()
    if options.any_version or options.pacing != "scheduler" or found in internals.PINNED:
        return []
    known = " or ".join(internals.PINNED)
    return [
        f"vllm {found} is installed; pacing by our scheduler is written for {known}: install that, or set the option"
        " pacing to lease"
    ]


def _memory_problem(options: VllmOptions, store: ModelStore) -> list[str]:
    """Whether a GPU that is here can hold the weights."""
    if importlib.util.find_spec("torch") is None:
        return []
    import torch

    try:
        if not torch.cuda.is_available():
            return []
        weights = _weight_bytes(options, store)
        total = int(torch.cuda.get_device_properties(0).total_memory)
    except (RuntimeError, SessionServerError):
        return []
    count = options.engine.get("tensor_parallel_size", 1)
    room = int(total * 0.9) * (count if isinstance(count, int) else 1)
    if weights <= room:
        return []
    return [f"the weights take {weights >> 20} MiB, of {room >> 20} that the GPU memory allows"]


def _weight_bytes(options: VllmOptions, store: ModelStore) -> int:
    folder = Path(model_path(options, store))
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def start(options: VllmOptions, store: ModelStore) -> Engine:
    """An AsyncLLM, ready. Takes a while and blocks. Raises ModelsMissing, ConfigError or EngineFault, one line."""
    model = model_path(options, store)
    _set_environment(options)
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise ConfigError(f"vllm.thinker needs a package: {error} ({_INSTALL})") from error
    _require_names(options)
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments(options, model)))
    except ModelsMissing:
        raise
    except Exception as error:
        raise EngineFault(f"vLLM does not start: {one_line(error, 300)}") from error


def _require_names(options: VllmOptions) -> None:
    if options.pacing != "scheduler":
        return
    problem = _version_problem(options)
    if problem:
        raise ConfigError(f"vllm.thinker: {problem[0]}")
    gone = internals.missing_names()
    if gone:
        raise ConfigError(
            f"vllm.thinker: this vLLM lacks {', '.join(gone[:3])}; the option pacing: lease does without"
        )


def arguments(options: VllmOptions, model: str) -> dict[str, object]:
    """What AsyncEngineArgs is given."""
    from vllm.platforms import current_platform

    given: dict[str, object] = {
        "model": model,
        "dtype": options.dtype,
        "max_num_seqs": options.answers,
        "max_model_len": options.context,
        "enable_prefix_caching": True,
        "structured_outputs_config": {"backend": "guidance"},
        "disable_log_stats": True,
    }
    if options.batched_tokens is not None:
        given["max_num_batched_tokens"] = options.batched_tokens
    if options.pacing == "scheduler":
        given |= {"scheduling_policy": "priority", "scheduler_cls": SCHEDULER}
    if current_platform.is_cpu():
        given |= {
            "block_size": 32,  # the CPU's attention knows multiples of 32 only
            "enforce_eager": True,
            "distributed_executor_backend": "uni",
            "dtype": "bfloat16" if options.dtype == "auto" else options.dtype,
        }
    return given | dict(options.engine)


def place() -> str:
    """Where a vLLM that is started works."""
    from vllm.platforms import current_platform

    return HOST if current_platform.is_cpu() else "gpu"


def _set_environment(options: VllmOptions) -> None:
    own = {
        "VLLM_CPU_KVCACHE_SPACE": str(options.cpu_kv_gb),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1" if options.own_process else "0",
        "OMP_NUM_THREADS": str(options.threads),
    }
    set_environment(own)


def sampling(options: VllmOptions, most: int, least: int, grammar: str | None) -> Params:
    """The parameters of one answer, or of one loan to it."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        temperature=options.temperature,
        top_p=options.top_p,
        repetition_penalty=options.repetition_penalty,
        max_tokens=most,
        min_tokens=min(least, most) if least > 1 else 0,
        output_kind=RequestOutputKind.DELTA,
        structured_outputs=None if grammar is None else StructuredOutputsParams(grammar=grammar),
    )


def tokens_prompt(tokens: list[int]) -> Source:
    """A prompt that is tokens already."""
    from vllm.inputs import TokensPrompt

    return TokensPrompt(prompt_token_ids=tokens)
