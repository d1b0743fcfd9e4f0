"""Turn taking: one table of every transition, the onset of speech, and the end of a turn.

All changes of the turn state happen here and nowhere else. The state says two things at once: what
the user does (quiet, speaking, or silent within a turn) and whether an answer is busy (being
generated, sent, or still playing at the listener).

    LISTENING      nobody speaks; the only state without a deadline
    HEARING        the user speaks, announced; no answer
    TRAILING       the user is silent within an announced turn; the end of turn is awaited
    ANSWERING      an answer is busy; the user is quiet
    OVERLAPPED     the user speaks over the answer; not decided, nothing announced
    DUCKED         the same, with the answer held back
    TALKED_OVER    the user speaks, and this speech cannot stop the answer
    TALKED_OVER_TRAILING  the user is silent within such a turn
    CLOSED         the session is over

Onset: `speech_start_ms` of frames at or above the threshold, without one below the off threshold
between them. The onset is the start of the first of these frames. Silence is counted in audio, not
in wall time, so that a stall of the network ends no turn.

Units: positions are samples of the input time line (INPUT_RATE).

Errors: an event that the table does not allow is a bug of ours: `IllegalTransition`.
"""

from __future__ import annotations

import enum

from session_server.core.settings import CoreParams, TurnDetection, TurnMode
from session_server.types.errors import IllegalTransition


class TurnState(enum.Enum):
    LISTENING = "listening"
    HEARING = "hearing"
    TRAILING = "trailing"
    ANSWERING = "answering"
    OVERLAPPED = "overlapped"
    DUCKED = "ducked"
    TALKED_OVER = "talked_over"
    TALKED_OVER_TRAILING = "talked_over_trailing"
    CLOSED = "closed"

    __hash__ = object.__hash__  # members are single, and looked up with every event


class TurnEvent(enum.Enum):
    SPEECH_STARTED = "speech_started"
    SPEECH_PAUSED = "speech_paused"
    SPEECH_RESUMED = "speech_resumed"
    SPEECH_DROPPED = "speech_dropped"
    TURN_ENDED = "turn_ended"
    ANSWER_STARTED = "answer_started"
    ANSWER_ENDED = "answer_ended"
    ANSWER_DUCKED = "answer_ducked"
    BARGED_IN = "barged_in"
    DISMISSED = "dismissed"
    REFUSED = "refused"
    CLOSED = "closed"


_S, _E = TurnState, TurnEvent

TABLE: dict[tuple[TurnState, TurnEvent], TurnState] = {
    (_S.LISTENING, _E.SPEECH_STARTED): _S.HEARING,
    (_S.LISTENING, _E.ANSWER_STARTED): _S.ANSWERING,
    (_S.HEARING, _E.SPEECH_PAUSED): _S.TRAILING,
    (_S.HEARING, _E.SPEECH_DROPPED): _S.LISTENING,
    (_S.HEARING, _E.TURN_ENDED): _S.LISTENING,
    (_S.HEARING, _E.ANSWER_STARTED): _S.TALKED_OVER,
    (_S.TRAILING, _E.SPEECH_RESUMED): _S.HEARING,
    (_S.TRAILING, _E.SPEECH_DROPPED): _S.LISTENING,
    (_S.TRAILING, _E.TURN_ENDED): _S.LISTENING,
    (_S.TRAILING, _E.ANSWER_STARTED): _S.TALKED_OVER_TRAILING,
    (_S.ANSWERING, _E.SPEECH_STARTED): _S.OVERLAPPED,
    (_S.ANSWERING, _E.ANSWER_ENDED): _S.LISTENING,
    (_S.OVERLAPPED, _E.ANSWER_DUCKED): _S.DUCKED,
    (_S.OVERLAPPED, _E.BARGED_IN): _S.HEARING,
    (_S.OVERLAPPED, _E.DISMISSED): _S.ANSWERING,
    (_S.OVERLAPPED, _E.REFUSED): _S.TALKED_OVER,
    (_S.OVERLAPPED, _E.ANSWER_ENDED): _S.HEARING,
    (_S.DUCKED, _E.BARGED_IN): _S.HEARING,
    (_S.DUCKED, _E.DISMISSED): _S.ANSWERING,
    (_S.DUCKED, _E.ANSWER_ENDED): _S.HEARING,
    (_S.TALKED_OVER, _E.SPEECH_PAUSED): _S.TALKED_OVER_TRAILING,
    (_S.TALKED_OVER, _E.SPEECH_DROPPED): _S.ANSWERING,
    (_S.TALKED_OVER, _E.TURN_ENDED): _S.ANSWERING,
    (_S.TALKED_OVER, _E.ANSWER_ENDED): _S.HEARING,
    (_S.TALKED_OVER_TRAILING, _E.SPEECH_RESUMED): _S.TALKED_OVER,
    (_S.TALKED_OVER_TRAILING, _E.SPEECH_DROPPED): _S.ANSWERING,
    (_S.TALKED_OVER_TRAILING, _E.TURN_ENDED): _S.ANSWERING,
    (_S.TALKED_OVER_TRAILING, _E.ANSWER_ENDED): _S.TRAILING,
    **{(state, _E.CLOSED): _S.CLOSED for state in TurnState if state is not _S.CLOSED},
}  # fmt: skip

WITH_ANSWER = frozenset(
    {_S.ANSWERING, _S.OVERLAPPED, _S.DUCKED, _S.TALKED_OVER, _S.TALKED_OVER_TRAILING}
)
UNDECIDED = frozenset({_S.OVERLAPPED, _S.DUCKED})
SPEAKING = frozenset({_S.HEARING, _S.TALKED_OVER})
PAUSED = frozenset({_S.TRAILING, _S.TALKED_OVER_TRAILING})


class TurnTaking:
    """The turn state of one session."""

    def __init__(self) -> None:
        self.state = TurnState.LISTENING

    def apply(self, event: TurnEvent) -> TurnState:
        """Move on, or raise IllegalTransition naming state and event."""
        following = TABLE.get((self.state, event))
        if following is None:
            raise IllegalTransition(f"turn state {self.state.value} does not allow {event.value}")
        self.state = following
        return following


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2", "    [*] --> listening"]
    lines += [
        f"    {state.value} --> {following.value}: {event.value}"
        for (state, event), following in TABLE.items()
        if event is not TurnEvent.CLOSED
    ]
    return "\n".join(lines) + "\n"


EAGER_LIMIT_MS = {"low": 8_000, "medium": 4_000, "high": 2_000, "auto": 4_000}
"""Longest wait for the end of a turn, by eagerness (protocol page, section 3)."""

EAGER_SCALE = {"low": 2.0, "medium": 1.0, "high": 0.6, "auto": 1.0}
"""How eagerness stretches the wait after an utterance that does not sound complete."""

COMPLETE_ABOVE = 0.5


class OnsetDetector:
    """Finds the start of speech in frames of voice probability."""

    def __init__(self) -> None:
        self._run = 0
        self._onset = 0

    @property
    def voiced(self) -> int:
        """Samples at or above the threshold since the present onset."""
        return self._run

    def reset(self) -> None:
        self._run = 0

    def feed(
        self, probability: float, end: int, length: int, on: float, off: float, needed: int
    ) -> int | None:
        """One frame that ends at `end`. Returns the onset once `needed` samples of speech were heard."""
        if probability >= on:
            if self._run == 0:
                self._onset = end - length
            self._run += length
            if self._run >= needed:
                return self._onset
        elif probability < off:
            self._run = 0
        return None


def silence_limit_ms(
    detection: TurnDetection, params: CoreParams, judged: float | None, judge_failed: bool
) -> int:
    """Silence that ends the turn. `judged`: the turn model's probability that it is complete, if known."""
    if detection.mode is not TurnMode.SEMANTIC_VAD:
        return detection.silence_ms
    limit = EAGER_LIMIT_MS.get(detection.eagerness, EAGER_LIMIT_MS["auto"])
    if judged is not None and judged > COMPLETE_ABOVE:
        return min(params.complete_silence_ms, limit)
    if judge_failed:
        return min(params.fallback_silence_ms, limit)
    scale = EAGER_SCALE.get(detection.eagerness, 1.0)
    return min(round(params.incomplete_silence_ms * scale), limit)
