"""Answers about a picture or the camera, built from what was found and from nothing else.

A small model that is told what is in a picture adds things that are not. So the words come from a
template (`evidence_words`). Here is decided whether a prompt asks about a picture at all, and which
one: an item's, until two turns were about something else, or the camera's, when a question points
at what it shows (`camera_questions`). What is about neither is the thinker's.

Invariants: an answer about the camera is true of the picture at that moment, with its age said. A
picture that is younger than `PRESENT_S` is spoken of in the present; an older one in the past, with
its age; where there is no current picture nothing is said to be there.

Units: ages are in seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from engines.base import CameraView
from engines.vision.camera_questions import About, about, goes_on, spelled_out
from engines.vision.evidence_text import PAST, answer, answer_in, objects
from engines.vision.labels import listed, number, plural, several, singular
from session_server.types.prompt import PromptMessage

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


_OTHER_TURNS = 2
"""After so many turns about something else, a question without a picture is about none."""

_MARK = re.compile(r"\[Picture: [^\n]*\]")
_CAMERA = re.compile(r"\n?\[Camera[^\n]*\]\s*$")
_NOT_ALL = "I could not look at every picture."
_ABOUT = re.compile(
    r"\b(see|look|looks|looking|picture|photo|photograph|image|camera|show|shows|sign|read|written|text|"
    r"behind|holding|hold|colou?rs?|how many|is there|are there|any(one|body|thing)|"
    r"what('s| is| are) (this|that|these|those|it))\b"
)
_OF_ITEM = re.compile(r"\b(pictures?|photos?|photographs?|images?)\b")
_OF_CAMERA = re.compile(
    r"\b(camera|webcam|(behind|see|in front of|next to|beside|around) (me|us)|am i|are we)\b"
)


def picture_answer(messages: Sequence[PromptMessage]) -> str | None:
    """What to say to the last message, or None when it asks about no picture. Empty: a change of the picture that is none."""
    if not messages or messages[-1].kind != "message":
        return None
    last = messages[-1]
    if last.role == "system" and is_comment(last.content):
        return comment(last.content, last.camera)
    if last.role != "user":
        return None
    shown = _shown(messages)
    if last.camera is not None:
        asked_about = _about_camera(messages)
        if asked_about is not None and not _means_item(shown, last):
            return camera_answer(spelled_out(_words(last)), last.camera, asked_about)
    return None if shown is None else _of_items(last, shown)


def _about_camera(messages: Sequence[PromptMessage]) -> About | None:
    """What the last message asks about the camera, by itself or as it goes on from the user's message before."""
    question = spelled_out(_words(messages[-1]))
    found = about(question)
    if found is not None or not goes_on(question):
        return found
    before = [m for m in messages[:-1] if m.role == "user" and m.kind == "message"]
    return about(spelled_out(_words(before[-1]))) if before else None


def _means_item(shown: PromptMessage | None, last: PromptMessage) -> bool:
    """Whether a picture that was sent is meant, where there is a camera too: one that comes with the question, unless that is about
    what only a camera shows; an older one where "the picture" is asked about, or where the camera shows none."""
    question = _words(last)
    if shown is None or _OF_CAMERA.search(question):
        return False
    no_camera = last.camera is None or last.camera.evidence is None
    return shown is last or no_camera or bool(_OF_ITEM.search(question))


def _of_items(last: PromptMessage, shown: PromptMessage) -> str | None:
    question = _words(last)
    if not (_ABOUT.search(question) or (shown is last and _asks(question))):
        return None
    said = [answer(question, evidence) for evidence in shown.pictures]
    if len(said) > 1:
        said = [f"Picture {number(place)}: {one}" for place, one in enumerate(said, 1)]
    if _unseen(shown):  # an older one is not what is asked about
        said.append("I could not look at the picture." if not said else _NOT_ALL)
    return " ".join(said)


def _asks(question: str) -> bool:
    """Whether what comes with its own picture is a question, or nothing but the picture."""
    return not question or question.endswith("?")


def _shown(messages: Sequence[PromptMessage]) -> PromptMessage | None:
    """The newest message with pictures, unless the user has spoken of other things since."""
    others = 0
    for message in reversed(messages):
        if message.pictures or _unseen(message):
            return message
        if message.role == "user" and not _ABOUT.search(_words(message)):
            others += 1
            if others == _OTHER_TURNS:
                return None
    return None


def _unseen(message: PromptMessage) -> int:
    """How many pictures of the message could not be looked at."""
    if message.role != "user":
        return 0
    return max(0, len(_MARK.findall(message.content)) - len(message.pictures))


def _words(message: PromptMessage) -> str:
    """What was said, in lower case, without what stands for the pictures and the camera."""
    content = message.content
    if message.camera is not None:
        content = _CAMERA.sub("", content)
    return _MARK.sub("", content).strip().lower()
