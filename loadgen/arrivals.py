"""When users arrive: instants in seconds from the start of the run, drawn from the run's seed."""

from __future__ import annotations

import random

from session_server.types.errors import ConfigError

FORMS = "together, ramp:SECONDS or poisson:PER_SECOND"


def arrivals(form: str, users: int, rng: random.Random) -> list[float]:
    """Start instants of `users` users. Raises ConfigError for a form that does not exist.

    ramp: evenly over so many seconds, each moved by up to half a step, so that users do not fall into step.
    """
    kind, _, number = form.partition(":")
    try:
        value = float(number) if number else 0.0
    except ValueError:
        value = -1.0
    if kind == "together" and not number:
        return [0.0] * users
    if kind == "ramp" and number and value >= 0:
        step = value / users
        return [step * (i + rng.uniform(0.0, 0.5)) for i in range(users)]
    if kind == "poisson" and value > 0:
        starts = [0.0]
        while len(starts) < users:
            starts.append(starts[-1] + rng.expovariate(value))
        return starts
    raise ConfigError(f"--arrivals {form!r} is not {FORMS}")
