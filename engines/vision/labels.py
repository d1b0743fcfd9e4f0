"""The 80 kinds of object that both detectors know, and their names in questions and answers.

The kinds are COCO's, in the order of the detectors' outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

KINDS: tuple[str, ...] = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone",
    "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors", "teddy bear",
    "hair drier", "toothbrush",
)  # fmt: skip


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_PLURALS: Mapping[str, str] = {
    "person": "people",
    "mouse": "mice",
    "knife": "knives",
    "sheep": "sheep",
    "skis": "pairs of skis",
    "scissors": "pairs of scissors",
}
_SINGULARS: Mapping[str, str] = {"skis": "pair of skis", "scissors": "pair of scissors"}
_OTHER_WORDS: Mapping[str, str] = {
    "anyone": "person", "anybody": "person", "someone": "person", "somebody": "person", "people": "person",
    "persons": "person", "human": "person", "humans": "person", "bike": "bicycle", "bikes": "bicycle",
    "motorbike": "motorcycle", "motorbikes": "motorcycle", "plane": "airplane", "planes": "airplane",
    "aeroplane": "airplane", "phone": "cell phone", "phones": "cell phone", "mobile": "cell phone",
    "smartphone": "cell phone", "television": "tv", "sofa": "couch", "sofas": "couch", "plant": "potted plant",
    "plants": "potted plant", "table": "dining table", "tables": "dining table", "fridge": "refrigerator",
    "doughnut": "donut", "doughnuts": "donut", "glass": "wine glass", "ball": "sports ball", "balls": "sports ball",
    "mug": "cup", "mugs": "cup", "bag": "handbag", "rucksack": "backpack", "teddy": "teddy bear",
    "hairdryer": "hair drier", "hair dryer": "hair drier", "necktie": "tie", "notebook computer": "laptop",
}  # fmt: skip
NARROWER: Mapping[str, str] = {
    "man": "person", "men": "person", "woman": "person", "women": "person", "boy": "person", "boys": "person",
    "girl": "person", "girls": "person", "child": "person", "children": "person", "kid": "person", "kids": "person",
    "baby": "person", "guy": "person", "lady": "person", "adult": "person", "student": "person", "kitten": "cat",
    "puppy": "dog", "taxi": "car", "van": "car", "pony": "horse", "calf": "cow", "bull": "cow", "lamb": "sheep",
    "parrot": "bird", "duck": "bird", "chicken": "bird", "armchair": "chair", "stool": "chair",
    "computer": "laptop", "monitor": "tv", "screen": "tv", "ship": "boat", "lorry": "truck",
}  # fmt: skip
"""Words for some of a kind, of which no detector knows more than the kind: may be asked about, and are never said."""


def singular(kind: str) -> str:
    return _SINGULARS.get(kind, kind)


def a(kind: str) -> str:
    """ "a cat"."""
    name = singular(kind)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def plural(kind: str) -> str:
    if kind in _PLURALS:
        return _PLURALS[kind]
    return f"{kind}es" if kind.endswith(("s", "ch", "sh")) else f"{kind}s"


def number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def several(kind: str, count: int) -> str:
    """ "a cat", "two cats"."""
    return a(kind) if count == 1 else f"{number(count)} {plural(kind)}"


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_NAMED: Mapping[str, str] = {
    **{name: kind for kind in KINDS for name in (kind, plural(kind))},
    **_OTHER_WORDS,
    **NARROWER,
}


def _pattern(names: Iterable[str]) -> re.Pattern[str]:
    """The longest first."""
    return re.compile(rf"\b({'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})\b")


_NAMES = _pattern(_NAMED)


def asked(question: str) -> tuple[list[str], str]:
    """The kinds that a question in lower case names, and the question with # in the place of each."""
    kinds: dict[str, None] = {}

    def masked(found: re.Match[str]) -> str:
        kinds[_NAMED[found[0]]] = None
        return "#"

    rest = _NAMES.sub(masked, question)
    return list(kinds), rest


def words_for_kinds(text: str) -> list[tuple[str, str]]:
    """Each word in a text, in lower case, that stands for a kind, with that kind."""
    return [(found[0], _NAMED[found[0]]) for found in _NAMES.finditer(text.lower())]
