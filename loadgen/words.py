"""How well the server understood: word errors of transcripts against what the user said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from loadgen.records import Turn


def normalised(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.sub(r"[^a-z0-9 ]", " ", text.lower().replace("'", "").replace("-", " ")).split()


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """(edit distance in words, words said)."""
    reference, hypothesis = normalised(said), normalised(heard)
    row = list(range(len(hypothesis) + 1))
    for i, word in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(hypothesis, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1], len(reference)


def recognition(turns: Iterable[Turn]) -> dict[str, Any]:
    """Over turns whose text is known and that got a transcript; `empty` counts blank transcripts."""
    errors = words = judged = empty = 0
    for turn in turns:
        if not turn.transcripts:
            continue
        heard = " ".join(turn.transcripts)
        empty += not heard.strip()
        if turn.text is None:
            continue
        wrong, said = word_errors(turn.text, heard)
        errors += wrong
        words += said
        judged += 1
    return {
        "turns": judged,
        "words": words,
        "word_errors": errors,
        "wer": round(errors / words, 4) if words else None,
        "empty": empty,
    }
