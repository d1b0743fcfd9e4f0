"""A session's thinker state as bytes: the tokens of its slot, and their keys and values, bit for bit.

Layout: magic, then little-endian u32 layers * 2, heads, tokens, head size; the tokens as u32; the keys and
values as float32. The bytes are this machine's own: they are moved to host memory and back, never sent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from engines.cpu.smollm_model import KvState

_MAGIC = b"SSKV1\0\0\0"
_HEADER = struct.Struct("<8s4I")


def pack(tokens: Sequence[int], kv: KvState) -> bytes:
    """`kv` holds the keys and values of `tokens`."""
    header = _HEADER.pack(_MAGIC, *kv.shape)
    return b"".join((header, np.asarray(tokens, "<u4").tobytes(), kv.tobytes()))


def unpack(state: bytes) -> tuple[list[int], KvState]:
    """The tokens, and a view of the keys and values. Raises ValueError when `state` is damaged."""
    if len(state) < _HEADER.size:
        raise ValueError("the state is cut short")
    magic, *shape = _HEADER.unpack_from(state)
    if magic != _MAGIC:
        raise ValueError("the state was made by another version")
    count = shape[2]
    values = _HEADER.size + 4 * count
    if len(state) != values + 4 * int(np.prod(shape, dtype=np.int64)):
        raise ValueError("the state is damaged")
    tokens = np.frombuffer(state, "<u4", count, _HEADER.size)
    kv = np.frombuffer(state, np.float32, offset=values).reshape(shape)
    return [int(token) for token in tokens], kv
