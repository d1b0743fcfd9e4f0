"""What all engines of a simulated conversation share: a stage's costs, and the price of the last step in `cost_ns`."""

from __future__ import annotations

from engines.base import Capabilities, Stage
from engines.sim.profile import Profile, StageCost


class Scripted:
    """What all of them share: a table of jobs and the price of a step."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        self.profile = profile
        self.cost = cost
        self.cost_ns = 0

    @property
    def capabilities(self) -> Capabilities:
        cost, profile = self.cost, self.profile
        audio = cost.stage in (Stage.TALKER, Stage.CODEC, Stage.VOCODER)
        return Capabilities(
            cost.stage,
            cost.max_batch,
            cost.slots,
            unit_samples=profile.unit_samples if audio else 0,
            unit_rate=profile.rate if audio else 0,
            streams_text=cost.stage is Stage.TALKER and profile.streams_text,
        )

    def load(self) -> None:
        """Nothing to read."""

    def close(self) -> None:
        """Nothing to give back."""
