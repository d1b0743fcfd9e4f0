"""Answers about what the camera shows, true of the picture at that moment, with its age said.

A picture that is younger than `PRESENT_S` is spoken of in the present; an older one in the past, with its age; where there is no
current picture nothing is said to be there. Ages in seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from engines.base import CameraView
from engines.vision.camera_questions import About
from engines.vision.evidence_words import PAST, answer, answer_in, objects
from engines.vision.kind_names import listed, number, plural, several, singular

PRESENT_S = 1.0
_LINES = 3
_NOTHING = "I have not seen anything different before."
_LINE = re.compile(r"(?:(now)|(\d+) (s|min) ago): (.+)")
_COUNTED = re.compile(r"(\d+) (.+)")
_CHANGE = re.compile(r"\[Camera change:(?P<parts>[^\]]*)\]")
_LIVING = frozenset(
    (
        "person",
        "bird",
        "cat",
        "dog",
        "horse",
        "sheep",
        "cow",
        "elephant",
        "bear",
        "zebra",
        "giraffe",
    )
)


def camera_answer(question: str, view: CameraView, about: About) -> str:
    """`question` in lower case."""
    if about is About.NOW:
        return _now(question, view)
    if about is About.BEFORE:
        return _before(view)
    return f"{_before(view, 1)} {_state(view)}"


def _now(question: str, view: CameraView) -> str:
    if view.evidence is None:
        return _no_picture(view)
    if view.age_s < PRESENT_S:
        return answer(question, view.evidence)
    limit, found = answer_in(PAST, question, view.evidence)
    return f"{limit} {_aged(_ago(view.age_s), found)}".strip() if found else limit


def _no_picture(view: CameraView) -> str:
    came = f" The last one came {_ago(view.age_s)}." if view.age_s >= PRESENT_S else ""
    return f"I have no current picture.{came}"


def _state(view: CameraView) -> str:
    """What is there now, in short."""
    if view.evidence is None:
        return _no_picture(view)
    if view.evidence.light == "dark":
        return _now("", view)
    if view.age_s < PRESENT_S:
        return f"Now {objects(view.evidence)}"
    return _aged(_ago(view.age_s), objects(view.evidence, PAST))


def _before(view: CameraView, most: int = _LINES) -> str:
    """The newest of what was seen before, the newest first."""
    said = [_line(line) for line in view.earlier[: -most - 1 : -1]]
    return " ".join(said) or _NOTHING


def _line(line: str) -> str:
    """ "5 s ago: 2 person, 1 dog" as a sentence; a line of another form as it is."""
    parts = _LINE.fullmatch(line.strip())
    if parts is None:
        return f"Before, there was this: {line.strip().rstrip('.')}."
    now, count, unit, seen = parts.groups()
    age = "a moment ago" if now else _ago(int(count) * (60 if unit == "min" else 1))
    kinds = [_COUNTED.fullmatch(kind.strip()) for kind in seen.split(",")]
    if any(kind is None for kind in kinds):
        return _aged(age, "I did not recognise any object.")
    return _aged(age, f"I saw {listed([several(k[2], int(k[1])) for k in kinds if k])}.")


def _aged(age: str, sentence: str) -> str:
    """ "Two seconds ago I saw ..."."""
    begun = sentence if sentence.startswith("I ") else sentence[0].lower() + sentence[1:]
    return f"{age[0].upper()}{age[1:]} {begun}"


def _ago(age_s: float) -> str:
    if age_s < 1:
        return "a moment ago"
    count, unit = (int(age_s), "second") if age_s < 60 else (int(age_s / 60), "minute")
    return f"{number(count)} {unit}{'s' if count > 1 else ''} ago"


def is_comment(content: str) -> bool:
    """Whether a system message asks for a comment on a change."""
    return content.startswith("[Camera change:")


def comment(content: str, view: CameraView | None) -> str:
    """What to say to a change, `[Camera change: came: person, cup; left: dog]`; nothing where nothing changed, or where there is
    no current picture any more."""
    found = _CHANGE.match(content)
    if found is None or view is None or view.evidence is None:
        return ""
    there = Counter(seen.kind for seen in view.evidence.objects if seen.sure)
    parts = dict(part.strip().partition(":")[::2] for part in found["parts"].split(";"))
    came, left = (_counted(parts.get(name, "")) for name in ("came", "left"))
    return " ".join((*_came(came, there), *_left(left, there)))


def _counted(kinds: str) -> Counter[str]:
    return Counter(kind.strip() for kind in kinds.split(",") if kind.strip())


def _came(came: Counter[str], there: Counter[str]) -> Iterable[str]:
    if came:
        names = [
            f"another {singular(kind)}" if count == 1 and there[kind] > 1 else several(kind, count)
            for kind, count in came.items()
        ]
        living = any(kind in _LIVING for kind in came)
        said = f"{listed(names)} {'came in' if living else 'appeared'}."
        yield said[0].upper() + said[1:]


def _left(left: Counter[str], there: Counter[str]) -> Iterable[str]:
    """ "the" only of what is gone altogether."""
    if left:
        names = [_gone(kind, count, rest=there[kind] > 0) for kind, count in left.items()]
        said = f"{listed(names)} {'is' if left.total() == 1 else 'are'} gone."
        yield said[0].upper() + said[1:]


def _gone(kind: str, count: int, *, rest: bool) -> str:
    if rest:
        return several(kind, count)
    return f"the {singular(kind)}" if count == 1 else f"the {number(count)} {plural(kind)}"
