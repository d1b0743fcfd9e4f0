"""What a tick costs by live sessions: `python -m engines.duplex.measure ENGINE [--slots N] [--ticks N] [--option KEY=VALUE]`.

CPU milliseconds of the calling thread (its process, with several torch threads), medians over ticks of noise from every live slot;
all slots are there all the time, live or not. Says besides what it takes to join, save and load a slot.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import yaml

from engines.duplex_engine import DuplexConfig, DuplexEngine
from engines.model_store.store import ModelStore
from engines.registry import duplex_factory


def tick_ms(engine: DuplexEngine, live: int, ticks: int) -> float:
    """Median CPU time of a tick with so many live sessions."""
    rng = np.random.default_rng(0)
    size = engine.capabilities.frame_samples
    for slot in range(live):
        engine.join(slot, DuplexConfig())
    costs = []
    for _ in range(ticks):
        noise = rng.normal(0.0, 2000.0, (live, size)).clip(-32768, 32767).astype("<i2")
        frames: dict[int, bytes | None] = {slot: noise[slot].tobytes() for slot in range(live)}
        costs.append(_cpu_ms(partial(engine.tick, frames)))
    for slot in range(live):
        engine.leave(slot)
    return statistics.median(costs)


def state_costs(engine: DuplexEngine, ticks: int) -> tuple[float, float, float, int]:
    """CPU milliseconds to join, save and load, and the bytes of a state after so many ticks."""
    join = _cpu_ms(lambda: engine.join(0, DuplexConfig()))
    for _ in range(ticks):
        engine.tick({0: None})
    states: list[bytes] = []
    save = _cpu_ms(lambda: states.append(engine.save_state(0)))
    load = _cpu_ms(lambda: engine.load_state(0, states[0]))
    engine.leave(0)
    return join, save, load, len(states[0])


def _cpu_ms(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return 1e3 * (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("engine")
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--ticks", type=int, default=40)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    pairs = (text.partition("=") for text in asked.option)
    options = {key: yaml.safe_load(value) for key, _, value in pairs}
    engine = duplex_factory(asked.engine)({"slots": asked.slots, **options}, ModelStore(Path()))
    engine.load()
    for live in [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= asked.slots]:
        sys.stdout.write(f"{live} live: {tick_ms(engine, live, asked.ticks):.1f} ms CPU a tick\n")
        sys.stdout.flush()
    join, save, load, size = state_costs(engine, asked.ticks)
    sys.stdout.write(
        f"join {join:.1f} ms, save {save:.1f} ms, load {load:.1f} ms; a state has {size} bytes\n"
    )
    engine.close()


if __name__ == "__main__":
    main()
