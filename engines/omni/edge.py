"""What passes from the thinker to the talker, and from the talker to the vocoder. Tensors on the stage's device.

The talker reads the thinker's view of what the user said (`Understanding`), then one embedding for each token of the
answer (`Spoken`). `user` rows are embeddings of text tokens; where `heard` is true they are the thinker's hidden states of
audio tokens instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Tensor = Any


@dataclass(frozen=True, slots=True)
class Understanding:
    """`user` [n, size], `heard` [n]: all of the conversation's user messages; `opening` [3, size]: the embeddings that open
    the answer; `marks` [3, size]: of beginning, end and padding of speech."""

    user: Tensor
    heard: Tensor
    opening: Tensor
    marks: Tensor


@dataclass(frozen=True, slots=True)
class Spoken:
    """One token of the answer: its embedding [size]."""

    embedding: Tensor


@dataclass(frozen=True, slots=True)
class CodecFrames:
    """Codes [frames, groups] of one answer, in order."""

    codes: Tensor
