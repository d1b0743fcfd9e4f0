"""Answers to questions about a picture, built from what was found in it and from nothing else.

A small model that is told what is in a picture adds things that are not. So the words come from a template: every kind of object
that an answer says to be there was surely found; what is unsure is called so; of a kind that was not found it is said that it was not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from engines.base import ChatMessage, SeenObject, VisualEvidence
from engines.vision.coco import KINDS

_OTHER_TURNS = 2
"""After so many turns about something else, a question without a picture is about none."""

_MARK = re.compile(r"\[Picture: [^\n]*\]")
_NOT_ALL = "I could not look at every picture."
_ABOUT = re.compile(
    r"\b(see|look|looks|looking|picture|photo|photograph|image|camera|show|shows|sign|read|written|text|"
    r"behind|holding|hold|colou?rs?|how many|is there|are there|any(one|body|thing)|"
    r"what('s| is| are) (this|that|these|those|it))\b"
)
_TEXT = re.compile(r"\b(sign|read|written|write|text|words?|letters?|says?)\b")
_COLOUR = re.compile(r"\bcolou?rs?\b")
_COUNT = re.compile(r"\bhow many\b")
_PLAIN = re.compile(
    r"((is|are) there|(do|can) you see|is (this|that|it)) (an? |any |some )?#( (here|there|in (it|(the|this|that) (picture|photo|image))))?"
)
"""Asks whether a kind is there and nothing else about it: "yes" to more than that could be untrue."""
_EXISTS = re.compile(
    r"\b(is|are|was) (there|that|this|it|any\w*)\b|\b(do|can) you see an?\b|\bany(one|body)\b|\bhow many\b"
)
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
    "plane": "airplane", "planes": "airplane", "aeroplane": "airplane", "phone": "cell phone", "phones": "cell phone",
    "television": "tv", "sofa": "couch", "plant": "potted plant", "plants": "potted plant", "table": "dining table",
    "fridge": "refrigerator", "doughnut": "donut", "glass": "wine glass", "ball": "sports ball",
}  # fmt: skip
_SIDES: Mapping[str, str] = {
    "left": "on the left",
    "right": "on the right",
    "centre": "in the centre",
}


def picture_answer(messages: Sequence[ChatMessage]) -> str | None:
    """What to say to the last message, or None when it asks about no picture."""
    if not messages or messages[-1].role != "user":
        return None
    last = messages[-1]
    question = _words(last.content)
    shown = _shown(messages)
    if shown is None or not (_ABOUT.search(question) or (shown is last and _asks(question))):
        return None
    said = [answer(question, evidence) for evidence in shown.pictures]
    if len(said) > 1:
        said = [f"Picture {_number(place)}: {one}" for place, one in enumerate(said, 1)]
    if _unseen(shown):  # an older one is not what is asked about
        said.append("I could not look at the picture." if not said else _NOT_ALL)
    return " ".join(said)


def _asks(question: str) -> bool:
    """Whether what comes with its own picture is a question, or nothing but the picture."""
    return not question or question.endswith("?")


def _shown(messages: Sequence[ChatMessage]) -> ChatMessage | None:
    """The newest message with pictures, unless the user has spoken of other things since."""
    others = 0
    for message in reversed(messages):
        if message.pictures or _unseen(message):
            return message
        if message.role == "user" and not _ABOUT.search(_words(message.content)):
            others += 1
            if others == _OTHER_TURNS:
                return None
    return None


def _unseen(message: ChatMessage) -> int:
    """How many pictures of the message could not be looked at."""
    if message.role != "user":
        return 0
    return max(0, len(_MARK.findall(message.content)) - len(message.pictures))


def answer(question: str, evidence: VisualEvidence) -> str:
    """The words for one picture; `question` in lower case."""
    if evidence.light == "dark":
        return "The picture is dark or covered. I cannot make out anything."
    kinds, rest = _asked(question)
    if _TEXT.search(rest):
        return _text(evidence)
    if _COLOUR.search(rest) and evidence.colours:
        of_one = "I cannot tell the colour of one thing. " if kinds else ""
        return of_one + _colours(evidence)
    if kinds and _EXISTS.search(question):
        counted = bool(_COUNT.search(question))
        said = " ".join(_presence(kind, evidence, counted=counted) for kind in kinds)
        plain = _PLAIN.fullmatch(rest.strip(" .,?!")) and said.startswith("I see ")
        return f"Yes, {said}" if plain else said
    return _description(evidence)


def _words(content: str) -> str:
    """What was said, without what stands for the pictures."""
    return _MARK.sub("", content).strip().lower()


def _asked(question: str) -> tuple[list[str], str]:
    """The kinds of object that the question names, and the question with # in the place of each."""
    kinds: dict[str, None] = {}

    def masked(found: re.Match[str]) -> str:
        kinds[_NAMED[found[0]]] = None
        return "#"

    rest = _NAMES.sub(masked, question)
    return list(kinds), rest


def _presence(kind: str, evidence: VisualEvidence, *, counted: bool) -> str:
    sure = [seen for seen in evidence.objects if seen.sure and seen.kind == kind]
    if sure:
        return f"I see {_several(kind, sure)}."
    if any(seen.kind == kind for seen in evidence.objects):
        return f"There may be {_a(kind)}, but I am not sure."
    return f"I do not see {'any ' + _plural(kind) if counted else _a(kind)}."


def _description(evidence: VisualEvidence) -> str:
    groups: dict[str, list[SeenObject]] = {}
    for seen in evidence.objects:
        if seen.sure:
            groups.setdefault(seen.kind, []).append(seen)
    parts = []
    if groups:
        parts.append(f"I see {_listed([_several(kind, seen) for kind, seen in groups.items()])}.")
    else:
        parts.append("I do not recognise any object in it.")
    unsure = sorted({seen.kind for seen in evidence.objects} - set(groups))
    if unsure:
        parts.append(f"There may be {_listed([_a(kind) for kind in unsure])}, but I am not sure.")
    if evidence.texts:
        parts.append(_text(evidence))
    if evidence.colours:
        parts.append(_colours(evidence))
    return " ".join(parts)


def _several(kind: str, seen: Sequence[SeenObject]) -> str:
    """ "two cats, one on the left and one in the centre"; of more than three only their number."""
    if len(seen) == 1:
        return f"{_a(kind)} {_where(seen[0].place)}"
    places = Counter(_where(one.place) for one in seen)
    name = f"{_number(len(seen))} {_plural(kind)}"
    if len(places) == 1:
        return f"{name} {next(iter(places))}"
    if len(seen) > 3:
        return name
    return f"{name}, {_listed([f'{_number(count)} {where}' for where, count in places.items()])}"


def _where(place: str) -> str:
    side, _, size = place.partition(", ")
    return _SIDES[side] + {"close": ", close by", "small": ", small or far away"}.get(size, "")


def _text(evidence: VisualEvidence) -> str:
    if not evidence.texts:
        return "I cannot read any text in it."
    return f"It says: {', '.join(evidence.texts)}."


def _colours(evidence: VisualEvidence) -> str:
    many = len(evidence.colours) > 1
    return f"The main colour{'s are' if many else ' is'} {_listed(evidence.colours)}."


def _a(kind: str) -> str:
    name = _SINGULARS.get(kind, kind)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _plural(kind: str) -> str:
    if kind in _PLURALS:
        return _PLURALS[kind]
    return f"{kind}es" if kind.endswith(("s", "ch", "sh")) else f"{kind}s"


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_NAMED: Mapping[str, str] = {
    **{name: kind for kind in KINDS for name in (kind, _plural(kind))},
    **_OTHER_WORDS,
}
_NAMES = re.compile(
    rf"\b({'|'.join(re.escape(name) for name in sorted(_NAMED, key=len, reverse=True))})\b"
)
"""The longest first."""
