"""The talker of Qwen2.5-Omni: it reads the whole prompt as the thinker read it, and gives one code of 20 ms a step.

A code is chosen as in the published generation: two codes end the speech, those that are marks are never chosen, and those that were
said, the prompt's own marks among them, are less likely to come again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engines.model_store import ModelStore
from engines.omni.edge import Conversation
from engines.omni.lacking import lacking
from engines.omni.options import Qwen25TalkerOptions, TalkerOptions, read_options
from engines.omni.parts import QWEN2_5, Weights
from engines.omni.sampling import Choice, choose, penalise
from engines.omni.slot_cache import SlotDecoder
from engines.omni.talker import Frames, OmniTalker, Opening
from engines.omni.voices import known_voice, read_voices

_THINKER_EMBEDDINGS = "thinker.model.embed_tokens.weight"
_OPENING = 2
"""Positions that open the answer."""

Tensor = Any


class Qwen25Talker:
    """TalkerModel. Raises ModelsMissing or EngineFault when it cannot be made."""

    reads: type = Conversation
    groups = 1

    def __init__(self, options: TalkerOptions) -> None:
        weights = Weights(options, QWEN2_5)
        self._model = model = weights.module(QWEN2_5.talker)
        self._decoder = SlotDecoder(model.model, options.slots, options.context)
        self._embed = model.get_input_embeddings()
        self._how = Choice(options.temperature, options.top_k, options.top_p)
        self._penalty = options.repetition_penalty
        self._device = model.codec_head.weight.device
        self._dtype = model.codec_head.weight.dtype
        self.ends = frozenset((int(model.codec_eos_token), int(model.codec_pad_token)))
        self._opening = [int(model.codec_pad_token), int(model.codec_bos_token)]
        shape = weights.config.token2wav_config
        factors = (shape.dit_config.repeats, *shape.bigvgan_config.upsample_rates)
        self.unit_samples = math.prod(map(int, factors))
        vocabulary = int(model.codebook_size)
        self._never = torch.zeros(vocabulary, dtype=torch.bool, device=self._device)
        self._never[int(shape.dit_config.num_embeds) :] = True
        self._is_end = torch.zeros_like(self._never)
        self._is_end[sorted(self.ends)] = True
        self._never &= ~self._is_end
        self._said = torch.zeros((options.slots, vocabulary), dtype=torch.bool, device=self._device)
        self._in_prompt = [int(model.codec_mask_token), *self._opening]
        self._voices = {
            name: int(voice["bos_token"]) for name, voice in read_voices(weights.folder).items()
        }
        marks = [int(model.text_eos_token), int(model.text_pad_token), *self._voices.values()]
        rows = weights.rows(_THINKER_EMBEDDINGS, marks).to(self._device, self._dtype)
        self._end, self._pad = rows[0], rows[1]
        self._begins = dict(zip(self._voices.values(), rows[2:], strict=True))

    def speaker(self, voice: str) -> int:
        return known_voice(self._voices, voice)

    def text(self, embedding: Tensor) -> Tensor:
        return embedding.to(self._device, self._dtype)

    def after_text(self, _: Conversation) -> tuple[Tensor, Tensor]:
        return self._end, self._pad

    def prompt(self, understood: Conversation, first: Tensor, speaker: int, room: int) -> Opening:
        """The end of what was said before, where there is no room for all of it."""
        most = max(0, room - _OPENING)
        states = understood.states[max(0, len(understood.states) - most) :]
        opening = torch.stack((self._begins[speaker], self.text(first)))
        opening = opening + self._embed(torch.tensor(self._opening, device=self._device))
        layout = understood.layout.without(len(understood.states) - len(states))
        return Opening(torch.cat((self.text(states), opening)), layout)

    def forward(
        self, rows: Sequence[int], starts: Sequence[int], embeds: Tensor, positions: Tensor
    ) -> Tensor:
        return self._decoder.forward(
            rows, starts, self._model.thinker_to_talker_proj(embeds), positions
        )

    def begin(self, slot: int) -> None:
        self._said[slot] = False
        self._said[slot, self._in_prompt] = True

    def said(self, slots: Sequence[int], codes: Sequence[int]) -> None:
        self._said[slots, codes] = True

    def frames(
        self, slots: Sequence[int], hidden: Tensor, may_end: Sequence[bool], chances: Tensor
    ) -> Frames:
        logits = self._model.codec_head(hidden).float()
        rows = torch.tensor(slots, device=self._device)
        logits = penalise(logits, self._said[rows], self._penalty)
        logits = logits.masked_fill(self._never, -torch.inf)
        going_on = ~torch.tensor(may_end, device=self._device)
        logits = logits.masked_fill(going_on[:, None] & self._is_end, -torch.inf)
        code = choose(logits, chances.to(self._device)[:, 0], self._how)
        return Frames(code[:, None], self._embed(code))


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, Qwen25TalkerOptions(), QWEN2_5, QWEN2_5.talker)


def create(options: Mapping[str, object], store: ModelStore) -> OmniTalker:
    return OmniTalker(read_options(options, Qwen25TalkerOptions()), Qwen25Talker)
