"""Moshi's language model and codec, streaming in fixed slots: one step of all slots is one call of each.

Owns the modules' streaming state. A tick is `Mimi.encode` of the users' frames, `LMGen.step`, `Mimi.decode` of what it
says, each under an execution mask: rows of other slots go along and move nothing. Invariants:

* The codec decodes only rows whose tokens are there: the model's delays leave a slot's first ticks without.
* A slot's first frame is encoded, and then its codec state begins anew: to the model that frame lies in the past
  (as in moshi's own server).
* A slot that begins is reset in every module, its keys and values forgotten.

Tensors are float32 in units of full scale. No gradients anywhere. Private names of moshi 0.2.13: `moshi_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from moshi.models import LMGen

from engines.duplex import moshi_state


@dataclass(frozen=True, slots=True)
class MoshiModels:
    """What a checkpoint holds: codec, language model, vocabulary (the piece of text of a token)."""

    mimi: Any
    lm: Any
    piece_of: Callable[[int], str]


class Spoken(NamedTuple):
    """One tick of all slots. `speaks`: rows that have tokens and audio. `text`: tokens; `codes`: [slots, books]; `wave`:
    [slots, samples]."""

    speaks: Any
    text: Any
    codes: Any
    wave: Any


class MoshiBatch:
    """The streaming state of `slots` conversations. `sampling`: how `LMGen` draws tokens."""

    def __init__(self, models: MoshiModels, sampling: Mapping[str, object], slots: int) -> None:
        self._mimi = models.mimi
        self.slots = slots
        self.device = models.lm.device
        self._gen: Any = LMGen(
            models.lm,
            **sampling,
            support_out_of_sync=True,
        )
        self._mimi.streaming_forever(slots)
        self._gen.streaming_forever(slots)
        self._modules = {"mimi": self._mimi, "gen": self._gen, "lm": models.lm}
        self._fresh = torch.ones(slots, dtype=torch.bool)

    def begin(self, slot: int) -> None:
        """The slot's conversation begins anew."""
        mask = torch.zeros(self.slots, dtype=torch.bool)
        mask[slot] = True
        with torch.no_grad():
            self._mimi.reset_streaming(reset_mask=mask)
            self._gen.reset_streaming(reset_mask=mask)
            moshi_state.clear_rings(self._modules, slot)
        self._fresh[slot] = True

    def step(self, frames: Any, mask: Any) -> Spoken:  # noqa: ANN401 - tensors
        """Advance the rows of `mask` by their `frames`, [slots, 1, samples]. Both on the CPU; so is what comes back."""
        with torch.no_grad():
            codes = self._encode(frames.to(self.device), mask)
            self._gen.set_exec_mask(mask)
            out = self._gen.step(codes)
            tokens = out[:, :, 0]
            speaks = (tokens[:, 0] != self._gen.lm_model.ungenerated_token_id).cpu() & mask
            wave = torch.zeros(self.slots, self._mimi.frame_size)
            if speaks.any():
                self._mimi.set_exec_mask(speaks)
                wave = self._mimi.decode(out[:, 1:].clamp_min(0))[:, 0].float().cpu()
        tokens = tokens.cpu()
        return Spoken(speaks, tokens[:, 0], tokens[:, 1:], wave)

    def _encode(self, frames: Any, mask: Any) -> Any:  # noqa: ANN401 - tensors
        self._mimi.set_exec_mask(mask)
        codes = self._mimi.encode(frames)
        first = self._fresh & mask
        if first.any():
            self._mimi.reset_streaming(reset_mask=first)
            self._fresh &= ~mask
        return codes

    # -- states of slots

    def save(self, slot: int, kept: dict[str, object]) -> bytes:
        """See `moshi_state.save`."""
        with torch.no_grad():
            return moshi_state.save(self._modules, slot, kept | {"fresh": bool(self._fresh[slot])})

    def load(self, slot: int, state: bytes) -> dict[str, Any]:
        """See `moshi_state.load`."""
        with torch.no_grad():
            kept = moshi_state.load(self._modules, slot, state)
        self._fresh[slot] = kept["fresh"]
        return kept
