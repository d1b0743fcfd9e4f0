"""Options of the engines on vllm-omni, as a graph gives them. Every mistake is a ValueError that begins with the option's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from engines.options import Count, Place, Share, Within, WrongOption, by_type
from engines.vllm_omni.internals import STAGES

_OURS = frozenset(
    {"stage_id", "max_num_seqs", "max_model_len", "default_sampling_params", "input_connectors", "output_connectors"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """`weights`: the model's folder, as published. What talker and vocoder take too: they read the length of a frame from it."""

    weights: Place = ""


@dataclass(frozen=True, slots=True)
class ThinkerOptions(ModelOptions):
    """All of the model's three stages are started by the thinker's engine, with these.

    `answers`: under way at once, in each stage; an answer counts until the last of its speech is made. `context`: tokens of prompt and answer,
    `talker_context`: of what the user said and frames together. `max_tokens`: of an answer whose client set no limit;
    `max_frames`: of its speech; a frame is 80 ms. `sound_s`: of one message's audio the last so many seconds are heard. `voice`: where the
    session names none. `temperature` 0: the likeliest token; `seed`: of the talker's draws, the same for each answer (None: any).

    `first_frames`, `chunk_frames`: frames that are made into samples at once, as long as the server's chunk rule has said nothing else of
    an answer; `left_frames`: frames before a chunk that are decoded again with it.

    `stages`: vllm-omni's own settings (of its deploy file) by stage, thinker, talker and code2wav: devices, memory, parallelism.
    `kv_mb`: memory for keys and values of thinker and talker each, on CPU. `threads`: OpenMP threads of each stage on CPU.
    """

    answers: Count = 8
    context: Annotated[int, Within(256, 1_000_000)] = 8192
    talker_context: Annotated[int, Within(256, 1_000_000)] = 8192
    max_tokens: Count = 1024
    max_frames: Count = 4096
    sound_s: Count = 120
    voice: str = "ethan"
    temperature: Annotated[float, Within(0.0, 2.0)] = 0.7
    top_k: Count = 20
    top_p: Share = 0.8
    talker_temperature: Annotated[float, Within(0.0, 2.0)] = 0.9
    talker_top_k: Count = 50
    talker_repetition_penalty: Annotated[float, Within(0.5, 2.0)] = 1.05
    seed: int | None = 42
    first_frames: Annotated[int, Within(1, 64)] = 2
    chunk_frames: Annotated[int, Within(1, 64)] = 8
    left_frames: Annotated[int, Within(0, 512)] = 25
    stages: Mapping[str, object] = field(default_factory=dict)
    kv_mb: Count = 256
    threads: Count = 1
    start_s: Count = 900
    any_version: bool = False

    @property
    def longest_answer(self) -> int:
        """Tokens kept free behind a prompt."""
        return min(self.max_tokens, self.context * 3 // 8)


def read_thinker(options: Mapping[str, object]) -> ThinkerOptions:
    read = by_type(options, ThinkerOptions())
    _require_weights(read)
    for name, settings in read.stages.items():
        if name not in STAGES:
            raise WrongOption(f"stages.{name}", f"no such stage; there are {', '.join(STAGES)}")
        if not isinstance(settings, Mapping):
            raise WrongOption(f"stages.{name}", "must be a mapping")
        taken = sorted(_OURS & settings.keys())
        if taken:
            raise WrongOption(
                f"stages.{name}.{taken[0]}",
                "has an option of its own, or is this server's to set",
            )
    return read


def read_model(options: Mapping[str, object]) -> ModelOptions:
    read = by_type(options, ModelOptions())
    _require_weights(read)
    return read


def _require_weights(options: ModelOptions) -> None:
    if not options.weights:
        raise WrongOption("weights", "missing; the model's folder")
