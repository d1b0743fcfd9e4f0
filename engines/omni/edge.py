"""What passes from the vision stage to the thinker, from there to the talker, and from the talker to the vocoder. Tensors on the
stage's device, but for those of a `Sight`.

The talker reads the thinker's view of what was said before (`Understanding` in Qwen3-Omni, `Conversation` in Qwen2.5-Omni), then
one embedding for each token of the answer (`Spoken`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engines.omni.mrope import NO_PICTURES, Layout

Tensor = Any


@dataclass(frozen=True, slots=True)
class Sight:
    """A picture as the thinker takes it, in main memory: `embeds` [rows * columns, size] instead of its tokens' embeddings, and
    `deep` [layers, rows * columns, size], added to what leaves the first layers (Qwen3-Omni; none in Qwen2.5-Omni)."""

    rows: int
    columns: int
    embeds: Tensor
    deep: Tensor


@dataclass(frozen=True, slots=True)
class Understanding:
    """`user` [n, size], `heard` [n]: all of the conversation's user messages, as embeddings of text tokens, and where `heard`
    is true as the thinker's hidden states of audio and picture tokens; `opening` [3, size]: the embeddings that open
    the answer; `marks` [3, size]: of beginning, end and padding of speech; `layout`: where in `user` pictures are."""

    user: Tensor
    heard: Tensor
    opening: Tensor
    marks: Tensor
    layout: Layout = NO_PICTURES


@dataclass(frozen=True, slots=True)
class Conversation:
    """`states` [n, size]: the whole prompt, instructions and earlier answers too; `layout`: where in it pictures are."""

    states: Tensor
    layout: Layout = NO_PICTURES


@dataclass(frozen=True, slots=True)
class Spoken:
    """One token of the answer: its embedding [size], in Qwen2.5-Omni with what reading it gave."""

    embedding: Tensor


@dataclass(frozen=True, slots=True)
class CodecFrames:
    """Codes [frames, groups] of one answer, in order, in main memory."""

    codes: Tensor
