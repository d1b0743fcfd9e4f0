"""Options of the Omni engines, as a graph gives them. Every mistake is a ValueError that names the option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeVar

from engines.options import at_least, by_type

_DTYPES = ("float32", "bfloat16", "float16")
_COUNTS = frozenset({"max_batch", "slots", "context", "max_tokens", "max_frames", "prompt_units"})


@dataclass(frozen=True, slots=True)
class OmniOptions:
    """What all three stages take.

    `weights`: the model's folder, as published (config.json, safetensors, tokenizer and feature extractor files).
    `device`: cpu, cuda, cuda:1, ...; stages of one graph may be on different ones. `threads`: of torch on a processor;
    it holds for the whole process (0: torch's own choice). `attention`: one of transformers' attention implementations.
    """

    weights: str = ""
    device: str = "cpu"
    dtype: str = "bfloat16"
    threads: int = 0
    attention: str = "sdpa"
    max_batch: int = 8
    slots: int = 8


@dataclass(frozen=True, slots=True)
class ThinkerOptions(OmniOptions):
    """`context`: tokens of prompt and answer, for each slot. `max_tokens`: of an answer whose client set no limit.
    `sound_s`: of one message's audio the last so many seconds are heard. `temperature` 0: the likeliest token."""

    context: int = 8192
    max_tokens: int = 1024
    sound_s: int = 120
    temperature: float = 0.7
    top_k: int = 20
    top_p: float = 0.8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class TalkerOptions(OmniOptions):
    """`context`: what the user said (as the thinker understood it) and frames together, for each slot. `max_frames`: of one
    answer; a frame is 80 ms. `prompt_units`: of the former, read in one step."""

    context: int = 8192
    max_frames: int = 4096
    prompt_units: int = 1024
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    predictor_top_k: int = 50
    predictor_top_p: float = 0.8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class VocoderOptions(OmniOptions):
    """`left_frames`: frames before a chunk that are decoded again with it; 0: all of them, which is exact and grows."""

    left_frames: int = 72
    slots: int = 64


Options = TypeVar("Options", bound=OmniOptions)


def read_options(options: Mapping[str, object], defaults: Options) -> Options:
    """`defaults` with `options` put in."""
    read = by_type(options, defaults)
    for field in fields(read):
        value = getattr(read, field.name)
        if isinstance(value, int | float):
            at_least(field.name, value, 1 if field.name in _COUNTS else 0)
    if not read.weights:
        raise ValueError("engine option weights: the model's folder is missing")
    if read.dtype not in _DTYPES:
        raise ValueError(f"engine option dtype must be one of {', '.join(_DTYPES)}")
    return read
