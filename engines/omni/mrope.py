"""Where the places of a prompt lie for rotary positions: text and sounds in a row, a picture as rows and columns at one instant.

A position is three numbers (time, height, width). In text all three go on by one a place. A picture that begins at position p has time p
all over, its rows go down from p and its columns to the right from p; what follows it lies behind its longer side. So positions
fall behind places by a number that only pictures change (`lag`).
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
