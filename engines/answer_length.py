"""How long an answer may get, in tokens.

Spoken answers are short unless a long one was asked for, and end at a sentence's end where they can. `hard` is
where an answer stops in mid-sentence. Only a limit that the client set is reported as reached; our own
idea of how long one should talk is not an incomplete answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engines.base import ThinkJob

SPOKEN, SPOKEN_HARD = 30, 60
LONG, LONG_HARD = 220, 260
STORY_LEAST = 110
"""A story ends by itself after two sentences; about 80 words are half a minute of speech."""
WRITTEN_HARD = 400

_STORY = re.compile(
    r"\b(story|stories|tale|poem|essay|speech|long|longer|monologue)\b", re.IGNORECASE
)
_LIST = re.compile(
    r"\b(count|list|in detail|detailed|explain|describe|step by step|everything|all the|recite|"
    r"paragraphs?|recipe|instructions|lyrics|alphabet)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s*$")
_NUMBERED = re.compile(r"(^|\s)\d+\.\s*$")


@dataclass(frozen=True, slots=True)
class AnswerLength:
    """`least`: no end before it; from `soft` on the answer ends with its sentence; never above `hard`.
    `reported`: reaching `hard` is the client's limit."""

    least: int
    soft: int
    hard: int
    reported: bool = False


def answer_length(job: ThinkJob, room: int) -> AnswerLength:
    """The length for `job`, at most `room`."""
    asked = _last_request(job)
    story = _STORY.search(asked) is not None
    if not job.spoken:
        length = AnswerLength(1, WRITTEN_HARD, WRITTEN_HARD)
    elif story:
        length = AnswerLength(STORY_LEAST, LONG, LONG_HARD)
    elif _LIST.search(asked) is not None or job.max_tokens is not None:
        length = AnswerLength(1, LONG, LONG_HARD)
    else:
        length = AnswerLength(1, SPOKEN, SPOKEN_HARD)
    if job.max_tokens is not None and (job.max_tokens < length.hard or not story):
        wanted = max(1, job.max_tokens)
        length = AnswerLength(min(length.least, wanted), wanted, wanted, reported=True)
    return AnswerLength(
        min(length.least, room), min(length.soft, room), min(length.hard, room), length.reported
    )


def ends_sentence(text: str) -> bool:
    """Whether `text` ends with a sentence, and not with a list's number."""
    return _SENTENCE_END.search(text) is not None and _NUMBERED.search(text) is None


def _last_request(job: ThinkJob) -> str:
    for message in reversed(job.messages):
        if message.role == "user" and message.kind == "message":
            return message.content
    return ""
