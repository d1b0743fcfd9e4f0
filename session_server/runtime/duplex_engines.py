"""Where the engine of a duplex graph comes from: by name, on a thread of this process or in one of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.duplex.base import DuplexCapabilities, DuplexEngine
from engines.duplex.registry import duplex_factory
from engines.duplex.spec import PROCESS, DuplexSpec
from engines.graph_values import wrong_option
from engines.model_store import ModelStore
from session_server.runtime.duplex_process import DuplexProcess
from session_server.types.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RegisteredDuplex:
    """Makes the engine that `spec` names; a value, so that it can be sent to another process."""

    spec: DuplexSpec
    store: ModelStore

    def __call__(self) -> DuplexEngine:
        """Raises ConfigError naming the key."""
        create = duplex_factory(self.spec.engine, "graph.engine")
        try:
            return create(self.spec.options, self.store)
        except ValueError as error:
            raise wrong_option(error, "graph") from error


def engine_maker(
    spec: DuplexSpec, store: ModelStore
) -> tuple[Callable[[], DuplexEngine], DuplexCapabilities]:
    """Makes engines of the graph, and says what they can; one is made at once, to see that it can be. Raises ConfigError naming
    the key."""
    make = RegisteredDuplex(spec, store)
    capabilities = make().capabilities
    if spec.rest is not None and not capabilities.can_save:
        raise ConfigError(f"graph.rest: {spec.engine} cannot save a conversation; leave this out")
    if spec.placement == PROCESS:
        return lambda: DuplexProcess(make, capabilities), capabilities
    return make, capabilities
