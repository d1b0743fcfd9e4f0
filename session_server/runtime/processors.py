"""How many processors this process may use: those it is bound to, and no more than its container is given time of."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus(quota: Path = _QUOTA) -> int:
    """At least one. `quota`: where Linux says what a container may take, microseconds of each period, or `max`."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        most, period = quota.read_text().split()
        return max(1, min(count, math.ceil(int(most) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return count
