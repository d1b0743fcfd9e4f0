"""Choosing tokens for a batch whose rows must not depend on each other.

A row's choice depends on its logits and on one number of its own in 0..1, which its job drew from its own seed: the
same answer comes out whatever else is in the batch. Temperature 0 is the likeliest token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Tensor = Any


@dataclass(frozen=True, slots=True)
class Choice:
    """How to choose. `top_k` 0: of all."""

    temperature: float
    top_k: int
    top_p: float


def choose(logits: Tensor, chance: Tensor, how: Choice) -> Tensor:
    """One token for each row of `logits` [rows, vocabulary]; `chance` [rows] in 0..1."""
    if how.temperature <= 0:
        return logits.argmax(-1)
    count = min(how.top_k or logits.shape[-1], logits.shape[-1])
    best, tokens = logits.float().topk(count)  # in falling order
    weights = (best / how.temperature).softmax(-1)
    if how.top_p < 1:
        before = weights.cumsum(-1) - weights
        weights = weights.masked_fill(before >= how.top_p, 0.0)
    reach = weights.cumsum(-1)
    place = (reach <= chance[:, None] * reach[:, -1:]).sum(-1, keepdim=True)
    return tokens.gather(-1, place.clamp_max(count - 1))[:, 0]


def penalise(logits: Tensor, said: Tensor, penalty: float) -> Tensor:
    """Make what was `said` [rows, vocabulary] (true or false) less likely, as transformers does."""
    if penalty == 1.0:
        return logits
    less = torch.where(logits > 0, logits / penalty, logits * penalty)
    return torch.where(said, less, logits)


class Chances:
    """A job's own numbers in 0..1."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self, count: int) -> Tensor:
        return torch.rand(count, generator=self._generator)
