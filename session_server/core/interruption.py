"""Whether speech over an answer stops it.

`server_vad`: it does, once `server_vad_commit_ms` of speech were heard. `semantic_vad`: in two stages, since length
cannot tell "mhm" from "stop". At `duck_ms` the answer is held back, which can be undone; its words are then asked for.
A word that is no backchannel, or `commit_ms` of speech, makes it certain. If speech ends before that, the answer goes on from
where it was. Lengths are voiced audio, not wall time. After an answer was resumed it is not ducked again within
`refractory_ms`, so that a noisy room cannot starve it.

Speech that may not interrupt is refused from its start: `interrupt_response: false`, a protected response, or the warm-up of
an echo canceller at the head of a session.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from session_server.core.settings import CoreParams, TurnDetection, TurnMode


class Verdict(enum.Enum):
    WAIT = "wait"
    DUCK = "duck"
    COMMIT = "commit"
    DISMISS = "dismiss"


class Words(enum.Enum):
    """What recognition made of the speech so far."""

    UNKNOWN = "unknown"
    NONE = "none"
    BACKCHANNEL = "backchannel"
    SPOKEN = "spoken"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Speech over an answer, as it stands. `awaiting`: words that cover all of the speech are being asked for."""

    voiced_ms: int
    silence_ms: int
    ducked: bool
    may_duck: bool
    words: Words
    awaiting: bool


def judge_overlap(overlap: Overlap, detection: TurnDetection, params: CoreParams) -> Verdict:
    """What to do now about speech that may interrupt."""
    if detection.mode is TurnMode.SERVER_VAD:
        if overlap.voiced_ms >= params.server_vad_commit_ms:
            return Verdict.COMMIT
        return Verdict.DISMISS if overlap.silence_ms >= params.dismiss_silence_ms else Verdict.WAIT
    if overlap.words is Words.SPOKEN or overlap.voiced_ms >= params.commit_ms:
        return Verdict.COMMIT
    if overlap.silence_ms >= params.words_wait_ms:
        return Verdict.DISMISS
    if overlap.silence_ms >= params.dismiss_silence_ms and not overlap.awaiting:
        return Verdict.DISMISS
    if not overlap.ducked and overlap.may_duck and overlap.voiced_ms >= params.duck_ms:
        return Verdict.DUCK
    return Verdict.WAIT


def classify_words(text: str, backchannels: frozenset[str]) -> Words:
    """NONE for no words, BACKCHANNEL when every word is one, SPOKEN otherwise.

    "mm-hmm" counts when the joined form is listed, or all of its parts are.
    """
    words = [word for word in (_letters(word) for word in text.lower().split()) if word]
    if not any(word.replace("-", "") for word in words):
        return Words.NONE
    for word in words:
        parts = [part for part in word.split("-") if part]
        if "".join(parts) not in backchannels and not all(p in backchannels for p in parts):
            return Words.SPOKEN
    return Words.BACKCHANNEL


def _letters(word: str) -> str:
    return "".join(char for char in word if char.isalnum() or char == "-")
