"""One slot's part of the streaming state of moshi's modules: found by name, copied out, put back.

The modules keep their state as tensors with a row for each slot. FIELDS says which attributes those are, for each class of
state that moshi 0.2.13 has; a class that is not there is an EngineFault at once, not a conversation that goes on wrongly.
Invariants: copies are bit for bit; tensors are changed in place (a CUDA graph may hold them); of a key-value ring only the
part that is in use is copied. Call between two ticks only.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

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


def save(modules: Mapping[str, Any], slot: int, kept: Mapping[str, object]) -> bytes:
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


def load(modules: Mapping[str, Any], slot: int, state: bytes) -> dict[str, Any]:
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
