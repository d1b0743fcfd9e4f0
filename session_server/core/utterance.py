"""The user's open speech, from its onset until it is committed, dismissed or dropped.

Positions and lengths are samples of the input time line. `start` includes the padding before the onset; `voiced` counts
the frames that were speech. An utterance that is not announced is not known to the client.
"""

from __future__ import annotations

from dataclasses import dataclass

from session_server.core.interruption import Words
from session_server.core.works import Work


@dataclass(slots=True)
class Utterance:
    """Speech that is going on, or has just paused."""

    item_id: str
    start: int
    voiced_end: int
    voiced: int
    announced: bool = False
    held: bool = False
    judgement: Work | None = None
    judge_asked: bool = False
    judge_failed: bool = False
    judged: float | None = None
    probe: Work | None = None
    probed_to: int = 0
    words: Words = Words.UNKNOWN
