"""Options of the Omni engines, as a graph gives them. Every mistake is a WrongOption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, TypeVar

from engines.options import MOST, Count, Place, Share, Text, Within, WrongOption, by_type

Context: TypeAlias = Annotated[int, Within(256, 1_000_000)]
Temperature: TypeAlias = Annotated[float, Within(0.0, 2.0)]
Choices: TypeAlias = Annotated[int, Within(0, MOST)]
"""Of the likeliest; 0: of all."""


@dataclass(frozen=True, slots=True)
class OmniOptions:
    """What all stages take.

    `weights`: the model's folder, as published (config.json, safetensors, tokenizer and feature extractor files).
    `device`: cpu, cuda, cuda:1, ...; stages of one graph may be on different ones. `threads`: of torch on a processor;
    it holds for the whole process (0: torch's own choice). `attention`: one of transformers' attention implementations.
    """

    weights: Place = ""
    device: Text = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    threads: Annotated[int, Within(0, 1024)] = 0
    attention: Text = "sdpa"
    max_batch: Count = 8
    slots: Count = 8


@dataclass(frozen=True, slots=True)
class ThinkerOptions(OmniOptions):
    """`context`: tokens of prompt and answer, for each slot. `max_tokens`: of an answer whose client set no limit.
    `sound_s`: of one message's audio the last so many seconds are heard. `temperature` 0: the likeliest token."""

    context: Context = 8192
    max_tokens: Count = 1024
    sound_s: Count = 120
    temperature: Temperature = 0.7
    top_k: Choices = 20
    top_p: Share = 0.8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class VisionOptions(OmniOptions):
    """`max_batch`: pictures in one step. `slots`: pictures that may wait. `picture_tokens`: of a prompt, that one picture takes at most;
    a larger one is made smaller. `remembered_tokens`: of pictures that are known again without looking at them."""

    max_batch: Count = 1
    slots: Count = 64
    picture_tokens: Count = 320
    remembered_tokens: Annotated[int, Within(0, MOST)] = 16_384


@dataclass(frozen=True, slots=True)
class TalkerOptions(OmniOptions):
    """`context`: what was said before (as the thinker understood it) and frames together, for each slot. `max_frames`: of one
    answer. `prompt_units`: of the former, read in one step. `temperature` 0: the likeliest code."""

    context: Context = 8192
    max_frames: Count = 4096
    prompt_units: Count = 1024
    temperature: Temperature = 0.9
    top_k: Choices = 50
    top_p: Share = 1.0
    repetition_penalty: Annotated[float, Within(0.5, 2.0)] = 1.05
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Qwen3TalkerOptions(TalkerOptions):
    """A frame is 80 ms. `predictor_...`: of the codes of a frame but the first."""

    predictor_top_k: Choices = 50
    predictor_top_p: Share = 0.8


@dataclass(frozen=True, slots=True)
class Qwen25TalkerOptions(TalkerOptions):
    """A frame is 20 ms. What the published generation uses."""

    context: Context = 16_384
    max_frames: Count = 12_288
    top_k: Choices = 40
    top_p: Share = 0.8


@dataclass(frozen=True, slots=True)
class VocoderOptions(OmniOptions):
    """`left_frames`: frames before a chunk that are decoded again with it; 0: all of them, which is exact and grows."""

    left_frames: Annotated[int, Within(0, 512)] = 72
    slots: Count = 64


@dataclass(frozen=True, slots=True)
class Token2WavOptions(OmniOptions):
    """`left_blocks` and `right_blocks`: of the denoiser's attention (0.24 s each), before and behind a chunk, that are denoised with
    it; a chunk waits for those behind it. `left_blocks` 0: all of them, which grows. `wave_frames`: mel frames (10 ms) on
    either side that the samples of a chunk are made with."""

    dtype: Literal["float32"] = "float32"
    slots: Count = 64
    left_blocks: Annotated[int, Within(0, 512)] = 2
    right_blocks: Annotated[int, Within(0, 512)] = 1
    wave_frames: Annotated[int, Within(0, 1000)] = 40
    seed: int = 0


Options = TypeVar("Options", bound=OmniOptions)


def read_options(options: Mapping[str, object], defaults: Options) -> Options:
    """`defaults` with `options` put in. Raises WrongOption."""
    read = by_type(options, defaults)
    if not read.weights:
        raise WrongOption("weights", "the model's folder is missing")
    return read
