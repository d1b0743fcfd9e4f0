"""What a thinker computes with: decoder over slots, ear, chat template, and what its family tells the talker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from engines.omni.chat import Chat, Manners, Prompt
from engines.omni.options import ThinkerOptions
from engines.omni.parts import Family, Weights
from engines.omni.slot_cache import SlotDecoder
from engines.omni.sound import Listener

Tensor = Any


class Telling(Protocol):
    """What the talker will want to know, kept by slot.

    `late`: what is told of a token comes of reading it, a step after it was chosen; otherwise it is the token's embedding.
    """

    @property
    def late(self) -> bool: ...

    def remember(
        self, slot: int, prompt: Prompt, begin: int, embeds: Tensor, hidden: Tensor
    ) -> None:
        """After a pass over the prompt from `begin` on: `embeds` [n, size] went in, last states `hidden` [n, size] came out."""
        ...

    def read(
        self, slots: Sequence[int], places: Sequence[int], embeds: Tensor, hidden: Tensor
    ) -> Tensor:
        """After a token of each slot's answer [slots, size] was read at its place. What is told of them [slots, size]."""
        ...

    def understood(self, slot: int, prompt: Prompt) -> object:
        """The payload that goes before the answer."""
        ...

    def copy(self, source: int, target: int, length: int) -> None: ...


class ThinkerModel:
    """Raises ModelsMissing or EngineFault when it cannot be made. `tokens_of`: of the audio tower, mel frames to tokens."""

    telling: Telling

    def __init__(
        self,
        options: ThinkerOptions,
        family: Family,
        manners: Manners,
        tokens_of: Callable[[Any, int], int],
    ) -> None:
        self.weights = Weights(options, family)
        self.model = self.weights.module(family.thinker)
        self.model.visual = None  # nothing is seen: its memory is given back
        self._decoder = SlotDecoder(self.model.model, options.slots, options.context)
        self.device = self.model.lm_head.weight.device
        self.embed = self.model.get_input_embeddings()
        tower = self.model.audio_tower
        self.listener = Listener(
            self.weights.folder, tower, lambda frames: tokens_of(tower, frames), options.sound_s
        )
        self.chat = Chat(self.weights.folder, manners, self.listener.tokens)
        self._banned = torch.tensor(self.chat.unspoken, device=self.device)

    def memory(self, options: ThinkerOptions) -> Tensor:
        """Room for one state at each place of each slot."""
        weight = self.model.lm_head.weight
        shape = (options.slots, options.context, weight.shape[1])
        return torch.zeros(shape, dtype=weight.dtype, device=self.device)

    def forward(self, rows: Sequence[int], starts: Sequence[int], embeds: Tensor) -> Tensor:
        return self._decoder.forward(rows, starts, embeds)

    def logits(self, hidden: Tensor) -> Tensor:
        logits = self.model.lm_head(hidden)
        logits[:, self._banned] = -torch.inf
        logits[:, self.chat.size :] = -torch.inf
        return logits

    def copy(self, source: int, target: int, length: int) -> None:
        """What one slot knows of a prompt's beginning, into another."""
        with torch.inference_mode():
            self._decoder.cache.copy(source, target, length)
            self.telling.copy(source, target, length)
