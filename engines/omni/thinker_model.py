"""What a thinker computes with: decoder over slots, ear, chat template, and what its family tells the talker. Pictures come embedded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from engines.omni.audio import AudioEncoderInput
from engines.omni.batched_decoding import SlotDecoder
from engines.omni.chat import Chat, Manners, Prompt
from engines.omni.options import ThinkerOptions
from engines.omni.stage_payloads import EmbeddedImage, behind
from engines.omni.weights import Family, Weights

Tensor = Any
_DEEP = "deepstack_visual_indexes"
"""Qwen3-Omni's: layers of the vision tower whose output goes deeper into the thinker, each into one layer."""


@dataclass(slots=True)
class PictureEmbeddings:
    """A part of a prompt as the decoder takes it: `embeds` [n, size]; where pictures are (`places` [n]), and what is added there to
    what leaves the first layers (`deep` [layers, of the places that are true, size]), None without."""

    embeds: Tensor
    places: Tensor = None
    deep: Tensor = None


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
        self.model.visual = None  # the vision stage has it: its memory is given back
        self._decoder = SlotDecoder(self.model.model, options.slots, options.context)
        self.device = self.model.lm_head.weight.device
        self.embed = self.model.get_input_embeddings()
        tower = self.model.audio_tower
        self.listener = AudioEncoderInput(
            self.weights.folder, tower, lambda frames: tokens_of(tower, frames), options.sound_s
        )
        self.chat = Chat(self.weights.folder, manners, self.listener.tokens)
        self._deep_layers = len(getattr(self.model.config.vision_config, _DEEP, ()))
        self._banned = torch.tensor(self.chat.unspoken, device=self.device)

    def memory(self, options: ThinkerOptions) -> Tensor:
        """Room for one state at each place of each slot."""
        weight = self.model.lm_head.weight
        shape = (options.slots, options.context, weight.shape[1])
        return torch.zeros(shape, dtype=weight.dtype, device=self.device)

    def forward(
        self, rows: Sequence[int], starts: Sequence[int], embeds: Tensor, lags: Sequence[int]
    ) -> Tensor:
        """Last states of one token [rows, 1, size] for each row. `lags`: by how much positions are behind places."""
        return self._decoder.forward(rows, starts, embeds, behind(starts, lags))

    def require_fit(self, sight: EmbeddedImage) -> None:
        """Raises ValueError for a picture that another model embedded."""
        size, deep = self.model.lm_head.weight.shape[1], self._deep_layers
        if sight.embeds.shape[-1] != size or len(sight.deep) != deep:
            raise ValueError("the picture was embedded by another model")

    def see(self, embeds: Tensor, prompt: Prompt, begin: int) -> PictureEmbeddings:
        """`embeds` [n, size] of the prompt's tokens from place `begin` on, with its pictures in them."""
        end, deep = begin + len(embeds), []
        places = torch.zeros(len(embeds), dtype=torch.bool, device=embeds.device)
        for at, sight in prompt.pictures:
            first, last = max(at, begin), min(at + len(sight.embeds), end)
            if first < last:
                places[first - begin : last - begin] = True
                embeds[first - begin : last - begin] = sight.embeds[first - at : last - at].to(
                    embeds
                )
                deep.append(sight.deep[:, first - at : last - at].to(embeds))
        if not deep or not self._deep_layers:
            return PictureEmbeddings(embeds)
        return PictureEmbeddings(embeds, places, torch.cat(deep, 1))

    def read(self, row: int, begin: int, seen: PictureEmbeddings, positions: Tensor) -> Tensor:
        """Last states [n, size] of a part of a prompt from place `begin` on; `positions` [3, n]."""
        more = {}
        if seen.deep is not None:
            more["visual_pos_masks"] = seen.places[None]
            more["deepstack_visual_embeds"] = list(seen.deep)
        embeds = seen.embeds[None]
        return self._decoder.forward([row], [begin], embeds, positions[:, None], **more)[0]

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
