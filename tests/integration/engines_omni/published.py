"""What transformers' own generation gives: a tiny model's tokens and codes, greedily."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

TOKENS, FRAMES = 10, 24
Answered = tuple[torch.Tensor, torch.Tensor]
Seen = Mapping[str, torch.Tensor]
"""Of the prompt's pictures, in their order: `thinker_pixel_values` and `image_grid_thw`."""
NOTHING: Seen = {}


def features(listener: Any, pcm: bytes) -> torch.Tensor:
    """Of a sound, padded as the listener pads it: [1, bins, frames]."""
    frames = listener._frames(len(pcm) // 2)
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    return listener._extract(
        np.pad(samples, (0, frames * 160 - len(samples))),
        sampling_rate=16_000, padding=False, truncation=False, return_tensors="pt",
    )["input_features"]  # fmt: skip


def _generate(
    kind: Any, weights: Path, tokens: Sequence[int], heard: torch.Tensor, seen: Seen
) -> Any:
    model = kind.from_pretrained(weights, dtype=torch.float32, local_files_only=True).eval()
    # of a prompt with sounds and pictures the talker of transformers 5.19.0 asks its config for what only the thinker's has
    model.talker.config.audio_config = model.config.thinker_config.audio_config
    ids = torch.tensor([tokens])
    return model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        input_features=heard,
        feature_attention_mask=torch.ones((1, heard.shape[-1]), dtype=torch.long),
        speaker="Ethan",
        thinker_do_sample=False,
        thinker_max_new_tokens=TOKENS,
        talker_do_sample=False,
        talker_repetition_penalty=1.0,
        talker_max_new_tokens=FRAMES + 1,
        **seen,
    )


def _qwen3(
    weights: Path, tokens: Sequence[int], heard: torch.Tensor, seen: Seen = NOTHING
) -> Answered:
    from transformers import Qwen3OmniMoeForConditionalGeneration as Whole
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as module

    codes: list[torch.Tensor] = []

    def decode(_self: object, given: torch.Tensor, **_: object) -> torch.Tensor:
        codes.append(given)
        return torch.zeros(1, 1, 10)

    with patch.object(module.Qwen3OmniMoeCode2Wav, "chunked_decode", decode):
        said, _ = _generate(Whole, weights, tokens, heard, seen)
    return said[0], codes[0][0].T


def _qwen2_5(
    weights: Path, tokens: Sequence[int], heard: torch.Tensor, seen: Seen = NOTHING
) -> Answered:
    from transformers import Qwen2_5OmniForConditionalGeneration as Whole
    from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni as module

    codes: list[torch.Tensor] = []

    def decode(_self: object, given: torch.Tensor, **_: object) -> torch.Tensor:
        codes.append(given)
        return torch.zeros(10)

    with patch.object(module.Qwen2_5OmniToken2WavModel, "forward", decode):
        said, _ = _generate(Whole, weights, tokens, heard, seen)
    return said[0], codes[0].T


PUBLISHED: Mapping[str, Callable[..., Answered]] = {
    "qwen3-omni": _qwen3,
    "qwen2.5-omni": _qwen2_5,
}
