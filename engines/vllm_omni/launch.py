"""Starts vllm-omni and reaches its processes; says what is missing for it here.

Owns its environment, the deploy file, its processes, and the stages as this process reaches them
(`Stages`: a word to each scheduler, and whether their processes live). Their clients belong to the
loop of vllm-omni's orchestrator, which runs in a thread of its own; calls are carried there.

Invariants: variables are set only where the user has not set them, but for the path on which the
processes find our entry points: that holds while they are begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from engines.model_store.store import ModelStore
from engines.vllm.internals import Engine, set_environment
from engines.vllm_omni import internals, plugin
from engines.vllm_omni.options import ThinkerOptions, read_thinker
from session_server.types.errors import (
    ConfigError,
    EngineFault,
    ModelsMissing,
    SessionServerError,
    one_line,
)

_INSTALL = "see docs/vllm_omni.md"
_KIND = "qwen3_omni_moe"
_ROOT = resources.files("engines").joinpath("..")
_CONNECTOR = "shared_memory"
_LOCKS = Path("/dev/shm")


def model_config(weights: str) -> Mapping[str, Any]:
    """The model's config.json. Raises ModelsMissing, or EngineFault for what is no such model."""
    folder = Path(weights).expanduser()
    path = folder / "config.json"
    try:
        config: Mapping[str, Any] = json.loads(path.read_text())
    except OSError:
        raise ModelsMissing(
            f"{folder} has no config.json: option weights must name the folder of a Qwen3-Omni model"
        ) from None
    except ValueError as error:
        raise EngineFault(f"{path} cannot be read: {error}") from None
    if config.get("model_type") != _KIND:
        raise EngineFault(f"{path} is of a {config.get('model_type')} model; this runs {_KIND}")
    if not any(folder.glob("*.safetensors")):
        raise ModelsMissing(f"{folder} has no *.safetensors files: its download is not whole")
    return config


def frame_samples(config: Mapping[str, Any]) -> int:
    """Samples of one frame of speech."""
    decoder = config["code2wav_config"]
    return math.prod(map(int, (*decoder["upsample_rates"], *decoder["upsampling_ratios"])))


def missing(mapping: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is missing for these options, a line each: the packages' versions, weights. Loads nothing."""
    try:
        options = read_thinker(mapping)
    except ValueError as error:
        return [f"option {error}"]
    lines = [] if None in internals.versions().values() else _version_problem(options)
    try:
        model_config(options.weights)
    except SessionServerError as error:
        lines.append(str(error))
    return lines


def start(options: ThinkerOptions) -> Engine:
    """An AsyncOmni, ready. Takes a while and blocks. Raises ModelsMissing, ConfigError or EngineFault, one line."""
    model_config(options.weights)
    if importlib.util.find_spec("vllm_omni") is None:
        raise ConfigError(f"vllm_omni.thinker needs the package vllm-omni ({_INSTALL})")
    _set_environment(options)
    with _findable():
        try:
            plugin.prepare()
            from vllm.platforms import current_platform
            from vllm_omni.entrypoints.async_omni import AsyncOmni
        except ImportError as error:
            raise ConfigError(f"vllm_omni.thinker needs a package: {error} ({_INSTALL})") from error
        _require_names(options)
        internals.register()
        on_cpu = current_platform.is_cpu()
        if on_cpu:  # a stage's scheduler and its model in one process
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        with _deploy_file(deployment(options, on_cpu=on_cpu)) as path:
            try:
                return AsyncOmni(
                    model=str(Path(options.weights).expanduser()),
                    deploy_config=path,
                    stage_init_timeout=options.start_s,
                    init_timeout=options.start_s,
                    log_stats=False,
                )
            except Exception as error:
                raise EngineFault(f"vllm-omni does not start: {one_line(error, 300)}") from error


def deployment(options: ThinkerOptions, *, on_cpu: bool) -> dict[str, Any]:
    """vllm-omni's deploy file, as a mapping."""
    common: dict[str, Any] = {"max_num_seqs": options.answers, "enable_prefix_caching": False}
    if on_cpu:
        common |= {
            "enforce_eager": True,
            "moe_backend": "auto",  # triton is what it would take
            "async_scheduling": False,
            "kv_cache_memory_bytes": options.kv_mb << 20,
            "gpu_memory_utilization": 0.1,
            "skip_mm_profiling": True,
            "block_size": 32,  # the CPU's attention knows multiples of 32 only
            "devices": "0",
        }
    own: dict[str, dict[str, Any]] = {
        "thinker": {
            "max_model_len": options.context,
            "max_num_batched_tokens": options.context,
        },
        "talker": {
            "max_model_len": options.talker_context,
            "max_num_batched_tokens": options.talker_context,
            "input_connectors": {"from_stage_0": _CONNECTOR},
        },
        "code2wav": {
            # a chunk's codes are its tokens, 16 for each frame
            "max_model_len": 65_536,
            "max_num_batched_tokens": 65_536,
            "enable_chunked_prefill": False,
            "async_scheduling": False,
            "input_connectors": {"from_stage_1": _CONNECTOR},
        },
    }
    made: dict[str, Any] = {
        "pipeline": internals.PIPELINE,
        "async_chunk": True,
        "dtype": "bfloat16",  # its talker takes nothing else
        "connectors": {
            _CONNECTOR: {
                "name": "SharedMemoryConnector",
                "extra": {
                    "initial_codec_chunk_frames": options.first_frames,
                    "codec_chunk_frames": options.chunk_frames,
                    "codec_left_context_frames": options.left_frames,
                },
            }
        },
        "stages": [
            {"stage_id": number, **common, **own[name], **_settings(options, name)}
            for number, name in enumerate(internals.STAGES)
        ],
    }
    if on_cpu:
        made["distributed_executor_backend"] = "uni"
    return made


def sweep(name: str) -> None:
    """Remove the locks that vllm-omni's connector leaves of chunks which nobody read: empty files, one a chunk, for ever. `name`: what
    the answers' names begin with."""
    for lock in _LOCKS.glob(f"shm_{name}*_lockfile.lock"):
        with contextlib.suppress(OSError):
            lock.unlink()


def _settings(options: ThinkerOptions, stage: str) -> Mapping[str, Any]:
    settings = options.stages.get(stage, {})
    assert isinstance(settings, Mapping)
    return settings


def _version_problem(options: ThinkerOptions) -> list[str]:
    found = internals.versions()
    if options.any_version or found == internals.PINNED:
        return []
    return [
        f"{' and '.join(f'{name} {version}' for name, version in found.items())} are installed; this is written for"
        f" {' and '.join(f'{name} {version}' for name, version in internals.PINNED.items())} ({_INSTALL})"
    ]


def _require_names(options: ThinkerOptions) -> None:
    problem = _version_problem(options)
    if problem:
        raise ConfigError(f"vllm_omni.thinker: {problem[0]}")
    gone = internals.missing_names()
    if gone:
        raise ConfigError(f"vllm_omni.thinker: this vllm-omni lacks {', '.join(gone[:3])}")


def _set_environment(options: ThinkerOptions) -> None:
    own = {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # of the option kv_mb it takes what it needs
        # a stage that gets nothing from the one above it gives up; ours may be held as long as a listener pauses
        "VLLM_OMNI_INPUT_WAIT_TIMEOUT_S": "86400",
        "OMP_NUM_THREADS": str(options.threads),
    }
    set_environment(own)


@contextlib.contextmanager
def _findable() -> Iterator[None]:
    """The processes that are begun meanwhile find our entry points and modules."""
    places = [str(plugin.CHILD_PATH), str(_ROOT)]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *([before] if before else [])])
    added = [place for place in places if place not in sys.path]
    sys.path += added
    try:
        yield
    finally:
        for place in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(place)
        if before is None:
            os.environ.pop("PYTHONPATH", None)
        else:
            os.environ["PYTHONPATH"] = before


@contextlib.contextmanager
def _deploy_file(deploy: Mapping[str, Any]) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="session-server-") as folder:
        path = Path(folder) / "deploy.yaml"
        path.write_text(yaml.safe_dump(dict(deploy)))
        yield str(path)


class Stages:
    """Of one AsyncOmni."""

    def __init__(self, omni: Engine) -> None:
        self._omni = omni

    async def call(self, stage: int, method: str, *arguments: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """A method of the stage's core, between two of its steps. Raises what vllm raises when it is gone."""
        client = self._omni.engine.stage_pools[stage].stage_client
        task = client.resources.output_queue_task
        call = client.call_utility_async(method, *arguments)
        future = asyncio.run_coroutine_threadsafe(call, task.get_loop())
        answer: Mapping[str, Any] = await asyncio.wrap_future(future)
        return answer

    @property
    def alive(self) -> bool:
        """All of them can be spoken with."""
        if self._omni.errored:
            return False
        pools = self._omni.engine.stage_pools
        return all(
            pool.live_replica_ids() and not pool.stage_client.resources.engine_dead
            for pool in pools
        )
