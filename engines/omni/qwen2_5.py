"""Qwen2.5-Omni's own thinker, talker and vision stage.

The talker reads the whole prompt as the thinker read it, and gives one code of 20 ms a step. A code
is chosen as in the published generation: two codes end the speech, those that are marks are never
chosen, and those that were said, the prompt's own marks among them, are less likely to come again.

The thinker tells its talker of the whole prompt, and of each token what reading it gave: the last
hidden state and the embedding together; in sounds and pictures the hidden state alone. A token's
state is known once the token was read, so its text goes out a step after it was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engines.model_store.store import ModelStore
from engines.omni.batched_decoding import SamplingParams, SlotDecoder, choose, penalise
from engines.omni.chat import Manners, Prompt
from engines.omni.options import Qwen25TalkerOptions, TalkerOptions, ThinkerOptions, read_options
from engines.omni.stage_payloads import PromptStates
from engines.omni.talker import OmniTalker, Opening, TalkerFrames
from engines.omni.thinker import OmniThinker
from engines.omni.thinker_model import ThinkerModel
from engines.omni.vision import OmniVision, create_for, missing_for
from engines.omni.weights import QWEN2_5, Weights, known_voice, lacking, read_voices

_THINKER_EMBEDDINGS = "thinker.model.embed_tokens.weight"
_OPENING = 2
"""Positions that open the answer."""

Tensor = Any


class Qwen25Talker:
    """TalkerModel. Raises ModelsMissing or EngineFault when it cannot be made."""

    reads: type = PromptStates
    groups = 1

    def __init__(self, options: TalkerOptions) -> None:
        weights = Weights(options, QWEN2_5)
        self._model = model = weights.module(QWEN2_5.talker)
        self._decoder = SlotDecoder(model.model, options.slots, options.context)
        self._embed = model.get_input_embeddings()
        self._how = SamplingParams(options.temperature, options.top_k, options.top_p)
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

    def after_text(self, _: PromptStates) -> tuple[Tensor, Tensor]:
        return self._end, self._pad

    def prompt(self, understood: PromptStates, first: Tensor, speaker: int, room: int) -> Opening:
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
    ) -> TalkerFrames:
        logits = self._model.codec_head(hidden).float()
        rows = torch.tensor(slots, device=self._device)
        logits = penalise(logits, self._said[rows], self._penalty)
        logits = logits.masked_fill(self._never, -torch.inf)
        going_on = ~torch.tensor(may_end, device=self._device)
        logits = logits.masked_fill(going_on[:, None] & self._is_end, -torch.inf)
        code = choose(logits, chances.to(self._device)[:, 0], self._how)
        return TalkerFrames(code[:, None], self._embed(code))


def missing_talker(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, Qwen25TalkerOptions(), QWEN2_5, QWEN2_5.talker)


def create_talker(options: Mapping[str, object], store: ModelStore) -> OmniTalker:
    return OmniTalker(read_options(options, Qwen25TalkerOptions()), Qwen25Talker)


_MANNERS = Manners(
    "<|AUDIO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|IMAGE|>",
    "<|vision_bos|>",
    "<|vision_eos|>",
    "You are Qwen, a virtual human developed by the Qwen Team, Alibaba Group, capable of perceiving auditory and visual"
    " inputs, as well as generating text and speech.",
)
"""The model was published with the advice that it speaks well under this system prompt only; instructions follow it."""


class _WholePrompt:
    """Telling."""

    late = True

    def __init__(self, loaded: ThinkerModel, options: ThinkerOptions) -> None:
        self._memory = loaded.memory(options)

    def remember(
        self, slot: int, prompt: Prompt, begin: int, embeds: Tensor, hidden: Tensor
    ) -> None:
        end = begin + len(embeds)
        self._memory[slot, begin:end] = hidden + embeds
        for first, last in prompt.senses_within(begin, end):
            self._memory[slot, first:last] = hidden[first - begin : last - begin]

    def read(
        self, slots: Sequence[int], places: Sequence[int], embeds: Tensor, hidden: Tensor
    ) -> Tensor:
        told = hidden + embeds
        # the next prompt of the session goes on behind this answer
        self._memory[slots, places] = told
        return told

    def understood(self, slot: int, prompt: Prompt) -> PromptStates:
        return PromptStates(self._memory[slot, : len(prompt)].clone(), prompt.layout())

    def copy(self, source: int, target: int, length: int) -> None:
        self._memory[target, :length] = self._memory[source, :length]


def _tokens_of(tower: Any, frames: int) -> int:  # noqa: ANN401 - a module of torch
    _, tokens = tower._get_feat_extract_output_lengths(frames)
    return int(tokens)


def _make(options: ThinkerOptions) -> ThinkerModel:
    loaded = ThinkerModel(options, QWEN2_5, _MANNERS, _tokens_of)
    loaded.telling = _WholePrompt(loaded, options)
    return loaded


def missing_thinker(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, ThinkerOptions(), QWEN2_5, QWEN2_5.thinker)


def create_thinker(options: Mapping[str, object], store: ModelStore) -> OmniThinker:
    return OmniThinker(read_options(options, ThinkerOptions()), _make)


def missing_vision(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return missing_for(options, QWEN2_5)


def create_vision(options: Mapping[str, object], store: ModelStore) -> OmniVision:
    return create_for(options, QWEN2_5)
