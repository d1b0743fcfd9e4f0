"""Options of the Omni engines, as a graph gives them. Every mistake is a ValueError that names the option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeVar

_DTYPES = ("float32", "bfloat16", "float16")


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
    known = {f.name: getattr(defaults, f.name) for f in fields(defaults)}
    values: dict[str, object] = {}
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"unknown engine option {name}; known are {', '.join(sorted(known))}")
        values[name] = _typed(name, value, type(known[name]))
    read = replace(defaults, **values)  # type: ignore[arg-type]  # checked one by one
    if not read.weights:
        raise ValueError("engine option weights: the model's folder is missing")
    if read.dtype not in _DTYPES:
        raise ValueError(f"engine option dtype must be one of {', '.join(_DTYPES)}")
    return read


def _typed(name: str, value: object, kind: type) -> object:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"engine option {name} must be {kind.__name__}, not {value!r}")
    if isinstance(value, int | float) and value < 0:
        raise ValueError(f"engine option {name} must not be negative, not {value!r}")
    if (
        name in ("max_batch", "slots", "context", "max_tokens", "max_frames", "prompt_units")
        and value == 0
    ):
        raise ValueError(f"engine option {name} must be at least 1")
    return value
