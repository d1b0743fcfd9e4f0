"""From clauses to chunks: talker, codec and vocoder of one spoken response.

Owns the clauses that wait, the credits of the edges, and the absolute positions of clauses and
chunks. Clauses are rendered in order; clause n+1 may be spoken by the talker, and coded, while
clause n is still being vocoded, as far as the edges have room. A speaker that never ends (too much
audio for its text, or silence without end) is stopped.

Invariants: credits never exceed their edges; a message is the last thing that a step does, because
its receiver may cancel the response at once; chunks are consecutive; a clause's chunks add up to
exactly the samples that its talker announced.

Units: positions are samples of the response's stream; text positions are characters; PCM is s16le.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engines.base import ClauseJob, JobKey, Pcm, Spectra, Speech, SpeechJob, Stage, StepResult
from engines.clauses import ClauseText
from session_server.host.messages import Clause
from session_server.host.pipeline_parts import HostStages, Outlet, unit_ns
from session_server.host.stages.runner import JobOwner
from session_server.host.stages.stage_runner import StageRunner
from session_server.scheduler.flow_control import Credits
from session_server.scheduler.params import SchedulerParams
from session_server.scheduler.work import Playhead, ResponseUrgency, Step
from session_server.types.audio import NS_PER_S, WordSpan, samples_to_ns

_SILENT = 100
"""Peak below which 16-bit audio counts as silence (-50 dBFS)."""
_BORDER = 256
"""Samples that are looked at first: in speech they decide."""


class RunawayGuard:
    """Fed with every chunk; says when the answer has to end."""

    def __init__(self, params: SchedulerParams, rate: int, speed: float) -> None:
        self._floor = int(params.audio_s_floor * rate)
        self._per_char = params.audio_s_per_char_cap * rate / max(speed, 0.25)
        self._silence_cap = int(params.silence_cap_s * rate)
        self._silent = 0
        self._generated = 0

    def check(self, pcm: bytes, text_chars: int) -> str | None:
        """Why the answer ends with this chunk, or None. `text_chars`: text spoken so far."""
        samples = np.frombuffer(pcm, dtype="<i2")
        self._generated += len(samples)
        quiet = _quiet(samples)
        inside = self._silent + quiet
        self._silent = inside if quiet == len(samples) else _quiet(samples[::-1])
        if max(inside, self._silent) > self._silence_cap:
            return "silence"
        if self._generated > self._floor + text_chars * self._per_char:
            return "length"
        return None


def _quiet(samples: np.ndarray[tuple[int], np.dtype[np.int16]]) -> int:
    """How many samples are silent before the first that is not."""
    for part in (samples[:_BORDER], samples):
        loud = np.flatnonzero((part > _SILENT) | (part < -_SILENT))
        if len(loud):
            return int(loud[0])
    return len(samples)


@dataclass(slots=True)
class _Part:
    """One clause on its way. `fed`: units of each chunk that the vocoder has and has not consumed."""

    key: JobKey
    clause: ClauseText
    tokens: int
    speech: Speech | None = None
    coded: int = 0
    fed: deque[int] = field(default_factory=deque)
    fed_all: bool = False
    delivered: int = 0

    @property
    def units_left(self) -> int:
        return self.speech.units - self.coded if self.speech is not None else 0


class ChunkSink(Outlet, JobOwner, Protocol):
    """An outlet that numbers chunks; the jobs of its response are its own."""

    def emit_chunk(self, start_sample: int, rate: int, pcm: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class SpokenResponse:
    """A response that is to be spoken: whose, how, and how urgently."""

    session: str
    response: str
    voice: str
    speed: float
    urgency: ResponseUrgency
    playhead: Playhead


class PathToAudio:
    """What the ways from text to audio share: whose response it is, and how its chunks leave."""

    def __init__(self, stages: HostStages, sink: ChunkSink, spoken: SpokenResponse) -> None:
        self.tokens = Credits(stages.graph.capacity(Stage.THINKER, Stage.TALKER))
        self._stages = stages
        self._sink = sink
        self._spoken = spoken
        self._urgency = spoken.urgency
        self._playhead = spoken.playhead
        self._guard = RunawayGuard(stages.params, spoken.playhead.rate, spoken.speed)
        self._text_complete = False
        self._ended = False
        self.chars_spoken = 0
        """Characters of text that the talker has used up."""

    def _speech_s(self, chars: int) -> float:
        """How long that much text lasts when it is spoken."""
        return chars / (self._stages.params.chars_per_s * self._spoken.speed)

    def _deliver(self, pcm: bytes, now: int) -> int:
        """The listener gets a chunk; the sample at which it starts."""
        playhead = self._playhead
        if not playhead.generated:
            self._sink.first_audio(now)
        start = playhead.generated
        playhead.deliver(len(pcm) // 2, now)
        self._stages.metrics.audio_generated(len(pcm) / 2 / playhead.rate)
        return start

    def _emit(self, start: int, pcm: bytes, chars: int, now: int) -> None:
        """Send a chunk that was delivered; the response ends if that is too much for `chars` of text."""
        self._sink.emit_chunk(start, self._playhead.rate, pcm)
        runaway = self._guard.check(pcm, chars)
        if runaway is not None:
            self._sink.end_early(runaway, now)


class SpeechPath(PathToAudio):
    """One response's way from text to audio, clause by clause."""

    def __init__(self, stages: HostStages, sink: ChunkSink, spoken: SpokenResponse) -> None:
        super().__init__(stages, sink, spoken)
        self.clauses = Credits(stages.graph.capacity(Stage.TALKER, Stage.CODEC))
        self.chunks = Credits(stages.graph.capacity(Stage.CODEC, Stage.VOCODER))
        self._waiting: deque[_Part] = deque()
        self._talking: _Part | None = None
        self._rendering: deque[_Part] = deque()
        self._parts = 0
        self._spoken_samples = 0
        self._coded_ns = 0

    # -- text side

    def say(self, clause: ClauseText, payloads: tuple[object, ...], tokens: int, now: int) -> None:
        """A clause is complete; `tokens` of credit travel with it. This talker needs no `payloads`."""
        key = JobKey(self._spoken.session, self._spoken.response, self._parts)
        self._parts += 1
        self._waiting.append(_Part(key, clause, tokens))
        self.advance(now)

    def complete_text(self, now: int) -> None:
        """No clause follows those that were added."""
        self._text_complete = True
        self.advance(now)

    @property
    def ahead_s(self) -> float:
        """Speech that the text waiting for the talker would last."""
        chars = sum(len(part.clause.text) for part in self._waiting)
        if self._talking is not None:
            chars += len(self._talking.clause.text)
        return self._speech_s(chars)

    @property
    def idle(self) -> bool:
        """No clause is waiting or on its way."""
        return not (self._waiting or self._talking or self._rendering)

    @property
    def done(self) -> bool:
        return self._text_complete and self.idle

    @property
    def credits_used(self) -> int:
        return self.tokens.used + self.clauses.used + self.chunks.used

    @property
    def spoken_below_ns(self) -> int:
        """Speech that the talker has made and that has not been delivered."""
        return samples_to_ns(
            max(0, self._spoken_samples - self._playhead.generated), self._playhead.rate
        )

    # -- scheduling

    def advance(self, now: int) -> None:
        """Offer every stage what it could do next; called whenever something has changed."""
        if self._ended:
            return
        if self._talking is None and self._waiting and self.clauses.free:
            self._begin_clause(self._waiting.popleft())
        if self._talking is not None:
            self._offer(Stage.TALKER, self._talking.key, self.spoken_below_ns, now)
        self._offer_codec(now)
        self._offer_vocoder(now)

    def _begin_clause(self, part: _Part) -> None:
        self.clauses.take()
        self._talking = part
        job = ClauseJob(
            part.clause.text, self._spoken.voice, self._spoken.speed, seed=part.key.part
        )
        self._runner(Stage.TALKER).submit(part.key, job, self._sink)

    def _offer_codec(self, now: int) -> None:
        part = next((part for part in self._rendering if part.units_left > 0), None)
        if part is None:
            return
        if not self.chunks.free:
            self._runner(Stage.CODEC).hold(part.key)
            return
        below = max(
            0, self._coded_ns - samples_to_ns(self._playhead.generated, self._playhead.rate)
        )
        self._offer(Stage.CODEC, part.key, below, now, part.units_left)

    def _offer_vocoder(self, now: int) -> None:
        part = self._rendering[0] if self._rendering else None
        if part is not None and (part.fed or part.fed_all):
            self._offer(Stage.VOCODER, part.key, 0, now, max(1, sum(part.fed)))

    def _offer(self, stage: Stage, key: JobKey, below_ns: int, now: int, units: int = 1) -> None:
        runner = self._runner(stage)
        audio = stage in (Stage.CODEC, Stage.VOCODER)
        one = unit_ns(runner) if audio else 0
        room = min(units * one, int(self._stages.params.chunk_ladder_s[-1] * NS_PER_S))
        step = Step(
            key,
            self._stages.estimates.path_ns(stage, first=False),
            below_ns,
            room_ns=room if stage is Stage.CODEC else 0,
            units=units,
            unit_ns=one,
            started=runner.is_started(key),
        )
        item = self._urgency.item(step, now)
        if item is None:
            runner.hold(key)
        else:
            runner.ready(item)

    def _runner(self, stage: Stage) -> StageRunner:
        return self._stages.stepped[stage]

    # -- results

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None:
        if self._ended:
            return
        match stage:
            case Stage.TALKER:
                self._on_speech(result)
            case Stage.CODEC:
                self._on_spectra(result)
            case Stage.VOCODER:
                self._on_pcm(result, now)
            case _:
                raise ValueError(f"no such stage in the speech path: {stage}")
        self.advance(now)

    def _on_speech(self, result: StepResult) -> None:
        part, speech = self._talking, result.output
        if part is None or not isinstance(speech, Speech):
            if result.finished:
                self._sink.fail("the talker engine gave no speech")
            return
        self._talking = None
        self.tokens.give(part.tokens)
        part.speech = speech
        start, self._spoken_samples = self._spoken_samples, self._spoken_samples + speech.samples
        self.chars_spoken += len(part.clause.text)
        if not result.finished:  # a clause is one result
            self._runner(Stage.TALKER).release(part.key)
        if speech.units:
            self._rendering.append(part)
            job = SpeechJob(self._spoken.voice, seed=part.key.part)
            self._runner(Stage.CODEC).submit(part.key, job, self._sink)
            self._runner(Stage.CODEC).feed(part.key, speech.frames, last=True)
            self._runner(Stage.VOCODER).submit(part.key, job, self._sink)
        else:
            self.clauses.give()
        self._announce(part.clause, speech, start)

    def _announce(self, clause: ClauseText, speech: Speech, start: int) -> None:
        words = tuple(
            WordSpan(
                word.char_start + clause.char_start,
                word.char_end + clause.char_start,
                word.start_sample + start,
                word.end_sample + start,
            )
            for word in speech.words
        )
        self._sink.emit(
            Clause(
                self._spoken.session,
                self._spoken.response,
                clause.char_start,
                clause.char_end,
                start,
                start + speech.samples,
                words,
                speech.estimated,
            )
        )

    def _on_spectra(self, result: StepResult) -> None:
        part = next((part for part in self._rendering if part.key == result.key), None)
        if part is None:
            return
        spectra = result.output
        if isinstance(spectra, Spectra):
            self.chunks.take()
            part.fed.append(spectra.units)
            part.coded += spectra.units
            part.fed_all = result.finished
            self._coded_ns += spectra.units * unit_ns(self._runner(Stage.CODEC))
            self._stages.metrics.chunk_frames(Stage.CODEC.value, spectra.units)
            self._runner(Stage.VOCODER).feed(part.key, spectra.payload, last=result.finished)
        if result.finished:
            self.clauses.give()
            if part.units_left > 0 or not part.fed_all:
                self._sink.fail("the codec engine ended before its clause")

    def _on_pcm(self, result: StepResult, now: int) -> None:
        part = self._rendering[0] if self._rendering else None
        if part is None or part.key != result.key:
            return
        self._consume(part, result.units)
        if isinstance(result.output, Pcm) and result.output.pcm:
            if len(result.output.pcm) % 2:
                self._sink.fail("the vocoder engine gave half a sample")
                return
            part.delivered += len(result.output.pcm) // 2
            start = self._deliver(result.output.pcm, now)
            self._emit(start, result.output.pcm, self.chars_spoken, now)
        if result.finished and not self._ended:
            self._finish_part(part)

    def _consume(self, part: _Part, units: int) -> None:
        """The vocoder has used `units`; chunks that are used up give their credits back."""
        while part.fed and units >= part.fed[0]:
            units -= part.fed.popleft()
            self.chunks.give()
        if part.fed:
            part.fed[0] -= units

    def _finish_part(self, part: _Part) -> None:
        assert part.speech is not None
        if part.delivered != part.speech.samples or part.fed or not part.fed_all:
            self._sink.fail(
                f"the vocoder engine gave {part.delivered} samples of a clause of"
                f" {part.speech.samples}"
            )
            return
        self._rendering.popleft()

    # -- the end

    def cancel(self) -> None:
        """Take everything of this response out of the three stages. Idempotent."""
        self._ended = True
        for part in (*self._waiting, *self._rendering, *filter(None, [self._talking])):
            for stage in (Stage.TALKER, Stage.CODEC, Stage.VOCODER):
                self._runner(stage).release(part.key)
        self._waiting.clear()
        self._rendering.clear()
        self._talking = None
