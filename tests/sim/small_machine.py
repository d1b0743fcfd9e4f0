"""A machine a quarter as large as the default profile's, so that a crowd at its door is cheap to simulate."""

from __future__ import annotations

import dataclasses

from engines.base import Stage
from engines.sim.profile import Profile
from session_server.runtime.simulation import find_profile


def small_machine() -> Profile:
    """Two talkers' frames and one chunk a step: about a dozen answers at a time."""
    profile = find_profile("qwen3-omni-h200")
    most = {Stage.THINKER: 8, Stage.TALKER: 2, Stage.VOCODER: 1}
    stages = {
        stage: dataclasses.replace(cost, max_batch=most.get(stage, cost.max_batch))
        for stage, cost in profile.stages.items()
    }
    return dataclasses.replace(profile, stages=stages)
