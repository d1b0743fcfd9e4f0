"""Qwen3-Omni's own thinker, talker and vision stage.

The thinker tells its talker of the user's messages alone, and of each token's embedding. The talker
has its own prompt and its own decoder over slots, and gives whole frames of 16 codes. Its decoder
gives the first code of a frame; the code predictor, a small decoder of its own, gives the others
one after the other, each from those before it. Codes that were said are less likely to come again
(`repetition_penalty`), as in the published generation; which ones is kept by slot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engines.model_store.store import ModelStore
from engines.omni.batched_decoding import SamplingParams, SlotDecoder, choose, penalise
from engines.omni.chat import QWEN3 as MANNERS, Prompt
from engines.omni.options import Qwen3TalkerOptions, ThinkerOptions, read_options
from engines.omni.stage_payloads import Understanding
from engines.omni.talker import OmniTalker, Opening, TalkerFrames
from engines.omni.thinker import OmniThinker
from engines.omni.thinker_model import ThinkerModel
from engines.omni.vision import OmniVision, create_for, missing_for
from engines.omni.weights import QWEN3, Weights, known_voice, lacking

_CONTROL_CODES = 1024
"""The last codes of the talker's vocabulary are marks, none of which but the end may be chosen."""
_OPENING = 9
"""Positions that open the answer."""

Tensor = Any


class Qwen3Talker:
    """TalkerModel. Raises ModelsMissing or EngineFault when it cannot be made."""

    reads: type = Understanding

    def __init__(self, options: Qwen3TalkerOptions) -> None:
        weights = Weights(options, QWEN3)
        self._model = weights.module(QWEN3.talker)
        self._predictor = self._model.code_predictor
        self._config = weights.config.talker_config
        self._decoder = SlotDecoder(self._model.model, options.slots, options.context)
        self._how = SamplingParams(options.temperature, options.top_k, options.top_p)
        self._predict = SamplingParams(
            options.temperature and 1.0, options.predictor_top_k, options.predictor_top_p
        )
        self._penalty = options.repetition_penalty
        self._device = self._model.codec_head.weight.device
        self._dtype = self._model.codec_head.weight.dtype
        self.groups = int(self._config.num_code_groups)
        end = int(self._config.codec_eos_token_id)
        self.ends = frozenset((end,))
        vocabulary = int(self._config.text_config.vocab_size)
        self._never = torch.zeros(vocabulary, dtype=torch.bool, device=self._device)
        self._never[vocabulary - _CONTROL_CODES :] = True
        self._never[end] = False
        self._end = end
        self._said = torch.zeros((options.slots, vocabulary), dtype=torch.bool, device=self._device)
        shape = weights.config.code2wav_config
        factors = (*shape.upsample_rates, *shape.upsampling_ratios)
        self.unit_samples = math.prod(map(int, factors))

    def speaker(self, voice: str) -> int:
        voices = {name.lower(): code for name, code in (self._config.speaker_id or {}).items()}
        return int(known_voice(voices, voice))

    def text(self, embedding: Tensor) -> Tensor:
        return self._model.text_projection(embedding.to(self._device, self._dtype))

    def after_text(self, understood: Understanding) -> tuple[Tensor, Tensor]:
        _, end, pad = self.text(understood.marks)
        return end, pad

    def prompt(self, understood: Understanding, first: Tensor, speaker: int, room: int) -> Opening:
        """The user's messages (the last of them, where there is no room for all), then the opening of
        the answer, which ends with its first token."""
        model, config = self._model, self._config
        most = max(0, room - _OPENING)
        user = (
            understood.user[-most:].to(self._device, self._dtype) if most else understood.user[:0]
        )
        heard = understood.heard[-most:].to(self._device) if most else understood.heard[:0]
        begin, _, pad = self.text(understood.marks)
        opening = self.text(understood.opening)
        text = torch.cat((opening, pad.expand(4, -1), begin[None], self.text(first)[None]))
        marks = (
            config.codec_nothink_id,
            config.codec_think_bos_id,
            config.codec_think_eos_id,
            speaker,
            config.codec_pad_id,
            config.codec_bos_id,
        )
        codes = model.get_input_embeddings()(torch.tensor(marks, device=self._device))
        text[len(opening) :] += codes
        said = model.text_projection(user)
        if len(user):
            said[heard] = model.hidden_projection(user[heard])
        layout = understood.layout.without(len(understood.user) - len(user))
        return Opening(torch.cat((said, text)), layout)

    def forward(
        self, rows: Sequence[int], starts: Sequence[int], embeds: Tensor, positions: Tensor
    ) -> Tensor:
        return self._decoder.forward(rows, starts, embeds, positions)

    def begin(self, slot: int) -> None:
        self._said[slot] = False

    def said(self, slots: Sequence[int], codes: Sequence[int]) -> None:
        self._said[slots, codes] = True

    def frames(
        self, slots: Sequence[int], hidden: Tensor, may_end: Sequence[bool], chances: Tensor
    ) -> TalkerFrames:
        chances = chances.to(self._device)
        code = choose(self._first_logits(slots, hidden, may_end), chances[:, 0], self._how)
        embed = self._model.get_input_embeddings()(code)
        codes, total = [code], embed
        known: Tensor = self._new_cache()
        step = torch.stack((hidden, embed), 1)
        for group in range(self.groups - 1):
            state = self._predictor.model(
                inputs_embeds=step, past_key_values=known, use_cache=True
            ).last_hidden_state[:, -1]
            code = choose(
                self._predictor.lm_head[group](state), chances[:, group + 1], self._predict
            )
            embed = self._predictor.model.codec_embedding[group](code)
            codes.append(code)
            total = total + embed
            step = embed[:, None]
        return TalkerFrames(torch.stack(codes, 1), total)

    def _first_logits(
        self, slots: Sequence[int], hidden: Tensor, may_end: Sequence[bool]
    ) -> Tensor:
        logits = self._model.codec_head(hidden)
        rows = torch.tensor(slots, device=self._device)
        logits = penalise(logits, self._said[rows], self._penalty)
        logits = logits.masked_fill(self._never, -torch.inf)
        going_on = ~torch.tensor(may_end, device=self._device)
        logits[going_on, self._end] = -torch.inf
        return logits

    @staticmethod
    def _new_cache() -> Tensor:
        from transformers import DynamicCache  # known since the model was loaded

        return DynamicCache()


def missing_talker(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, Qwen3TalkerOptions(), QWEN3, QWEN3.talker)


def create_talker(options: Mapping[str, object], store: ModelStore) -> OmniTalker:
    read = read_options(options, Qwen3TalkerOptions())
    return OmniTalker(read, lambda _: Qwen3Talker(read))


_SPEECH_MARKS = ("<tts_text_bos>", "<tts_text_eod>", "<tts_pad>")


class _UserMessages:
    """Telling: embeddings of text, and of sounds and pictures what leaves the layer that the talker listens to."""

    late = False

    def __init__(self, loaded: ThinkerModel, options: ThinkerOptions) -> None:
        self._memory = loaded.memory(options)
        self._device = loaded.device
        self._middle: Tensor = None
        # what leaves layer 0 would be the embeddings
        layer = loaded.weights.config.talker_config.accept_hidden_layer
        loaded.model.model.layers[layer - 1].register_forward_hook(self._keep)
        chat, embed = loaded.chat, loaded.embed
        with torch.inference_mode():
            marks = [chat.token(mark) for mark in _SPEECH_MARKS]
            self._marks = embed(torch.tensor(marks, device=self._device))
            self._opening = embed(torch.tensor(chat.opening("assistant"), device=self._device))

    def _keep(self, _module: object, _inputs: object, output: Tensor) -> None:
        self._middle = output

    def remember(
        self, slot: int, prompt: Prompt, begin: int, embeds: Tensor, hidden: Tensor
    ) -> None:
        end = begin + len(embeds)
        self._memory[slot, begin:end] = embeds
        for first, last in prompt.senses_within(begin, end):
            self._memory[slot, first:last] = self._middle[0, first - begin : last - begin]

    def read(
        self, slots: Sequence[int], places: Sequence[int], embeds: Tensor, hidden: Tensor
    ) -> Tensor:
        return embeds

    def understood(self, slot: int, prompt: Prompt) -> Understanding:
        user = torch.tensor(prompt.user, device=self._device)
        heard = torch.zeros(len(prompt), dtype=torch.bool)
        for first, last in prompt.senses_within(0, len(prompt)):
            heard[first:last] = True
        said = self._memory[slot, : len(prompt)][user]
        return Understanding(
            said, heard.to(self._device)[user], self._opening, self._marks, prompt.user_layout()
        )

    def copy(self, source: int, target: int, length: int) -> None:
        self._memory[target, :length] = self._memory[source, :length]


def _tokens_of(tower: Any, frames: int) -> int:  # noqa: ANN401 - a module of torch
    from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import (
        _get_feat_extract_output_lengths as lengths,
    )

    return int(lengths(torch.tensor(frames), int(tower.config.n_window)))


def _make(options: ThinkerOptions) -> ThinkerModel:
    loaded = ThinkerModel(options, QWEN3, MANNERS, _tokens_of)
    loaded.telling = _UserMessages(loaded, options)
    return loaded


def missing_thinker(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, ThinkerOptions(), QWEN3, QWEN3.thinker)


def create_thinker(options: Mapping[str, object], store: ModelStore) -> OmniThinker:
    return OmniThinker(read_options(options, ThinkerOptions()), _make)


def missing_vision(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return missing_for(options, QWEN3)


def create_vision(options: Mapping[str, object], store: ModelStore) -> OmniVision:
    return create_for(options, QWEN3)
