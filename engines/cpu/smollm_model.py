"""SmolLM2's graph over slots of keys and values, with shared prefixes and saved states.

`SlotTable` keeps which session's tokens lie in which slot: a job holds exactly one slot; a slot with a job is never taken from
it; a slot without one keeps its tokens for its session until another needs it (least recently used first).
`tokens` are those whose keys and values are in the slot, in order.

Owns the slots (`SlotModel`), the snapshots of prompt beginnings that sessions share (`PrefixCache`:
the instructions, the tools and the two examples), and the byte form of a session's state
(`pack_state`). A slot holds one token sequence's keys and values for up to `capacity` tokens. The
graph writes them in place: past and present are bound to the same memory, one binding for each
range of neighbouring slots, made once. A batch is such a range. Lengths are the caller's.

A state is the tokens of a slot and their keys and values, bit for bit: magic, then little-endian
u32 layers * 2, heads, tokens, head size; the tokens as u32; the keys and values as float32. The
bytes are this machine's own: they are moved to host memory and back, never sent.

Invariants: a call writes only behind a row's length, so rows of a batch that were not asked for do
no harm. Prompts are read at least two tokens at a time: single tokens go through another kernel,
whose results differ in the last digits, and how a prompt was cut must not show. A snapshot is never
changed; the snapshots are bounded in bytes, and the one used longest ago goes first.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from engines.base import JobKey, NoCapacity
from engines.cpu.onnx_runtime import lazy_zeros, open_session

_WORTH_COPYING = 16
"""Tokens that another slot of the session must know more of, to be copied from."""


@dataclass(slots=True)
class Slot:
    """One slot's contents. `used`: when it was last claimed or released, as a count."""

    index: int
    session: str | None = None
    job: JobKey | None = None
    tokens: list[int] = field(default_factory=list)
    used: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A slot for a job. Its first `known` tokens are the prompt's, once they have been copied from
    `copy_from` (None: they are there already)."""

    slot: Slot
    known: int
    copy_from: Slot | None = None


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading items `a` and `b` share."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


class SlotTable:
    """The slots of one model."""

    def __init__(self, count: int) -> None:
        self.slots = [Slot(index) for index in range(count)]
        self._clock = 0

    def claim(self, key: JobKey, prompt: Sequence[int]) -> Claim:
        """A slot for the job `key`. Raises NoCapacity when every slot has a job."""
        own = [slot for slot in self.slots if slot.session == key.session and slot.tokens]
        shared = {slot.index: common_prefix(slot.tokens, prompt) for slot in own}
        best = max(own, key=lambda slot: (shared[slot.index], slot.used), default=None)
        idle = [slot for slot in own if slot.job is None]
        target = max(idle, key=lambda slot: (shared[slot.index], slot.used), default=None)
        here = shared[target.index] if target is not None else 0
        if target is None:
            target = self._give_way()
        source = None
        if best is not None and shared[best.index] - here >= _WORTH_COPYING:
            source, here = best, shared[best.index]
        self._clock += 1
        target.session, target.job, target.used = key.session, key, self._clock
        target.tokens = list(prompt[:here])
        return Claim(target, here, source)

    def place(self, session: str) -> Slot:
        """An empty slot that belongs to `session` without a job, for a state that comes from outside."""
        self.forget(session)
        slot = self._give_way()
        self._clock += 1
        slot.session, slot.tokens, slot.used = session, [], self._clock
        return slot

    def find(self, session: str) -> Slot | None:
        """The slot of the session that was used last."""
        own = [slot for slot in self.slots if slot.session == session and slot.tokens]
        return max(own, key=lambda slot: slot.used, default=None)

    def release(self, slot: Slot) -> None:
        """The slot's job is over; its tokens stay."""
        self._clock += 1
        slot.job, slot.used = None, self._clock

    def forget(self, session: str) -> None:
        """Empty the session's slots that have no job."""
        for slot in self.slots:
            if slot.session == session and slot.job is None:
                self._empty(slot)

    def check(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        jobs = [slot.job for slot in self.slots if slot.job is not None]
        assert len(jobs) == len(set(jobs)), "a job holds two slots"
        for slot in self.slots:
            assert slot.job is None or slot.job.session == slot.session, "a job in a foreign slot"
            assert slot.session is not None or not slot.tokens, "tokens that nobody owns"

    def _give_way(self) -> Slot:
        """A slot for a newcomer: an empty one, else a session's second, else the one idle longest."""
        idle = [slot for slot in self.slots if slot.job is None]
        if not idle:
            raise NoCapacity("every slot has a job")
        slot = min(idle, key=lambda s: (bool(s.tokens), not self._is_spare(s), s.used, s.index))
        self._empty(slot)
        return slot

    def _is_spare(self, slot: Slot) -> bool:
        return any(
            other.session == slot.session and other.used > slot.used
            for other in self.slots
            if other is not slot and slot.tokens
        )

    @staticmethod
    def _empty(slot: Slot) -> None:
        slot.session = slot.job = None
        slot.tokens = []
        slot.used = 0


def runs(active: Sequence[int], cheapest_gap: int = 2) -> list[list[int]]:
    """`active` slot numbers (ascending) grouped for batches over neighbouring slots. A gap of idle rows is
    carried along when that costs less than a call of its own (a row costs about a third of a call)."""
    groups: list[list[int]] = []
    for slot in active:
        if groups and slot - groups[-1][-1] - 1 <= cheapest_gap:
            groups[-1].append(slot)
        else:
            groups.append([slot])
    return groups


Logits = NDArray[np.float32]
KvState = NDArray[np.float32]
"""[2 * layers, kv heads, tokens, head]: what a slot holds of its first `tokens` tokens."""

SCRATCH = 16
"""Positions behind `capacity` that rows nobody asked for may overwrite; 16 of them are a page of memory."""
WIDEST_CHUNK = 256


class SlotModel:
    """`slots` token sequences of at most `capacity` tokens on one graph. Untouched slots cost no memory."""

    def __init__(self, path: Path, slots: int, capacity: int) -> None:
        self.slots = slots
        self.capacity = capacity
        self._session = open_session(path)
        past = [i for i in self._session.get_inputs() if i.name.startswith("past_k.")]
        self._layers = len(past)
        heads, head = int(past[0].shape[1]), int(past[0].shape[3])
        self.vocabulary = int(self._session.get_outputs()[0].shape[1])
        shape = (2 * self._layers, slots, heads, capacity + SCRATCH, head)
        self._kv = lazy_zeros(shape)
        self._ids = np.zeros((slots, 1), np.int64)
        self._chunk = np.zeros((1, WIDEST_CHUNK), np.int64)
        self._chunk_last = np.zeros((1, 1), np.int64)
        self._decode_last = np.zeros((slots, 1), np.int64)
        self._seqlens = np.zeros(slots, np.int32)
        self._total = np.zeros(1, np.int32)
        self._logits = np.zeros((slots, self.vocabulary), np.float32)
        self._bindings: dict[tuple[int, int, bool], Any] = {}

    @property
    def token_bytes(self) -> int:
        """Memory of one token's keys and values."""
        return int(self._kv.nbytes // (self.slots * self._kv.shape[3]))

    def prefill(self, slot: int, past: int, tokens: list[int]) -> Logits:
        """Append 2 to WIDEST_CHUNK tokens behind the first `past`; the logits after the last, valid until
        the next call."""
        width = len(tokens)
        if not 2 <= width <= WIDEST_CHUNK:
            raise ValueError(f"a chunk has 2 to {WIDEST_CHUNK} tokens, not {width}")
        self._check(past + width)
        self._chunk[0, :width] = tokens
        self._chunk_last[0, 0] = width - 1
        self._seqlens[slot] = past + width - 1
        self._total[0] = past + width
        binding = self._binding(slot, 1, decoding=False)
        _bind_input(binding, "input_ids", self._chunk[:, :width])
        self._session.run_with_iobinding(binding)
        logits: Logits = self._logits[slot]
        return logits

    def decode(self, rows: dict[int, tuple[int, int]], idle: dict[int, int]) -> dict[int, Logits]:
        """Append one token in each slot of `rows` (slot: (past, token)), as one batch over the range that they
        span; `idle` gives the lengths of the other slots in it. The logits are valid until the next call."""
        first, last = min(rows), max(rows)
        longest = 0
        for slot in range(first, last + 1):
            past, token = rows.get(slot) or (min(idle.get(slot, 0), self.capacity), 0)
            if slot in rows:
                self._check(past + 1)
            self._ids[slot, 0] = token
            self._seqlens[slot] = past
            longest = max(longest, past + 1)
        self._total[0] = longest
        binding = self._binding(first, last - first + 1, decoding=True)
        self._session.run_with_iobinding(binding)
        return {slot: self._logits[slot] for slot in rows}

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Make the first `tokens` tokens of `target` those of `source`."""
        self._kv[:, target, :, :tokens] = self._kv[:, source, :, :tokens]

    def save(self, slot: int, tokens: int) -> KvState:
        """A copy of a slot's first `tokens` tokens."""
        return self._kv[:, slot, :, :tokens].copy()

    def restore(self, slot: int, state: KvState) -> None:
        """Put a saved state at the start of `slot`. Raises ValueError when it is another model's."""
        expected = (self._kv.shape[0], *self._kv.shape[2:3], *self._kv.shape[4:])
        if (state.shape[0], state.shape[1], *state.shape[3:]) != expected:
            raise ValueError("the state was made by another model")
        self._check(state.shape[2])
        self._kv[:, slot, :, : state.shape[2]] = state

    def _check(self, tokens: int) -> None:
        if tokens > self.capacity:
            raise ValueError(f"{tokens} tokens do not fit a slot of {self.capacity}")

    def _binding(self, first: int, count: int, decoding: bool) -> ort.IOBinding:
        """The memory of `count` slots from `first`, bound once."""
        key = (first, count, decoding)
        binding = self._bindings.get(key)
        if binding is None:
            binding = self._session.io_binding()
            rows = slice(first, first + count)
            _bind_output(binding, "logits", self._logits[rows])
            _bind_input(binding, "seqlens_k", self._seqlens[rows])
            _bind_input(binding, "total_len", self._total)
            last = self._decode_last[rows] if decoding else self._chunk_last
            _bind_input(binding, "last_idx", last)
            if decoding:
                _bind_input(binding, "input_ids", self._ids[rows])
            for index in range(2 * self._layers):
                name = f"{'kv'[index % 2]}.{index // 2}"
                _bind_input(binding, f"past_{name}", self._kv[index, rows])
                _bind_output(binding, f"pres_{name}", self._kv[index, rows])
            self._bindings[key] = binding
        return binding


def _bind_input(binding: ort.IOBinding, name: str, array: NDArray[Any]) -> None:
    binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _bind_output(binding: ort.IOBinding, name: str, array: NDArray[Any]) -> None:
    binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


class PrefixCache:
    """Snapshots by their tokens, in at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._states: OrderedDict[tuple[int, ...], KvState] = OrderedDict()

    def has(self, prefix: Sequence[int]) -> bool:
        return tuple(prefix) in self._states

    def get(self, prefix: Sequence[int]) -> KvState | None:
        """The snapshot of exactly `prefix`."""
        key = tuple(prefix)
        state = self._states.get(key)
        if state is not None:
            self._states.move_to_end(key)
        return state

    def put(self, prefix: Sequence[int], state: KvState) -> None:
        """Keep a snapshot, unless it alone is above the limit."""
        key = tuple(prefix)
        if key in self._states or state.nbytes > self._limit:
            return
        self._states[key] = state
        self._bytes += state.nbytes
        while self._bytes > self._limit:
            _, oldest = self._states.popitem(last=False)
            self._bytes -= oldest.nbytes


_MAGIC = b"SSKV1\0\0\0"
_HEADER = struct.Struct("<8s4I")


def pack_state(tokens: Sequence[int], kv: KvState) -> bytes:
    """`kv` holds the keys and values of `tokens`."""
    header = _HEADER.pack(_MAGIC, *kv.shape)
    return b"".join((header, np.asarray(tokens, "<u4").tobytes(), kv.tobytes()))


def unpack_state(state: bytes) -> tuple[list[int], KvState]:
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
