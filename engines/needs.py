"""What engines lack on this machine: packages, weights, memory. Asked before anything is loaded; loads nothing itself.

An engine's module may have `missing(options, store) -> list[str]`: a line for each thing that is not here, with what helps.
One that has none needs nothing beyond the package and the model files.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from engines.model_store import ModelStore
from engines.registry import ENGINES, STREAMING

Missing = Callable[[Mapping[str, object], ModelStore], list[str]]


def missing(name: str, options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What engine `name` lacks for these options; nothing for a name that is not known here."""
    target = {**ENGINES, **STREAMING}.get(name)
    if target is None:
        return []
    try:
        module = importlib.import_module(target.partition(":")[0])
    except ImportError as error:
        return [f"needs a package: {error}"]
    ask: Missing | None = getattr(module, "missing", None)
    return [] if ask is None else ask(options, store)
