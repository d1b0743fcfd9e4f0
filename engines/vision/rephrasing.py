"""A template's answer in the words of a small model, and the check without which none of them is spoken.

Whatever carries meaning must come again, in the same order, and nothing else: kinds of object, numbers, places, colours, ages,
what was read, "not" and "may". All words but a closed list of empty ones (`_EMPTY`) count as such. So no noun can come that was not
found, no number change, and no two things trade places. A model that adds a garden to a flower is caught, and so is one that merely
turns a sentence around: then the template's own words are spoken.
"""

from __future__ import annotations

import re

from engines.base import ChatMessage, ThinkJob
from engines.vision.kind_names import NARROWER, number, words_for_kinds

_INSTRUCTIONS = "You rephrase sentences."
_TOKENS_A_WORD = 2
_LEAST_TOKENS = 16

_EMPTY = frozenset((
    "a", "an", "the", "i", "it", "is", "are", "was", "were", "be", "been", "am", "there", "here", "that", "this",
    "these", "those", "which", "and", "but", "with", "in", "on", "of", "at", "to", "by", "as", "for", "see", "saw",
    "seen", "can", "could", "do", "did", "does", "have", "has", "had", "also", "too", "sees", "seeing", "look",
    "looks", "like", "says", "said", "reads", "read", "say", "picture", "image", "camera", "view", "looking", "well",
    "so", "just", "both", "it's", "i'm", "that's", "there's",
))  # fmt: skip
"""Words that say nothing about what is there."""
_NUMBERS = {number(n): str(n) for n in range(1, 11)}
_SAME = {
    **_NUMBERS,
    "center": "centre", "middle": "centre", "colors": "colours", "color": "colour", "gray": "grey",
    "can't": "not", "cannot": "not", "don't": "not", "didn't": "not", "isn't": "not", "aren't": "not", "wasn't": "not",
    "weren't": "not", "couldn't": "not", "haven't": "not", "no": "not", "might": "may",
}  # fmt: skip
_WORD = re.compile(r"<[a-z ]+>|[^\W_]+(?:['-][^\W_]+)*")


def rephrasing(template: str) -> ThinkJob:
    """The job that says `template` in other words."""
    asked = f'Say this in other words, as short as it is: "{template}"'
    bound = max(_LEAST_TOKENS, _TOKENS_A_WORD * len(template.split()))
    return ThinkJob(
        _INSTRUCTIONS, (ChatMessage("user", asked),), tool_choice="none", max_tokens=bound
    )


def is_faithful(said: str, template: str) -> bool:
    """Whether `said` may be spoken in place of `template`."""
    return facts(said) == facts(template)


def facts(text: str) -> list[str]:
    """All that carries meaning, in its order and in one spelling."""
    plain = text.lower().replace("\u2019", "'")
    for name, kind in words_for_kinds(plain):
        if name not in NARROWER:
            plain = re.sub(rf"(?<![\w<]){re.escape(name)}(?![\w>])", f"<{kind}>", plain, count=1)
    words = (_SAME.get(word, word) for word in _WORD.findall(plain))
    return [word for word in words if word not in _EMPTY]
