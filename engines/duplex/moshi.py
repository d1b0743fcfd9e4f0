"""Moshi behind the duplex contract: bytes in and out, text, and who has the floor.

The model reads no instructions and has one voice; it has no tokens for the floor either, so that is judged by what it
says (`activity`). A reset or a join costs a pass over the slot's state, a tick one batched step for all slots, however
many are joined: cost hardly depends on it.

Weights come from a folder (option `folder`), never from a hub: `model.safetensors`, the Mimi file and the text tokenizer
under the names of kyutai's repositories, and their `config.json` where there is one.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engines.duplex.options import MoshiOptions
from engines.duplex_engine import (
    FULL_SCALE,
    Activity,
    AssistantFrame,
    DuplexCapabilities,
    DuplexConfig,
    SlotTable,
    TextPieces,
    level_dbfs,
)
from engines.model_store.store import ModelStore
from engines.options import by_type
from session_server.types.errors import EngineFault, ModelsMissing

RATE = 24_000
FRAME_SAMPLES = 1_920


Build = Callable[[MoshiOptions], Any]
"""Reads or makes the models: a `MoshiModels`."""


@dataclass(slots=True)
class _Kept:
    """Of one conversation, beside the tensors. `rest`: bytes of a character that is not whole yet."""

    activity: Activity
    rest: bytes = b""


class MoshiEngine:
    """A `DuplexEngine`."""

    def __init__(self, options: MoshiOptions, build: Build) -> None:
        self._options = options
        self._build = build
        self.capabilities = DuplexCapabilities(RATE, FRAME_SAMPLES, options.slots, can_save=True)
        self._table: SlotTable[_Kept] = SlotTable(self.capabilities)
        self.batch: Any = None
        """The `MoshiBatch`, while loaded."""
        self._pieces: TextPieces | None = None

    # -- life

    def load(self) -> None:
        options = self._options
        if options.threads:
            torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        models = self._build(options)
        batches = importlib.import_module("engines.duplex.moshi_batch")
        if models.mimi.frame_size != FRAME_SAMPLES or models.mimi.sample_rate != RATE:
            raise EngineFault(f"a codec of {FRAME_SAMPLES} samples at {RATE} Hz is needed")
        self.batch = batches.MoshiBatch(models, options.sampling, options.slots)
        lm = models.lm
        silent = {lm.text_padding_token_id, lm.end_of_text_padding_id, lm.text_initial_token_id}
        self._pieces = TextPieces(models.piece_of, frozenset(silent))
        self._table.clear()
        self._warm_up()

    def _warm_up(self) -> None:
        """Three ticks of silence: what is compiled or captured is so before the first conversation."""
        everyone = torch.ones(self._options.slots, dtype=torch.bool)
        for _ in range(3):
            self.batch.step(torch.zeros(self._options.slots, 1, FRAME_SAMPLES), everyone)

    def close(self) -> None:
        self.batch = None
        self._pieces = None
        self._table.clear()

    # -- slots

    def join(self, slot: int, config: DuplexConfig) -> None:
        self._table.join(slot, self._new())
        self.batch.begin(slot)

    def update(self, slot: int, config: DuplexConfig) -> None:
        self._table.of(slot)  # and that is all: the model reads nothing

    def leave(self, slot: int) -> None:
        if self._table.leave(slot):
            self.batch.begin(slot)  # nothing of what was said stays in memory

    def reset(self, slot: int) -> None:
        self._table.put(slot, self._new())
        self.batch.begin(slot)

    def _new(self) -> _Kept:
        gap = self._options.turn_gap_ms * RATE // (1000 * FRAME_SAMPLES)
        return _Kept(Activity(max(1, gap)))

    # -- ticks

    def tick(self, frames: Mapping[int, bytes | None]) -> dict[int, AssistantFrame]:
        self._table.require(frames)
        if not frames:
            return {}
        sound = np.zeros((self._options.slots, 1, FRAME_SAMPLES), np.float32)
        mask = torch.zeros(self._options.slots, dtype=torch.bool)
        for slot, frame in frames.items():
            mask[slot] = True
            if frame is not None:
                sound[slot, 0] = np.frombuffer(frame, "<i2") / FULL_SCALE
        spoken = self.batch.step(torch.from_numpy(sound), mask)
        power = spoken.wave.square().mean(-1).tolist()
        wave = (spoken.wave * FULL_SCALE).round().clamp(-FULL_SCALE, FULL_SCALE - 1)
        pcm = wave.to(torch.int16).numpy().astype("<i2", copy=False)
        return {
            slot: self._said(slot, int(spoken.text[slot]), power[slot], pcm[slot].tobytes())
            if spoken.speaks[slot]
            else AssistantFrame(bytes(2 * FRAME_SAMPLES))
            for slot in frames
        }

    def _said(self, slot: int, token: int, power: float, pcm: bytes) -> AssistantFrame:
        pieces, kept = self._pieces, self._table.of(slot)
        assert pieces is not None
        text, kept.rest = pieces.push(kept.rest, token)
        says = pieces.says(token)
        actions = kept.activity.heard(level_dbfs(power), says)
        return AssistantFrame(pcm, text, actions, int(says))

    # -- states

    def save_state(self, slot: int) -> bytes:
        kept = self._table.of(slot)
        state: bytes = self.batch.save(
            slot, {"activity": list(kept.activity.state()), "rest": list(kept.rest)}
        )
        return state

    def load_state(self, slot: int, state: bytes) -> None:
        self._table.of(slot)
        kept = self.batch.load(slot, state)
        restored = self._new()
        speaking, quiet, loud = kept["activity"]
        restored.activity.restore((speaking, quiet, loud))
        restored.rest = bytes(kept["rest"])
        self._table.put(slot, restored)


# -- weights

_NEEDED = {
    "moshi_name": "model.safetensors",
    "mimi_name": "tokenizer-e351c8d8-checkpoint125.safetensors",
    "tokenizer_name": "tokenizer_spm_32k_3.model",
}


def read_checkpoint(options: MoshiOptions) -> Any:  # noqa: ANN401 - MoshiModels
    """The models of a folder. Raises ModelsMissing naming the file."""
    if not options.folder:
        raise ModelsMissing("moshi: options.folder must name the folder of the weights")
    folder = Path(options.folder).expanduser()
    config_file = folder / "config.json"
    config = json.loads(config_file.read_text()) if config_file.is_file() else {}
    files = {key: folder / config.get(key, name) for key, name in _NEEDED.items()}
    for file in files.values():
        if not file.is_file():
            raise ModelsMissing(
                f"moshi: {file} is not there (docs/duplex.md says which are needed)"
            )
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise EngineFault(f"moshi: options.device is {options.device}, and torch finds no GPU here")
    loaders = importlib.import_module("moshi.models.loaders")
    batches = importlib.import_module("engines.duplex.moshi_batch")
    weights, codec, vocabulary = files.values()
    if config:
        found = loaders.CheckpointInfo.from_hf_repo(
            "", weights, codec, vocabulary, config_path=config_file
        )
    else:
        found = loaders.CheckpointInfo(weights, codec, vocabulary)
    tokenizer = found.get_text_tokenizer()
    return batches.MoshiModels(
        found.get_mimi(device=options.device),
        found.get_moshi(device=options.device, dtype=getattr(torch, options.dtype)),
        tokenizer.id_to_piece,
    )


def create(options: Mapping[str, object], store: ModelStore) -> MoshiEngine:
    return MoshiEngine(by_type(options, MoshiOptions()), read_checkpoint)
