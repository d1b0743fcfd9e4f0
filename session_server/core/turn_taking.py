"""Turn taking: the table of transitions, onset and end of speech, and interruption.

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

Whether speech over an answer stops it. `server_vad`: it does, once `server_vad_commit_ms` of speech were heard. `semantic_vad`: in two
stages, since length cannot tell "mhm" from "stop". At `duck_ms` the answer is held back, which can
be undone; its words are then asked for. A word that is no backchannel, or `commit_ms` of speech,
makes it certain. If speech ends before that, the answer goes on from where it was. After an answer
was resumed it is not ducked again within `refractory_ms`, so that a noisy room cannot starve it.
Speech that may not interrupt is refused from its start: `interrupt_response: false`, a protected
response, or the warm-up of an echo canceller at the head of a session.

Owns the user's open speech, from its onset until it is committed, dismissed or dropped. An
utterance that is not announced is not known to the client. A barge-in stops everything that is
audible or on its way in the default conversation, in the one order of `Responses.stop`. Counted:
true, false_resumed (held back, then resumed on noise), backchannel (its words, or too short to be
anything), refused.

Units: positions and lengths are samples of the input time line. `start` includes the padding before
the onset; `voiced` counts the frames that were speech. Limits are voiced audio, not wall time.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from session_server.core.context import Context
from session_server.core.host_requests import Work, Works
from session_server.core.responses import Responses
from session_server.core.settings import CoreParams, TurnDetection, TurnMode
from session_server.types.audio import INPUT_RATE, NS_PER_MS, ms_to_samples, samples_to_ms
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


class OverlapVerdict(enum.Enum):
    WAIT = "wait"
    DUCK = "duck"
    COMMIT = "commit"
    DISMISS = "dismiss"


class WordEvidence(enum.Enum):
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
    words: WordEvidence
    awaiting: bool


def judge_overlap(overlap: Overlap, detection: TurnDetection, params: CoreParams) -> OverlapVerdict:
    """What to do now about speech that may interrupt."""
    if detection.mode is TurnMode.SERVER_VAD:
        if overlap.voiced_ms >= params.server_vad_commit_ms:
            return OverlapVerdict.COMMIT
        return (
            OverlapVerdict.DISMISS
            if overlap.silence_ms >= params.dismiss_silence_ms
            else OverlapVerdict.WAIT
        )
    if overlap.words is WordEvidence.SPOKEN or overlap.voiced_ms >= params.commit_ms:
        return OverlapVerdict.COMMIT
    if overlap.silence_ms >= params.words_wait_ms:
        return OverlapVerdict.DISMISS
    if overlap.silence_ms >= params.dismiss_silence_ms and not overlap.awaiting:
        return OverlapVerdict.DISMISS
    if not overlap.ducked and overlap.may_duck and overlap.voiced_ms >= params.duck_ms:
        return OverlapVerdict.DUCK
    return OverlapVerdict.WAIT


def classify_words(text: str, backchannels: frozenset[str]) -> WordEvidence:
    """NONE for no words, BACKCHANNEL when every word is one, SPOKEN otherwise.

    "mm-hmm" counts when the joined form is listed, or all of its parts are.
    """
    words = [word for word in (_letters(word) for word in text.lower().split()) if word]
    if not any(word.replace("-", "") for word in words):
        return WordEvidence.NONE
    for word in words:
        parts = [part for part in word.split("-") if part]
        if "".join(parts) not in backchannels and not all(p in backchannels for p in parts):
            return WordEvidence.SPOKEN
    return WordEvidence.BACKCHANNEL


def _letters(word: str) -> str:
    return "".join(char for char in word if char.isalnum() or char == "-")


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
    words: WordEvidence = WordEvidence.UNKNOWN


PROBE_SILENCE_MS = 96


class Overlaps:
    """What is done about speech over an answer."""

    def __init__(
        self, context: Context, turn: TurnTaking, works: Works, responses: Responses
    ) -> None:
        self._context = context
        self._turn = turn
        self._works = works
        self._responses = responses
        self._resumed_ns: int | None = None

    def is_protected(self) -> bool:
        """The answer that is busy may not be stopped by speech."""
        sending = self._responses.sending
        answers = [*sending.playing]
        if self._responses.active is not None:
            answers.append(self._responses.active)
        if not all(answer.plan.interruptible for answer in answers):
            return True
        first = sending.first_audio_ns
        if first is None:
            return False
        return self._context.now - first < self._context.params.warm_up_ms * NS_PER_MS

    def decide(self, utterance: Utterance, end: int) -> OverlapVerdict:
        """The verdict on undecided speech; a duck is carried out here."""
        context = self._context
        silence = end - utterance.voiced_end
        ducked = self._turn.state is TurnState.DUCKED
        if ducked:
            self._ask_words(utterance, end, silence)
        probe = utterance.probe
        overlap = Overlap(
            voiced_ms=samples_to_ms(utterance.voiced, INPUT_RATE),
            silence_ms=samples_to_ms(silence, INPUT_RATE),
            ducked=ducked,
            may_duck=self._may_duck(),
            words=utterance.words,
            awaiting=probe is not None and probe.end >= utterance.voiced_end,
        )
        verdict = judge_overlap(overlap, context.settings.turn_detection, context.params)
        if verdict is OverlapVerdict.DUCK:
            self._turn.apply(TurnEvent.ANSWER_DUCKED)
            self._responses.sending.duck(self._responses.epoch, self._responses.active)
            self._ask_words(utterance, end, silence)
        return verdict

    def _may_duck(self) -> bool:
        if self._resumed_ns is None:
            return True
        rest = self._context.params.refractory_ms * NS_PER_MS
        return self._context.now - self._resumed_ns >= rest

    def _ask_words(self, utterance: Utterance, end: int, silence: int) -> None:
        """Ask for the words so far: now and then while speech goes on, and once more when it has paused.

        Not before there is enough to recognise: of "sure", cut at 350 ms, the default recogniser makes "sour".
        """
        if utterance.probe is not None or utterance.probed_to >= utterance.voiced_end:
            return
        if not self._context.settings.hearing.words:
            return
        params = self._context.params
        every = ms_to_samples(params.partial_every_ms, INPUT_RATE)
        paused = silence >= ms_to_samples(PROBE_SILENCE_MS, INPUT_RATE)
        if not paused and utterance.voiced < ms_to_samples(params.words_after_ms, INPUT_RATE):
            return
        if utterance.probed_to and not paused and end - utterance.probed_to < every:
            return
        utterance.probed_to = end
        utterance.probe = self._works.recognise(
            utterance.item_id, utterance.start, end, partial=True
        )

    def learn(self, utterance: Utterance, text: str) -> None:
        """The words so far have come; a later probe without words takes none back."""
        utterance.probe = None
        found = classify_words(text, self._context.params.backchannel_words)
        if found is not WordEvidence.NONE or utterance.words is WordEvidence.UNKNOWN:
            utterance.words = found

    def cancel_probe(self, utterance: Utterance) -> None:
        probe, utterance.probe = utterance.probe, None
        if probe is not None:
            self._works.cancel(probe.id)

    def stop_answer(self, utterance: Utterance) -> None:
        """It is certain: everything that is audible or on its way stops."""
        self._context.count("interruptions", "true")
        self.cancel_probe(utterance)
        active = self._responses.active
        victims = [r for r in self._responses.sending.playing if r is not active]
        if active is not None:
            victims.append(active)
        self._responses.stop(victims, "cancelled", "turn_detected")

    def count_dismissal(self, utterance: Utterance) -> None:
        ducked = self._turn.state is TurnState.DUCKED
        noise = ducked and utterance.words is not WordEvidence.BACKCHANNEL
        self._context.count("interruptions", "false_resumed" if noise else "backchannel")

    def dismiss(self) -> None:
        """It was nothing: an answer that was held back goes on from where the listener is."""
        ducked = self._turn.state is TurnState.DUCKED
        self._turn.apply(TurnEvent.DISMISSED)
        if ducked:
            self._resumed_ns = self._context.now
            self._responses.sending.unduck(self._responses.epoch, self._responses.active)
