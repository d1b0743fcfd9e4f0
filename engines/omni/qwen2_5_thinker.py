"""The thinker of Qwen2.5-Omni: its talker is told of the whole prompt and of each token what reading it gave.

Of a place that is the last hidden state and the embedding together; in sounds and pictures the hidden state alone. A token's state is known
once the token was read, so that its text goes out a step after it was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engines.model_store import ModelStore
from engines.omni.chat import Manners, Prompt
from engines.omni.edge import Conversation
from engines.omni.lacking import lacking
from engines.omni.options import ThinkerOptions, read_options
from engines.omni.parts import QWEN2_5
from engines.omni.thinker import OmniThinker
from engines.omni.thinker_model import ThinkerModel

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

Tensor = Any


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

    def understood(self, slot: int, prompt: Prompt) -> Conversation:
        return Conversation(self._memory[slot, : len(prompt)].clone(), prompt.layout())

    def copy(self, source: int, target: int, length: int) -> None:
        self._memory[target, :length] = self._memory[source, :length]


def _tokens_of(tower: Any, frames: int) -> int:  # noqa: ANN401 - a module of torch
    _, tokens = tower._get_feat_extract_output_lengths(frames)
    return int(tokens)


def _make(options: ThinkerOptions) -> ThinkerModel:
    loaded = ThinkerModel(options, QWEN2_5, _MANNERS, _tokens_of)
    loaded.telling = _WholePrompt(loaded, options)
    return loaded


def missing(options: Mapping[str, object], store: ModelStore) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, ThinkerOptions(), QWEN2_5, QWEN2_5.thinker)


def create(options: Mapping[str, object], store: ModelStore) -> OmniThinker:
    return OmniThinker(read_options(options, ThinkerOptions()), _make)
