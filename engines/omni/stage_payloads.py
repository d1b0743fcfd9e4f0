"""What Omni stages hand on: vision to thinker, thinker to talker, talker to vocoder.

Owns those values, and where the places of a prompt lie for rotary positions (`Layout`). The talker
reads the thinker's view of what was said before (`Understanding` in Qwen3-Omni, `PromptStates` in
Qwen2.5-Omni), then one embedding for each token of the answer (`Spoken`). Tensors are on the
stage's device, but for those of an `EmbeddedImage`.

Units: a position is three numbers (time, height, width). In text and sounds all three go on by one
a place. A picture that begins at position p has time p all over, its rows go down from p and its
columns to the right from p; what follows it lies behind its longer side. So positions fall behind
places by a number that only pictures change (`lag`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Tensor = Any


@dataclass(frozen=True, slots=True)
class Span:
    """A picture of `rows` times `columns` tokens, the first of them at place `at`."""

    at: int
    rows: int
    columns: int

    @property
    def end(self) -> int:
        return self.at + self.rows * self.columns

    @property
    def lag(self) -> int:
        """By how much fewer positions it takes than places."""
        return self.rows * self.columns - max(self.rows, self.columns)


@dataclass(frozen=True, slots=True)
class Layout:
    """`spans`: the pictures of a prompt, by place, none inside another."""

    spans: tuple[Span, ...] = ()

    @property
    def lag(self) -> int:
        """Place less position, behind the last picture."""
        return sum(span.lag for span in self.spans)

    def positions(self, begin: int, end: int) -> Tensor:
        """[3, end - begin] of the places from `begin` on."""
        import torch  # spans alone pass through processes without it

        places = torch.arange(begin, end)
        found = places.expand(3, -1).clone()
        lag = 0
        for span in self.spans:
            if span.at >= end:
                break
            inside = slice(max(span.at, begin) - begin, max(0, min(span.end, end) - begin))
            place, start = places[inside] - span.at, span.at - lag
            lag += span.lag
            found[:, max(0, span.end - begin) :] -= span.lag
            found[0, inside] = start
            found[1, inside] = start + place // span.columns
            found[2, inside] = start + place % span.columns
        return found

    def without(self, dropped: int) -> Layout:
        """After the first `dropped` places have gone. What is left of a picture that was cut lies in a row."""
        kept = (span for span in self.spans if span.at >= dropped)
        return Layout(tuple(Span(s.at - dropped, s.rows, s.columns) for s in kept))


NO_PICTURES = Layout()


def behind(places: Sequence[int], lags: Sequence[int]) -> Tensor:
    """Positions [3, rows, 1] of one token at each row's place; None where no row has a picture."""
    import torch

    if not any(lags):
        return None
    found = [place - lag for place, lag in zip(places, lags, strict=True)]
    return torch.tensor(found)[:, None].expand(3, -1, -1)


@dataclass(frozen=True, slots=True)
class EmbeddedImage:
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
class PromptStates:
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
