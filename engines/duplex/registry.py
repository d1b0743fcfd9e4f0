"""Duplex engines by name; a module is imported only when a graph names its engine.

A factory is `create(options, store) -> DuplexEngine`. It reads no files: `load` does, on the ticker's thread. It raises ValueError,
naming the option, for options that cannot be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engines.duplex.base import DuplexEngine
from engines.model_store import ModelStore
from engines.registry import imported, unknown
from session_server.types.errors import ConfigError

DuplexFactory = Callable[[Mapping[str, object], ModelStore], DuplexEngine]

DUPLEX: Mapping[str, str] = {
    "sim.duplex": "engines.sim.duplex:create",
    "moshi.duplex": "engines.duplex.moshi:create",
    "moshi.tiny": "engines.duplex.tiny:create",
}


def duplex_factory(name: str, where: str = "engine") -> DuplexFactory:
    """The factory of engine `name`. Raises ConfigError for an unknown name, or one whose packages are not installed."""
    target = DUPLEX.get(name)
    if target is None:
        raise unknown(name, where, DUPLEX)
    try:
        create: DuplexFactory = imported(target)
    except ImportError as error:
        cure = "engines/duplex/requirements.txt says which"
        raise ConfigError(f"{where}: engine {name} needs packages ({cure}): {error}") from error
    return create
