"""Engines by name. An engine's module is imported only when a graph names it, so that a missing extra
(torch, vllm) harms nobody who does not use it.

A factory is `create(options, store) -> SteppedEngine`; it reads no files: `load()` does, on the stage's thread.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from engines.base import SteppedEngine
from engines.model_store import ModelStore
from session_server.errors import ConfigError

Factory = Callable[[Mapping[str, object], ModelStore], SteppedEngine]

ENGINES: Mapping[str, str] = {
    "cpu.moonshine": "engines.cpu.asr:create",
    "cpu.smollm2": "engines.cpu.thinker:create",
    "cpu.hibari_talker": "engines.cpu.talker:create",
    "cpu.hibari_codec": "engines.cpu.codec:create",
    "cpu.hibari_vocoder": "engines.cpu.vocoder:create",
    "sim.asr": "engines.sim.asr:create",
    "sim.turn": "engines.sim.turn:create",
    "sim.thinker": "engines.sim.thinker:create",
    "sim.talker": "engines.sim.talker:create",
    "sim.codec": "engines.sim.codec:create",
    "sim.vocoder": "engines.sim.vocoder:create",
}


def factory(name: str, extra: Mapping[str, str] | None = None, where: str = "engine") -> Factory:
    """The factory of engine `name`; `extra` adds names that live outside this package.

    Raises ConfigError for an unknown name, or one whose packages are not installed.
    """
    known = {**ENGINES, **(extra or {})}
    target = known.get(name)
    if target is None:
        raise ConfigError(f"{where}: unknown engine {name!r}; known are {', '.join(sorted(known))}")
    module, _, attribute = target.partition(":")
    try:
        create: Factory = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ConfigError(f"{where}: engine {name} needs a package: {error}") from error
    return create
