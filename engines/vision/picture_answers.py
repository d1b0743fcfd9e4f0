"""Answers to questions about a picture or the camera, built from what was found and from nothing else.

A small model that is told what is in a picture adds things that are not. So the words come from a template (`evidence_words`). Here is
decided whether a prompt asks about a picture at all, and which one: an item's, until two turns were about something else, or the
camera's, when a question points at what it shows (`camera_questions`). What is about neither is the thinker's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engines.base import ChatMessage
from engines.vision.camera_answers import camera_answer, comment, is_comment
from engines.vision.camera_questions import About, about, goes_on, spelled_out
from engines.vision.evidence_words import answer
from engines.vision.kind_names import number

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


def picture_answer(messages: Sequence[ChatMessage]) -> str | None:
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


def _about_camera(messages: Sequence[ChatMessage]) -> About | None:
    """What the last message asks about the camera, by itself or as it goes on from the user's message before."""
    question = spelled_out(_words(messages[-1]))
    found = about(question)
    if found is not None or not goes_on(question):
        return found
    before = [m for m in messages[:-1] if m.role == "user" and m.kind == "message"]
    return about(spelled_out(_words(before[-1]))) if before else None


def _means_item(shown: ChatMessage | None, last: ChatMessage) -> bool:
    """Whether a picture that was sent is meant, where there is a camera too: one that comes with the question, unless that is about
    what only a camera shows; an older one where "the picture" is asked about, or where the camera shows none."""
    question = _words(last)
    if shown is None or _OF_CAMERA.search(question):
        return False
    no_camera = last.camera is None or last.camera.evidence is None
    return shown is last or no_camera or bool(_OF_ITEM.search(question))


def _of_items(last: ChatMessage, shown: ChatMessage) -> str | None:
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


def _shown(messages: Sequence[ChatMessage]) -> ChatMessage | None:
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


def _unseen(message: ChatMessage) -> int:
    """How many pictures of the message could not be looked at."""
    if message.role != "user":
        return 0
    return max(0, len(_MARK.findall(message.content)) - len(message.pictures))


def _words(message: ChatMessage) -> str:
    """What was said, in lower case, without what stands for the pictures and the camera."""
    content = message.content
    if message.camera is not None:
        content = _CAMERA.sub("", content)
    return _MARK.sub("", content).strip().lower()
