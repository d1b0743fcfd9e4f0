"""What one set of logits becomes, and the contract of answers that turn logits into it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engines.cpu.smollm_model import Logits

STOP, LENGTH = "stop", "max_output_tokens"


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens to append to the sequence (more than one where a grammar forces them) and the whole characters that
    they complete. `reason` is set on the last piece."""

    tokens: tuple[int, ...]
    text: str
    reason: str | None = None


class Answer(Protocol):
    """An answer while it grows."""

    def advance(self, logits: Logits) -> Piece:
        """Go on; the logits may be edited."""
        ...

    def finish(self) -> Piece:
        """End at once, because there is no room for more."""
        ...
