"""Who has the floor: one table of every transition of turn taking.

All changes of the turn state happen here and nowhere else. The state says two things at once: what the user
does (quiet, speaking, or silent within a turn) and whether an answer is busy (being generated, sent, or still
playing at the listener). An event that the table does not allow is a bug of ours: `IllegalTransition`.

    LISTENING      nobody speaks; the only state without a deadline
    HEARING        the user speaks, announced; no answer
    TRAILING       the user is silent within an announced turn; the end of turn is awaited
    ANSWERING      an answer is busy; the user is quiet
    OVERLAPPED     the user speaks over the answer; not decided, nothing announced
    DUCKED         the same, with the answer held back
    TALKED_OVER    the user speaks, and this speech cannot stop the answer
    TALKED_OVER_TRAILING  the user is silent within such a turn
    CLOSED         the session is over
"""

from __future__ import annotations

import enum

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
