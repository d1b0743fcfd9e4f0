"""From a record of real sessions to a trace of what their users did.

The record is lived through once more by fresh cores (`recording.recorder`), so that turns are those that the server
decided. Instants are the server's: a word counts when it was heard there, an answer's beginning when its first audio
was sent, its end when all that was sent has been played (or was purged). The detector's release is taken off the end of
speech. A turn that no answer was spoken to (noise, a failure) is left out, as are out-of-band responses.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from session_server.core import actions, events
from session_server.recording.recorder import PastSession, past_sessions, replay as replay
from session_server.simulation.trace import Trace, TraceSession, TraceTurn
from session_server.types.audio import (
    INPUT_RATE,
    NS_PER_MS,
    NS_PER_S,
    OUTPUT_RATE,
    ms_to_samples,
    samples_to_ns,
)
from session_server.types.errors import ConfigError
from session_server.types.usage import TokenUsage

_MESSAGE_TOKENS, _CHARS_PER_TOKEN = 8, 4
"""What a message takes in a prompt beside its words; an estimate."""
_SHORTEST_S = 0.1


def trace_of_record(lines: Iterable[bytes]) -> Trace:
    """Raises ConfigError for what is no record, or has no spoken turn with a spoken answer in it."""
    past = past_sessions(lines)
    first = min(session.began for session in past)
    sessions, system = [], []
    for one in past:
        witness = _Witness(one)
        witness.watch()
        turns = witness.turns()
        if turns:
            sessions.append(TraceSession((one.began - first) / NS_PER_S, turns))
            system += witness.system_tokens()
    if not sessions:
        raise ConfigError("record: nobody was answered in it")
    return Trace(tuple(sessions), int(statistics.median(system)) if system else 0)


@dataclass(slots=True)
class _Voice:
    """A run of voiced frames: samples of the input, and when they had been heard."""

    start: int
    end: int
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class _Answer:
    """`text`: characters generated; `first_ns`: first audio sent; `over_ns`: when all sent audio has been played."""

    text: int = 0
    usage: TokenUsage | None = None
    first_ns: int | None = None
    over_ns: int = 0

    @property
    def tokens(self) -> int:
        made = self.usage.output_text if self.usage is not None else 0
        return max(1, made or self.text // _CHARS_PER_TOKEN)


@dataclass(slots=True)
class _Question:
    begin_ns: int
    end_ns: int
    words: int
    answer: str | None = None


@dataclass(slots=True)
class _Witness:
    """Sees one session."""

    past: PastSession
    voices: list[_Voice] = field(default_factory=list)
    answers: dict[str, _Answer] = field(default_factory=dict)
    questions: list[_Question] = field(default_factory=list)
    words: int = 0
    start: int | None = None
    left_ns: int | None = None

    # -- what happened

    def watch(self) -> None:
        for step in self.past.relive():
            if step.event is not None:
                self._happened(step.event, step.at)
            for action in step.actions:
                self._done(action, step.at)

    def _happened(self, event: events.Event, at: int) -> None:
        match event:
            case events.SpeechProbability():
                self._heard(event, at)
            case events.TranscriptReady():
                self.words = len(event.text)
            case events.TextGenerated():
                self._answer(event.response_id).text += len(event.text)
            case events.GenerationFinished():
                self._answer(event.response_id).usage = event.usage
            case events.Disconnected():
                self.left_ns = at
            case _:
                pass

    def _heard(self, event: events.SpeechProbability, at: int) -> None:
        detection, margin = self.past.settings.turn_detection, self.past.params.speech_off_margin
        if event.echo or event.probability < detection.threshold - margin:
            return
        last = self.voices[-1] if self.voices else None
        length = 512 if last is None else min(512, event.end_sample - last.end)
        if last is not None and event.end_sample - last.end <= 512:
            last.end, last.end_ns = event.end_sample, at
        elif event.probability >= detection.threshold:
            begin_ns = at - samples_to_ns(length, INPUT_RATE)
            self.voices.append(_Voice(event.end_sample - length, event.end_sample, begin_ns, at))

    def _done(self, action: actions.Action, at: int) -> None:
        match action:
            case actions.AnnounceSpeechStarted():
                self.start = ms_to_samples(action.audio_start_ms, INPUT_RATE)
            case actions.AnnounceCommitted():
                self._asked()
            case actions.AnnounceResponseCreated(response=response) if not response.out_of_band:
                if self.questions and self.questions[-1].answer is None:
                    self.questions[-1].answer = response.id
            case actions.SendAudio():
                answer = self._answer(action.part.response_id)
                if answer.first_ns is None:
                    answer.first_ns = answer.over_ns = at
                length = samples_to_ns(len(action.pcm) // 2, OUTPUT_RATE)
                answer.over_ns = max(answer.over_ns, at) + length
            case actions.PurgeAudio():
                answer = self._answer(action.response_id)
                answer.over_ns = min(answer.over_ns, at)
            case _:
                pass

    def _asked(self) -> None:
        start, self.start = self.start, None
        said = [voice for voice in self.voices if start is not None and voice.end > start]
        if said:
            release = self.past.params.speech_release_ms * NS_PER_MS
            end = max(said[0].begin_ns + int(_SHORTEST_S * NS_PER_S), said[-1].end_ns - release)
            self.questions.append(_Question(said[0].begin_ns, end, self.words))

    def _answer(self, response: str) -> _Answer:
        return self.answers.setdefault(response, _Answer())

    # -- what the trace says of it

    def _spoken(self) -> list[tuple[_Question, _Answer]]:
        pairs = [(q, self.answers[q.answer]) for q in self.questions if q.answer in self.answers]
        return [(q, a) for q, a in pairs if a.first_ns is not None]

    def turns(self) -> tuple[TraceTurn, ...]:
        spoken, turns = self._spoken(), []
        free_ns = self.past.began
        for number, (question, answer) in enumerate(spoken):
            after = spoken[number + 1][0].begin_ns if number + 1 < len(spoken) else None
            turn = TraceTurn(
                (question.end_ns - question.begin_ns) / NS_PER_S,
                self._prompt_tokens(question),
                answer.tokens,
                max(0, question.begin_ns - free_ns) / NS_PER_S,
                nods=self._nods(answer, after),
            )
            turns.append(self._with_end(turn, answer, after))
            free_ns = answer.over_ns
        return tuple(turns)

    def _with_end(self, turn: TraceTurn, answer: _Answer, after_ns: int | None) -> TraceTurn:
        """How the user ended the answer, when it did. A purged answer is over once the interruption is certain, which
        is after its first word."""
        first = answer.first_ns or 0
        if after_ns is not None and after_ns < answer.over_ns:
            return replace(turn, barge_in_s=max(0, after_ns - first) / NS_PER_S)
        if after_ns is None and self.left_ns is not None and self.left_ns < answer.over_ns:
            return replace(turn, leave_s=max(0, self.left_ns - first) / NS_PER_S)
        return turn

    def _nods(self, answer: _Answer, after_ns: int | None) -> tuple[tuple[float, float], ...]:
        """Speech over the answer that no turn came of."""
        first = answer.first_ns or 0
        until = answer.over_ns if after_ns is None else min(answer.over_ns, after_ns)
        return tuple(
            ((v.begin_ns - first) / NS_PER_S, max(_SHORTEST_S, (v.end_ns - v.begin_ns) / NS_PER_S))
            for v in self.voices
            if first <= v.begin_ns
            and v.end_ns < until
            and not any(q.begin_ns <= v.begin_ns <= q.end_ns for q in self.questions)
        )

    def _prompt_tokens(self, question: _Question) -> int:
        return question.words // _CHARS_PER_TOKEN + _MESSAGE_TOKENS

    def system_tokens(self) -> list[int]:
        """What the first prompt held beside the first question."""
        for question, answer in self._spoken()[:1]:
            if answer.usage is not None:
                return [max(0, answer.usage.input_text - self._prompt_tokens(question))]
        return []
