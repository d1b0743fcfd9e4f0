"""The most sessions that a profile's stages could serve: `python -m loadgen.lab.roofline`.

For each stage, the sessions at which it would be busy all the time if every batch were full, nothing were wasted on
interruptions, and load never varied: no order of service can hold more. Prompts are read four at once, the first chunk
is the ladder's smallest, the others are of one size. Times are seconds; a *turn* lasts from one question to the next.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass

from engines.base import Stage
from engines.sim.cost_profile import Profile
from session_server.simulation.host_setup import find_profile
from session_server.simulation.spec import Workload, draw

_TURNS = 20_000
_BEFORE_SOUND_S = 0.5 + 0.25
"""End of turn decided after 500 ms of silence; then the first audio."""
_REOPEN_S = 1.0
"""Until somebody else takes the place of a user who left."""


@dataclass(frozen=True, slots=True)
class TurnMeans:
    """Averages over turns: the length of a turn, what was heard of the answer, tokens of it and of the prompt."""

    turn_s: float
    heard_s: float
    answer_tokens: float
    prompt_tokens: float


def turn_means(workload: Workload, barge_in: float, profile: Profile) -> TurnMeans:
    """By drawing, with a fixed seed."""
    rng = random.Random("roofline")
    token_s = profile.frames_per_token * profile.unit_samples / profile.rate
    total = heard = tokens = prompt = 0.0
    interrupting = False
    for _ in range(_TURNS):
        speech = draw(workload.barge_speech_s if interrupting else workload.speech_s, rng)
        answer = max(1, int(draw(workload.answer_tokens, rng)))
        interrupting = rng.random() < barge_in
        share = rng.random() if interrupting else 1.0
        prompt += workload.prompt_tokens_least + draw(workload.prompt_tokens, rng)
        prompt += speech * profile.kv.input_tokens_per_s
        tokens += answer * share
        heard += answer * share * token_s
        total += speech + _BEFORE_SOUND_S + answer * share * token_s
        if not interrupting:
            total += draw(workload.think_least_s, rng) + draw(workload.think_s, rng)
            total += _REOPEN_S / workload.turns
    return TurnMeans(total / _TURNS, heard / _TURNS, tokens / _TURNS, prompt / _TURNS)


def sessions_at_full(profile: Profile, means: TurnMeans, chunk_frames: int) -> dict[Stage, float]:
    """Sessions at which each stage is busy all the time."""
    frame_s = profile.unit_samples / profile.rate
    frames = means.heard_s / frame_s
    first = max(1, round(float(profile.scheduler["chunk_ladder_s"][0]) / frame_s))
    thinker, talker = profile.stages[Stage.THINKER], profile.stages[Stage.TALKER]
    vocoder = profile.stages[Stage.VOCODER]
    prompts = thinker.prefill_batch
    read = thinker.step_ns(0, 0, int(means.prompt_tokens * prompts)) / prompts
    seconds = {
        Stage.THINKER: means.answer_tokens * thinker.step_ns(thinker.max_batch, 0) / thinker.max_batch + read,
        Stage.TALKER: frames * talker.step_ns(talker.max_batch, 0) / talker.max_batch,
        Stage.VOCODER: (
            vocoder.step_ns(vocoder.max_batch, first)
            + (frames - first) / chunk_frames * vocoder.step_ns(vocoder.max_batch, chunk_frames)
        ) / vocoder.max_batch,
    }  # fmt: skip
    return {stage: means.turn_s * 1e9 / ns for stage, ns in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--profile", default="qwen3-omni-h200")
    parser.add_argument("--barge-in", type=float, default=0.3)
    parser.add_argument("--chunk-frames", type=int, nargs="+", default=[8, 12, 25, 37, 50])
    args = parser.parse_args()
    profile = find_profile(args.profile)
    means = turn_means(Workload(), args.barge_in, profile)
    out = sys.stdout
    out.write(
        f"a turn lasts {means.turn_s:.1f} s; {means.heard_s:.1f} s of speech are heard,"
        f" from {means.answer_tokens:.0f} tokens, after {means.prompt_tokens:.0f} of prompt\n\n"
        "| frames a chunk | thinker | talker | vocoder |\n|---|---|---|---|\n"
    )
    for size in args.chunk_frames:
        full = sessions_at_full(profile, means, size)
        cells = (full[stage] for stage in (Stage.THINKER, Stage.TALKER, Stage.VOCODER))
        out.write(f"| {size} | {' | '.join(f'{cell:.0f}' for cell in cells)} |\n")


if __name__ == "__main__":
    main()
