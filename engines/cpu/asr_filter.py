"""Tells recognised speech from what the recogniser makes up on noise.

Moonshine, like every model trained on subtitles, answers noise with stock phrases, with loops, or with words that
it hardly believes itself. `confidence` is the mean natural logarithm of the probability of each chosen
token, the end mark included: clean speech is above -0.5, babble mostly below -0.9.
"""

from __future__ import annotations

import re

UNBELIEVED = -0.9
_PHANTOM_UNBELIEVED = -0.15
_PHANTOMS = frozenset(
    {"you", "thank you for watching", "thanks for watching", "bye", "so", "mm hmm"}
)
_MUSIC = re.compile("[\u266a\u266b\u2669\u266c]+")
_WORDS = re.compile(r"[\w']+")
_LONGEST_PHRASE = 8
_LOOP_REPEATS = 3


def loop_start(items: list[int] | list[str], repeats: int = _LOOP_REPEATS) -> int | None:
    """Where the tail of `items` begins to repeat itself: the end of a phrase's first occurrence when the
    tail is that phrase `repeats` times (a single item: twice as often). None when it does not loop."""
    for size in range(1, _LONGEST_PHRASE + 1):
        needed = repeats * 2 if size == 1 else repeats
        if len(items) < size * needed:
            continue
        phrase = items[-size:]
        count = 1
        while items[len(items) - size * (count + 1) : len(items) - size * count] == phrase:
            count += 1
        if count >= needed:
            return len(items) - size * (count - 1)
    return None


def believable(text: str, confidence: float) -> str:
    """`text`, or nothing when it was made up."""
    text = _MUSIC.sub("", text).strip()
    words = [word.lower() for word in _WORDS.findall(text)]
    if not words or confidence < UNBELIEVED:
        return ""
    if " ".join(words) in _PHANTOMS and confidence < _PHANTOM_UNBELIEVED:
        return ""
    return "" if _mostly_loop(words) else text


def _mostly_loop(words: list[str]) -> bool:
    start = loop_start(words)
    return start is not None and len(words) - start >= len(words) // 2
