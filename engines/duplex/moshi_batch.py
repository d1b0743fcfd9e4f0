"""One slot's part of the streaming state of moshi's modules: found by name, copied out, put back.

The modules keep their state as tensors with a row for each slot. FIELDS says which attributes those are, for each class of
state that moshi 0.2.13 has; a class that is not there is an EngineFault at once, not a conversation that goes on wrongly.
Invariants: copies are bit for bit; tensors are changed in place (a CUDA graph may hold them); of a key-value ring only the
part that is in use is copied. Call between two ticks only.

Moshi's language model and codec, streaming in fixed slots: one step of all slots is one call of each.

Owns the modules' streaming state. A tick is `Mimi.encode` of the users' frames, `LMGen.step`, `Mimi.decode` of what it
says, each under an execution mask: rows of other slots go along and move nothing. Invariants:

* The codec decodes only rows whose tokens are there: the model's delays leave a slot's first ticks without.
* A slot's first frame is encoded, and then its codec state begins anew: to the model that frame lies in the past
  (as in moshi's own server).
* A slot that begins is reset in every module, its keys and values forgotten.

Tensors are float32 in units of full scale. No gradients anywhere. Private names of moshi 0.2.13: `moshi_state`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from moshi.models import LMGen

from session_server.types.errors import EngineFault

FIELDS: Mapping[str, tuple[str, ...]] = {
    "State": (),
    "_StreamingConv1dState": ("previous", "first"),
    "_StreamingConvTr1dState": ("partial",),
    "_MHAState": ("offset",),
    "_LayerState": (),
    "_TransformerState": ("offsets",),
    "_MimiState": (),
    "_LMGenState": ("cache", "offsets"),
}
"""Tensors whose first dimension is the slot. Beside these an attention state has a ring, `kv_cache`."""

_FORMAT = 1


class Rows(NamedTuple):
    """All slots' part of one tensor. `ring`: the tensor is a ring of keys and values, and this counts what came in."""

    name: str
    tensor: Any
    dim: int
    ring: Any = None


def rows(modules: Mapping[str, Any]) -> Iterator[Rows]:
    """Every tensor with a row for each slot, of modules that are streaming."""
    for label, module in modules.items():
        for path, state in module.get_streaming_state().items():
            kind = type(state).__name__
            if kind not in FIELDS:
                raise EngineFault(f"moshi has a streaming state that is not known here: {kind}")
            where = f"{label}:{path}"
            for field in FIELDS[kind]:
                yield Rows(f"{where}.{field}", getattr(state, field), 0)
            ring = getattr(state, "kv_cache", None)
            if ring is not None:
                yield Rows(f"{where}.end", ring.end_offset, 0)
                yield Rows(f"{where}.ring", ring.cache, 1, ring.end_offset)


def clear_rings(modules: Mapping[str, Any], slot: int) -> None:
    """Forget keys and values for good: a reset only says that they are not valid, and 0 times NaN is NaN."""
    for row in rows(modules):
        if row.ring is not None:
            row.tensor.select(row.dim, slot).zero_()


def save_slot(modules: Mapping[str, Any], slot: int, kept: Mapping[str, object]) -> bytes:
    """The slot's state; `kept` is what the engine knows of it beside the tensors (numbers, strings, lists of them)."""
    tensors, shapes = {}, {}
    for row in rows(modules):
        part = row.tensor.select(row.dim, slot)
        shapes[row.name] = list(part.shape)
        if row.ring is not None:
            part = part[:, :, : _used(row, slot)]
        tensors[row.name] = part.clone().cpu()
    buffer = io.BytesIO()
    torch.save(
        {"format": _FORMAT, "kept": dict(kept), "tensors": tensors, "shapes": shapes}, buffer
    )
    return buffer.getvalue()


def _used(row: Rows, slot: int) -> int:
    return min(int(row.ring[slot]), int(row.tensor.shape[-2]))


def load_slot(modules: Mapping[str, Any], slot: int, state: bytes) -> dict[str, Any]:
    """Put a saved state into the slot; returns `kept`. Raises ValueError, with nothing changed, for one that does not fit."""
    try:
        found = torch.load(io.BytesIO(state), weights_only=True, map_location="cpu")
        tensors, kept, shapes = found["tensors"], found["kept"], found["shapes"]
        whole = found["format"] == _FORMAT and isinstance(kept, dict)
    except Exception as error:  # whatever a damaged file makes torch throw
        raise ValueError(f"not a saved state: {type(error).__name__}") from error
    targets = list(rows(modules))
    expected = {row.name: list(row.tensor.select(row.dim, slot).shape) for row in targets}
    if not whole or shapes != expected or set(tensors) != set(expected):
        raise ValueError("the saved state is of another model")
    for row in targets:
        _check(row, expected[row.name], tensors[row.name])
    for row in targets:
        target, value = row.tensor.select(row.dim, slot), tensors[row.name]
        if row.ring is not None:
            target.zero_()
            target = target[:, :, : value.shape[-2]]
        target.copy_(value)
    return dict(kept)


def _check(row: Rows, expected: list[int], value: Any) -> None:  # noqa: ANN401 - a tensor
    if row.ring is not None and value.dim() == len(expected):
        used = min(int(value.shape[-2]), expected[-2])
        expected = [*expected[:-2], used, expected[-1]]
    if list(value.shape) != expected or value.dtype != row.tensor.dtype:
        raise ValueError(f"the saved state is of another model: {row.name} does not fit")


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
        self.modules = {"mimi": self._mimi, "gen": self._gen, "lm": models.lm}
        self._fresh = torch.ones(slots, dtype=torch.bool)

    def begin(self, slot: int) -> None:
        """The slot's conversation begins anew."""
        mask = torch.zeros(self.slots, dtype=torch.bool)
        mask[slot] = True
        with torch.no_grad():
            self._mimi.reset_streaming(reset_mask=mask)
            self._gen.reset_streaming(reset_mask=mask)
            clear_rings(self.modules, slot)
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
        """See `save_slot`."""
        with torch.no_grad():
            return save_slot(self.modules, slot, kept | {"fresh": bool(self._fresh[slot])})

    def load(self, slot: int, state: bytes) -> dict[str, Any]:
        """See `load_slot`."""
        with torch.no_grad():
            kept = load_slot(self.modules, slot, state)
        self._fresh[slot] = kept["fresh"]
        return kept
