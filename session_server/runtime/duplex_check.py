"""`check` for a graph of `kind: duplex`: can the model be loaded, and is a tick of a full house shorter than it lasts?

Loads an engine of its own, sits in every slot, and takes a few ticks of silence. Times are wall time of one tick.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from engines.duplex.base import DuplexConfig
from engines.duplex.spec import DuplexSpec
from engines.model_store import ModelStore
from session_server.host.stages.stage_worker import describe
from session_server.runtime.duplex_engines import engine_maker
from session_server.types.audio import NS_PER_MS
from session_server.types.errors import ConfigError, ModelsMissing

_TICKS = 12


@dataclass(frozen=True, slots=True)
class DuplexTrial:
    """What was found. `cure`: what to do when it is not ok."""

    ok: bool
    detail: str
    cure: str = ""


def try_duplex(spec: DuplexSpec, store: ModelStore) -> DuplexTrial:
    """Blocks for as long as loading takes. Never raises for what it finds."""
    try:
        make, _ = engine_maker(spec, store)
        engine = make()
    except ConfigError as error:
        return DuplexTrial(False, str(error), "see docs/duplex.md")
    try:
        engine.load()
        slots = range(engine.capabilities.slots)
        for slot in slots:
            engine.join(slot, DuplexConfig())
        costs = []
        for _ in range(_TICKS):
            began = time.monotonic_ns()
            engine.tick(dict.fromkeys(slots))
            costs.append((time.monotonic_ns() - began) / NS_PER_MS)
    except ModelsMissing as error:
        return DuplexTrial(
            False, str(error), "put the weights there, or change graph.options.folder"
        )
    except Exception as error:
        return DuplexTrial(
            False, describe(error), "--debug shows where; graph.options may ask for too much"
        )
    finally:
        engine.close()
    tick_ms = engine.capabilities.tick_ns / NS_PER_MS
    cost_ms = statistics.median(costs)
    detail = f"{spec.engine}: {len(slots)} slots; a tick of {tick_ms:g} ms takes {cost_ms:.1f} ms"
    return DuplexTrial(
        cost_ms < tick_ms, detail, "" if cost_ms < tick_ms else "fewer slots, or a faster machine"
    )
