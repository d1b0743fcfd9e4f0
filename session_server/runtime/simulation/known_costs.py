"""A profile's step times as what a host's admission knows before its first session.

Admission predicts with measured steps; before there are any, with these: each batch size to the power of two, prompts
and chunks of the sizes that the scheduler asks for.
"""

from __future__ import annotations

from collections.abc import Iterator

from engines.base import Stage
from engines.sim.cost_profile import Profile, StageCost
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.params import SchedulerParams

_CLAUSE_CHARS = 30
_PROMPTS = (32, 64, 128, 256, 512, 1024, 2048, 4096)


def teach(costs: CostModel, profile: Profile, params: SchedulerParams) -> None:
    """Put the profile's figures into `costs`."""
    for cost in profile.stages.values():
        for batch in _batches(cost.max_batch):
            for units in _units(cost.stage, profile, params):
                costs.observe(
                    cost.stage.value, batch, units, cost.step_ns(batch, _sum(cost, batch, units))
                )
        if cost.stage is Stage.THINKER:
            for tokens in _PROMPTS:
                if tokens <= params.prefill_tokens:
                    costs.observe(cost.stage.value, 1, tokens, cost.step_ns(0, 0, tokens))


def _batches(most: int) -> Iterator[int]:
    batch = 1
    while batch < most:
        yield batch
        batch *= 2
    yield most


def _units(stage: Stage, profile: Profile, params: SchedulerParams) -> tuple[int, ...]:
    """Sizes of the stage's steps: chunks of the ladder, a clause, or single tokens and frames."""
    if stage in (Stage.CODEC, Stage.VOCODER):
        frame_s = profile.unit_samples / profile.rate
        return tuple(max(1, round(audio_s / frame_s)) for audio_s in params.chunk_ladder_s)
    if stage is Stage.TALKER and not profile.streams_text:
        return (round(_CLAUSE_CHARS * profile.frames_per_char),)
    return (1,)


def _sum(cost: StageCost, batch: int, units: int) -> int:
    """What a step is priced by: the longest chunk where batching gains, else the sum."""
    if cost.stage in (Stage.CODEC, Stage.VOCODER) and cost.batch_gain is None:
        return batch * units
    return units if cost.stage in (Stage.CODEC, Stage.VOCODER) else batch
