"""What an answer says of a picture: sentences about what was found in it, in the present or the past, and about what cannot be told.

Every kind of object that a sentence says to be there was surely found; what is unsure is called so; of a kind that was not found it
is said that it was not. The detectors know kinds, places and printed text, and nothing of who anybody is, what is done, worn or
held, or what stands behind what: where a question goes beyond, the answer says so first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.base import SeenObject, VisualEvidence
from engines.vision.labels import NARROWER, a, asked, listed, number, plural


@dataclass(frozen=True, slots=True)
class Tense:
    """How findings are worded."""

    see: str
    not_see: str
    may: str
    unsure: str
    one_is: str
    many_are: str
    says: str
    no_text: str
    no_object: str
    nothing: str


PRESENT = Tense(
    see="I see", not_see="I do not see", may="There may be", unsure="I am not sure", one_is="is",
    many_are="are", says="It says", no_text="I cannot read any text", no_object="I do not recognise any object",
    nothing="The picture is dark or covered. I cannot make out anything.",
)  # fmt: skip
PAST = Tense(
    see="I saw", not_see="I did not see", may="There may have been", unsure="I was not sure", one_is="was",
    many_are="were", says="It said", no_text="I could not read any text", no_object="I did not recognise any object",
    nothing="The picture was dark or covered. I could not make out anything.",
)  # fmt: skip
UNREAD = "I have not read the text yet."


class Statement(NamedTuple):
    """`limit`: what cannot be told; `found`: what was found. Sentences."""

    limit: str
    found: str

    def __str__(self) -> str:
        return f"{self.limit} {self.found}".strip()


_TEXT = re.compile(r"\b(sign|read|written|write|writing|text|words?|letters?|says?)\b")
_COLOUR = re.compile(r"\bcolou?rs?\b")
_COLOUR_OF_ALL = re.compile(
    r"\bcolou?rs (are|in|of)\b(?! (it|this|that|these|those|my|your|his|her|their|our)\b)|\bcolou?rs? (do|can) you see\b|"
    r"\bmain colou?rs?\b|\b(picture|photo|image|room|background|scene)\b"
)
_LIT = re.compile(
    r"\b(is|was) (it|the (picture|room|image|light)) (too |very |so |quite )?(dark|bright|dim|light|on)\b"
)
_COUNT = re.compile(r"\bhow many\b")
_SELF = re.compile(r"\bsee (me|us)\b|\b(am i|are we) (still )?(visible|in (the|your) \w+)\b")
_PLAIN = re.compile(
    r"((is|are) there|(do|can) you see|is (this|that|it)) (an? |any |some )?#( (here|there|in (it|(the|this|that) (picture|photo|image))))?"
)
"""Asks whether a kind is there and nothing else about it: "yes" to more than that could be untrue."""
_OPEN = re.compile(
    r"^((and|so|ok|okay|well|please|now)[ ,]+)*(what(?! about)|who|whose|which|describe|why)\b"
)
_OF_BEHIND = re.compile(r"\bbehind (me|us)\b")
_OF_OWNER = re.compile(r"\b(my|our|your|his|her|their) (\w+ )?#")
_LIMITS: Sequence[tuple[re.Pattern[str], str]] = (
    (_OF_BEHIND, "I cannot tell who or what is behind you."),
    (re.compile(r"\b(am i|i am|i'm) (hold|carry|show|point)ing\b|\bin my hands?\b"),
     "I cannot tell what you are holding."),
    (re.compile(r"\b(hold|holds|holding|carry|carries|carrying|hands?)\b"), "I cannot tell who holds what."),
    (re.compile(r"\b(wear|wears|wearing|dressed|outfit|clothes|shirt|jacket)\b"), "I cannot tell what anybody wears."),
    (re.compile(r"\b(how old|what age|age|smil\w+|happy|sad|angry|tired|mood|emotions?|feel\w*|male|female|gender|"
                r"pretty|handsome|beautiful|ugly|how do (i|we) look|do (i|we) look)\b"),
     "I can tell nothing about a person but that there is one."),
    (re.compile(r"\bwhose\b"), "I cannot tell whose anything is."),
    (re.compile(r"\bwho\b|\b(recogni[sz]e|know) (me|him|her|us|them)\b"), "I cannot tell who anybody is."),
    (re.compile(r"\bwhere (am i|are we)\b"), "I cannot tell where you are."),
    (re.compile(r"\b(what|which) (kind|type|sort|brand|breed|make|model)\b"), "I know kinds of object and no finer ones."),
    (re.compile(r"\bhow (big|tall|far|large|long|high|heavy|wide|close|fast|much)\b"), "I cannot measure anything."),
    (re.compile(r"\bhow many\b(?! #)"), "I cannot count that."),
    (re.compile(r"\b(doing|happening|going on|moving|sleeping|sitting|standing|lying|running|walking|eating|drinking|"
                r"looking at me|am i \w+ing)\b"), "I cannot tell what anybody is doing."),
    (re.compile(r"\b(is|are) (the|my|this|that) \w+ (open|closed|broken|on|off|full|empty|clean|dirty|locked)\b"),
     "I cannot tell that."),
    (re.compile(r"\b(behind|in front of|next to|beside|under|above|on top of|around|between|inside)\s+(\w|#)|"
                r"\bwith (me|us|him|her|them)\b"), "I cannot tell what is behind, beside or in front of what."),
)  # fmt: skip
"""The first that fits is said."""
_SIDES: Mapping[str, str] = {
    "left": "on the left",
    "right": "on the right",
    "centre": "in the centre",
}
_LIGHT: Mapping[str, str] = {"normal": "normally lit", "dim": "dim", "bright": "bright"}
_NARROWER = re.compile(rf"\b({'|'.join(NARROWER)})\b")


def answer(question: str, evidence: VisualEvidence) -> str:
    """The words for one picture that is there now; `question` in lower case."""
    return str(answer_in(PRESENT, question, evidence))


def answer_in(tense: Tense, question: str, evidence: VisualEvidence) -> Statement:
    """The same in the present or the past."""
    if evidence.light == "dark":
        return Statement("", tense.nothing)
    kinds, rest = asked(question)
    if _TEXT.search(rest):
        if evidence.texts is None:
            return Statement(UNREAD, "")
        return Statement("", _text(evidence.texts, tense))
    if _COLOUR.search(rest) and evidence.colours:
        of_all = not kinds and _COLOUR_OF_ALL.search(rest)
        limit = "" if of_all else "I cannot tell the colour of one thing."
        return Statement(limit, _colours(evidence, tense))
    if _LIT.search(rest):
        return Statement(
            "", f"The picture {tense.one_is} {_LIGHT.get(evidence.light, evidence.light)}."
        )
    if _SELF.search(rest) and not kinds:
        return _of_self(evidence, tense)
    limit = _limit(rest)
    if kinds and (limit or _COUNT.search(rest) or not _OPEN.search(rest)):
        return _of_kinds(kinds, question, rest, evidence, tense)
    return Statement(limit, objects(evidence, tense) if limit else description(evidence, tense))


def _of_kinds(
    kinds: Sequence[str], question: str, rest: str, evidence: VisualEvidence, tense: Tense
) -> Statement:
    counted = bool(_COUNT.search(rest))
    found = " ".join(_presence(kind, evidence, tense, counted=counted) for kind in kinds)
    there = [kind for kind in kinds if _sure(kind, evidence)]
    if len(there) < len(kinds):  # what is not there needs no limits
        return Statement("", found)
    plain = _PLAIN.fullmatch(rest.strip(" .,?!")) and not _NARROWER.search(question)
    if plain and tense is PRESENT:
        return Statement("", f"Yes, {found}")
    if limit := _limit(rest):
        return Statement(limit, found)
    if _OF_OWNER.search(rest):
        return Statement("", f"{found} I cannot tell whose {_it_is(there, evidence)}.")
    if narrower := _NARROWER.search(question):
        return Statement(f"I know no finer kind than {NARROWER[narrower[0]]}.", found)
    return Statement("", found)


def _of_self(evidence: VisualEvidence, tense: Tense) -> Statement:
    found = _presence("person", evidence, tense, counted=False)
    if not _sure("person", evidence):
        return Statement("", found)
    return Statement("", f"{found} I cannot tell who {_it_is(['person'], evidence)}.")


def _it_is(kinds: Sequence[str], evidence: VisualEvidence) -> str:
    return "it is" if sum(len(_sure(kind, evidence)) for kind in kinds) == 1 else "they are"


def _limit(rest: str) -> str:
    return next((said for pattern, said in _LIMITS if pattern.search(rest)), "")


def _sure(kind: str, evidence: VisualEvidence) -> list[SeenObject]:
    return [seen for seen in evidence.objects if seen.sure and seen.kind == kind]


def _presence(kind: str, evidence: VisualEvidence, tense: Tense, *, counted: bool) -> str:
    if sure := _sure(kind, evidence):
        return f"{tense.see} {_places(kind, sure)}."
    if any(seen.kind == kind for seen in evidence.objects):
        return f"{tense.may} {a(kind)}, but {tense.unsure}."
    return f"{tense.not_see} {'any ' + plural(kind) if counted else a(kind)}."


def description(evidence: VisualEvidence, tense: Tense = PRESENT) -> str:
    """All that was found."""
    parts = [objects(evidence, tense)]
    if evidence.texts:
        parts.append(_text(evidence.texts, tense))
    if evidence.colours:
        parts.append(_colours(evidence, tense))
    return " ".join(parts)


def objects(evidence: VisualEvidence, tense: Tense = PRESENT) -> str:
    """The objects, sure and unsure."""
    groups: dict[str, list[SeenObject]] = {}
    for seen in evidence.objects:
        if seen.sure:
            groups.setdefault(seen.kind, []).append(seen)
    said = f"{tense.no_object}."
    if groups:
        said = f"{tense.see} {listed([_places(kind, seen) for kind, seen in groups.items()])}."
    unsure = sorted({seen.kind for seen in evidence.objects} - set(groups))
    if unsure:
        said += f" {tense.may} {listed([a(kind) for kind in unsure])}, but {tense.unsure}."
    return said


def _places(kind: str, seen: Sequence[SeenObject]) -> str:
    """ "two cats, one on the left and one in the centre"; of more than three only their number."""
    if len(seen) == 1:
        return f"{a(kind)} {_where(seen[0].place)}"
    places = Counter(_where(one.place) for one in seen)
    name = f"{number(len(seen))} {plural(kind)}"
    if len(places) == 1:
        return f"{name} {next(iter(places))}"
    if len(seen) > 3:
        return name
    return f"{name}, {listed([f'{number(count)} {where}' for where, count in places.items()])}"


def _where(place: str) -> str:
    side, _, size = place.partition(", ")
    return _SIDES.get(side, side) + {"close": ", close by", "small": ", small or far away"}.get(
        size, ""
    )


def _text(texts: Sequence[str], tense: Tense) -> str:
    return f"{tense.says}: {', '.join(texts)}." if texts else f"{tense.no_text}."


def _colours(evidence: VisualEvidence, tense: Tense) -> str:
    many = len(evidence.colours) > 1
    verb = f"s {tense.many_are}" if many else f" {tense.one_is}"
    return f"The main colour{verb} {listed(evidence.colours)}."
