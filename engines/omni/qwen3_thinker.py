"""The thinker of Qwen3-Omni: its talker is told of the user's messages alone, and each token's embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from engines.model_store import ModelStore
from engines.omni.chat import QWEN3 as MANNERS, Prompt
from engines.omni.edge import Understanding
from engines.omni.lacking import lacking
from engines.omni.options import ThinkerOptions, read_options
from engines.omni.parts import QWEN3
from engines.omni.thinker import OmniThinker
from engines.omni.thinker_model import ThinkerModel

_SPEECH_MARKS = ("<tts_text_bos>", "<tts_text_eod>", "<tts_pad>")

Tensor = Any


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


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, ThinkerOptions(), QWEN3, QWEN3.thinker)


def create(options: Mapping[str, object], store: ModelStore) -> OmniThinker:
    return OmniThinker(read_options(options, ThinkerOptions()), _make)
