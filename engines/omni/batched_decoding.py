"""Decodes many sequences in one batch: keys and values by slot, a choice by row.

Owns, for every layer, one tensor [slots, heads, context, size]: a sequence has a slot, its first
`start` positions are known, and a forward pass over some slots writes `width` more behind them and
reads all of them. A decoder of transformers sees only `update`, which is all that it asks of a
cache. Also owns the choice of tokens. Temperature 0 is the likeliest token.

Invariants: what lies behind a sequence's end is masked, whatever it is. A row's choice depends on
its logits and on one number of its own in 0..1, which its job drew from its own seed: the same
answer comes out whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

Tensor = Any
"""torch is not installed where types are checked."""


class SlotCache:
    """See the module docstring. `aim` says which slots the next forward pass is about."""

    def __init__(self, slots: int, context: int) -> None:
        self._slots = slots
        self._context = context
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._rows: Tensor = None
        self._places: Tensor = None
        self._run: slice | None = None
        self._end = 0

    def aim(self, rows: Sequence[int], starts: Sequence[int], width: int, device: object) -> Tensor:
        """The next pass gives `width` positions to each of `rows`, from `starts` on. Returns those positions."""
        self._rows = torch.tensor(rows, device=device)
        first = torch.tensor(starts, device=device)
        self._places = first[:, None] + torch.arange(width, device=device)
        self._end = max(starts) + width
        if self._end > self._context:
            raise ValueError(f"{self._end} tokens do not fit into a context of {self._context}")
        in_a_row = list(rows) == list(range(rows[0], rows[0] + len(rows)))
        self._run = slice(rows[0], rows[0] + len(rows)) if in_a_row else None
        return self._places

    def mask(self, dtype: object) -> Tensor:
        """Additive attention mask [rows, 1, width, end]."""
        columns = torch.arange(self._end, device=self._places.device)
        hidden = columns[None, None, :] > self._places[:, :, None]
        zero = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return zero.masked_fill(hidden, torch.finfo(dtype).min)[:, None]

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Keep a layer's new keys and values; give all that the rows have."""
        if layer not in self._keys:
            shape = (self._slots, keys.shape[1], self._context, keys.shape[3])
            self._keys[layer] = torch.zeros(shape, dtype=keys.dtype, device=keys.device)
            self._values[layer] = torch.zeros(shape, dtype=values.dtype, device=values.device)
        return self._kept(self._keys[layer], keys), self._kept(self._values[layer], values)

    def _kept(self, store: Tensor, new: Tensor) -> Tensor:
        store[self._rows[:, None], :, self._places] = new.transpose(1, 2)
        known = store[:, :, : self._end]
        return known[self._run] if self._run is not None else known.index_select(0, self._rows)

    def copy(self, source: int, target: int, length: int) -> None:
        """The first `length` positions of one slot into another."""
        for store in (*self._keys.values(), *self._values.values()):
            store[target, :, :length] = store[source, :, :length]


class SlotDecoder:
    """A text model of transformers (decoder layers, rotary positions, last norm) over slots."""

    def __init__(self, model: Any, slots: int, context: int) -> None:  # noqa: ANN401 - a module of torch
        self._model = model
        self.cache = SlotCache(slots, context)

    def forward(
        self,
        rows: Sequence[int],
        starts: Sequence[int],
        embeds: Tensor,
        positions: Tensor = None,
        **more: object,
    ) -> Tensor:
        """Last hidden states [rows, width, size] of `embeds` behind what each row's slot knows. `positions` [3, rows, width]: rotary
        ones, where they are not the places. `more`: for the model's own forward pass."""
        places = self.cache.aim(rows, starts, embeds.shape[1], embeds.device)
        return self._model(
            inputs_embeds=embeds,
            attention_mask=self.cache.mask(embeds.dtype),
            position_ids=places if positions is None else positions.to(embeds.device),
            past_key_values=self.cache,
            **more,
        ).last_hidden_state


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose. `top_k` 0: of all."""

    temperature: float
    top_k: int
    top_p: float


def choose(logits: Tensor, chance: Tensor, how: SamplingParams) -> Tensor:
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
