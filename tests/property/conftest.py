"""Hypothesis profiles: `ci` (default; derandomised) and `long` (`HYPOTHESIS_PROFILE=long`, for nights)."""

import os

from hypothesis import HealthCheck, settings

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci",
    max_examples=200,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "long",
    max_examples=20_000,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=_QUIET,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
