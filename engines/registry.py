"""Engines by name. An engine's module is imported only when a graph names it, so that a missing extra
(torch, vllm) harms nobody who does not use it.

A factory is `create(options, store) -> SteppedEngine`; it reads no files: `load()` does, on the stage's thread. Engines that
schedule themselves have factories of their own kind, `create(options, store) -> StreamingEngine`; they serve as thinkers.
Both raise ValueError, naming the option, for options that cannot be.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engines.base import SteppedEngine
from engines.model_store import ModelStore
from engines.streaming import StreamingEngine
from session_server.types.errors import ConfigError

Factory = Callable[[Mapping[str, object], ModelStore], SteppedEngine]
StreamingFactory = Callable[[Mapping[str, object], ModelStore], StreamingEngine]

ENGINES: Mapping[str, str] = {
    "cpu.moonshine": "engines.cpu.asr:create",
    "cpu.smart_turn": "session_server.runtime.turn_stage:create",
    "cpu.smollm2": "engines.cpu.thinker:create",
    "cpu.hibari_talker": "engines.cpu.talker:create",
    "cpu.hibari_codec": "engines.cpu.codec:create",
    "cpu.hibari_vocoder": "engines.cpu.vocoder:create",
    "cpu.grounded_smollm2": "engines.vision.grounded_thinker:create",
    "cpu.picture_detector": "engines.vision.detector:create",
    "omni.qwen2_5_thinker": "engines.omni.qwen2_5_thinker:create",
    "omni.qwen2_5_talker": "engines.omni.qwen2_5_talker:create",
    "omni.qwen2_5_token2wav": "engines.omni.token2wav:create",
    "omni.qwen2_5_vision": "engines.omni.qwen2_5_vision:create",
    "omni.qwen3_thinker": "engines.omni.qwen3_thinker:create",
    "omni.qwen3_talker": "engines.omni.qwen3_talker:create",
    "omni.qwen3_code2wav": "engines.omni.code2wav:create",
    "omni.qwen3_vision": "engines.omni.qwen3_vision:create",
    "vllm_omni.talker": "engines.vllm_omni.talker:create",
    "vllm_omni.wave": "engines.vllm_omni.wave:create",
    "sim.asr": "engines.sim.asr:create",
    "sim.turn": "engines.sim.turn:create",
    "sim.vision": "engines.sim.vision:create",
    "sim.thinker": "engines.sim.thinker:create",
    "sim.talker": "engines.sim.talker:create",
    "sim.codec": "engines.sim.codec:create",
    "sim.vocoder": "engines.sim.vocoder:create",
}


STREAMING: Mapping[str, str] = {
    "sim.streaming_thinker": "engines.sim.streaming_thinker:create",
    "vllm.thinker": "engines.vllm.thinker:create",
    "vllm_omni.thinker": "engines.vllm_omni.thinker:create",
    "remote.openai_chat": "engines.remote.openai_chat:create",
}


def factory(name: str, where: str = "engine") -> Factory:
    """The factory of stepped engine `name`.

    Raises ConfigError for an unknown name, or one whose packages are not installed.
    """
    if name in STREAMING:
        raise ConfigError(f"{where}: engine {name} schedules itself; only a thinker may")
    target = ENGINES.get(name)
    if target is None:
        raise unknown(name, where, {*ENGINES, *STREAMING})
    create: Factory = _imported(name, target, where)
    return create


def is_streaming(name: str) -> bool:
    """Whether the engine of that name schedules itself."""
    return name in STREAMING


def streaming_factory(name: str, where: str = "engine") -> StreamingFactory:
    """The factory of streaming engine `name`. Raises ConfigError as `factory` does."""
    target = STREAMING.get(name)
    if target is None:
        raise unknown(name, where, set(STREAMING))
    create: StreamingFactory = _imported(name, target, where)
    return create


def unknown(name: str, where: str, known: Iterable[str]) -> ConfigError:
    return ConfigError(f"{where}: unknown engine {name!r}; known are {', '.join(sorted(known))}")


def imported(target: str) -> Any:  # noqa: ANN401 - whatever stands there
    """What `module:attribute` names. Raises ImportError."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _imported(name: str, target: str, where: str) -> Any:  # noqa: ANN401
    try:
        return imported(target)
    except ImportError as error:
        raise ConfigError(f"{where}: engine {name} needs a package: {error}") from error
