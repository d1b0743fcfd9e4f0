"""Random lengths, from the generator that the run's seed gave."""

from __future__ import annotations

import math
import random

from session_server.runtime.simulation.spec import Span


def draw(span: Span, rng: random.Random) -> float:
    """One value of a span."""
    match span.kind:
        case "lognormal":
            value = rng.lognormvariate(math.log(span.median), span.sigma)
        case "exponential":
            value = rng.expovariate(1 / span.median)
        case "uniform":
            value = rng.uniform(span.low, span.high)
        case "constant":
            value = span.median
        case _:
            raise ValueError(f"unknown kind of span: {span.kind!r}")
    return min(max(value, span.low), span.high)
