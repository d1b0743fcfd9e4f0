"""Machines that tests need: one a quarter as large as the default profile's, so that a crowd at its door is cheap to simulate, and one
whose steps take what the profile says to the nanosecond."""

from __future__ import annotations

import dataclasses

from engines.base import Stage
from engines.sim.cost_profile import Profile
from session_server.simulation.host_setup import find_profile


def small_machine() -> Profile:
    """Two talkers' frames and one chunk a step: about a dozen answers at a time."""
    profile = find_profile("qwen3-omni-h200")
    most = {Stage.THINKER: 8, Stage.TALKER: 2, Stage.VOCODER: 1}
    stages = {
        stage: dataclasses.replace(cost, max_batch=most.get(stage, cost.max_batch))
        for stage, cost in profile.stages.items()
    }
    return dataclasses.replace(profile, stages=stages)


def exact_machine() -> Profile:
    """The default profile's, without jitter."""
    return dataclasses.replace(find_profile("qwen3-omni-h200"), jitter_sigma=0.0, spike_every=0)
