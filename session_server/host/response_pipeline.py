"""One response, from prompt to the last message.

Owns the thinker's job, the tool-call parser, the clause splitter and the response's terminal message. Everything that
goes out passes `emit`, which calls the session itself, and lets nothing through once the response
is over: that is the host's boundary.

Invariants: exactly one of Finished and Failed, unless cancelled, then none; `Finished` follows the last chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from engines.base import JobKey, Stage, StepResult, TokenOutput
from engines.clauses import ClauseSplitter, ClauseText
from session_server.core.actions import StartGeneration
from session_server.core.settings import Modality
from session_server.host import tool_calls
from session_server.host.messages import (
    CallArguments,
    CallFinished,
    CallStarted,
    Chunk,
    Failed,
    Finished,
    Receive,
    TextChunk,
    ToSession,
)
from session_server.host.pipeline_parts import HostStages, ResponseTimes
from session_server.host.prompt import think_job
from session_server.host.speech_path import SpeechPath, SpokenResponse
from session_server.host.streamed_speech import PieceSplitter, StreamedSpeechPath
from session_server.scheduler.work import Playhead, ResponseUrgency, Step
from session_server.types.audio import NS_PER_S

_LOG = logging.getLogger(__name__)

Speaking = SpeechPath | StreamedSpeechPath
_THINKER, _TALKER = Stage.THINKER, Stage.TALKER
_AUDIO_TOKENS_PER_S = 20
"""The Realtime protocol counts one output audio token for 50 ms."""


class ResponsePipeline:
    """One response on its way. `over` is told once, when nothing more will come."""

    def __init__(
        self,
        stages: HostStages,
        session: str,
        request: StartGeneration,
        times: ResponseTimes,
        receive: Receive,
        over: Callable[[ResponsePipeline], None],
    ) -> None:
        self.session = session
        self.response = request.response_id
        self.lane = request.lane
        self.epoch = request.epoch
        self.spoken = request.modality is Modality.AUDIO
        self.times = times
        self.ended = False
        self.max_tokens: int | None = None
        """Set before `begin`: a bound that the present load puts on the answer."""
        self.leak: str | None = None
        self._stages = stages
        self._request = request
        self._receive = receive
        self._over = over
        self._key = JobKey(session, request.response_id)
        self._parser = tool_calls.ToolCallParser(frozenset(tool.name for tool in request.tools))
        self._thinker = stages.runners[Stage.THINKER]
        self._streaming = stages.runners[Stage.TALKER].streams_text
        self._splitter = PieceSplitter() if self._streaming else ClauseSplitter()
        self._chunk_index = 0
        self._loose_tokens = 0
        self._payloads: list[object] = []
        self._opening = True
        self._think_done = False
        self._end: TokenOutput | None = None
        self._tokens = 0
        self._text_used = 0
        rate = _output_rate(stages)
        playhead = Playhead(rate, audible=request.epoch is not None) if self.spoken else None
        self.playhead = playhead
        self.urgency = ResponseUrgency(
            stages.params, times.asked_ns, request.turn_end_ns, request.epoch is None, playhead
        )
        self.speech: Speaking | None = None
        if playhead is not None:
            path = StreamedSpeechPath if self._streaming else SpeechPath
            spoken = SpokenResponse(
                session,
                request.response_id,
                request.voice,
                request.speed,
                self.urgency,
                playhead,
            )
            self.speech = path(stages, self, spoken)

    @property
    def opening(self) -> bool:
        """Its prompt is still to be read."""
        return self._opening

    @property
    def chunks(self) -> int:
        """Pieces of audio that it has given."""
        return self._chunk_index

    @property
    def read_tokens(self) -> int | None:
        """Prompt tokens that had to be read; None while the answer is not whole."""
        end = self._end
        return None if end is None else end.prompt_tokens - end.cached_tokens

    # -- what the host tells

    def begin(self, now: int) -> None:
        """Admitted: the thinker may start."""
        self.times.admitted_ns = now
        known = self._stages.pictures.of(self.session)
        self._thinker.submit(self._key, think_job(self._request, self.max_tokens, known), self)
        self._offer_thinker(now)

    def adopt(self, epoch: int, turn_end_ns: int | None, now: int) -> None:
        """The draft is the answer."""
        self.epoch = epoch
        self.times.turn_end_ns = turn_end_ns
        self.urgency.adopt(turn_end_ns, now)
        if self.playhead is not None and self.playhead.generated:
            self._report_first_chunk()
        self.advance(now)

    def frontier(self, played: int, rate: int, paused: bool, now: int) -> None:
        if self.playhead is not None and not self.ended:
            self.playhead.report(played, rate, paused, now)
            self.advance(now)

    def cancel(self, where: str) -> None:
        """Stop everywhere; nothing of it goes out any more. Idempotent."""
        if self.ended:
            return
        self._count_waste(where)
        self._stop()

    def give_way(self, key: JobKey) -> bool:
        """A turn needs the thinker's slot: a draft is given up, the answer begins at the end of turn."""
        if self.epoch is not None or self.ended:
            return False
        self._stages.metrics.gave_way(Stage.THINKER.value)
        self._count_waste("draft")
        self.fail("the draft gave way to a turn", "inference_rate_limit_exceeded")
        return True

    # -- scheduling

    def advance(self, now: int) -> None:
        """Offer the stages what they could do next."""
        if self.ended:
            return
        if self.speech is not None:
            self.speech.advance(now)
        self._offer_thinker(now)

    def _keeps_place(self) -> bool:
        """A frame was spoken of text that waited. The text lasts less by as much, so the thinker's step is as urgent as
        before; and as long as no piece of it is used up, what held the step back still does."""
        if self.speech is None or not self._streaming:
            return False
        used, self._text_used = self._text_used, self.speech.chars_spoken
        return used == self._text_used or self._thinker.is_waiting(self._key)

    def _offer_thinker(self, now: int) -> None:
        runner = self._thinker
        if self._think_done or self.times.admitted_ns is None or runner.in_step(self._key):
            return
        below = 0
        if self.speech is not None:
            if not self._may_think(self.speech):
                runner.hold(self._key)
                return
            below = self.speech.spoken_below_ns + int(self.speech.ahead_s * NS_PER_S)
        params = self._stages.params
        step = Step(
            self._key,
            self._stages.estimates.path_ns(_THINKER, first=self.times.first_clause_ns is None),
            below,
            units=params.prefill_tokens if self._opening else 1,
            opening=self._opening,
            started=runner.is_started(self._key),
        )
        item = self.urgency.thought(step, now)
        if item is None:
            runner.hold(self._key)
        else:
            runner.ready(item)

    def _may_think(self, speech: Speaking) -> bool:
        """Room on the edge to the talker, and not too far ahead of it, unless others wait for the slot."""
        if not speech.tokens.free:
            if speech.idle:
                self._cut_clause_short(speech)
            if not speech.tokens.free:
                return False
        return speech.ahead_s < self._stages.params.text_ahead_s or self._thinker.starved

    def _cut_clause_short(self, speech: Speaking) -> None:
        """The edge is full and the talker has nothing: what there is becomes a clause."""
        now = self._stages.clock.now()
        clauses = self._splitter.flush()
        if not clauses:
            speech.tokens.give(self._loose_tokens)
            self._loose_tokens = 0
        for clause in clauses:
            self._add_clause(speech, clause, now)

    # -- results

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None:
        if self.ended:
            return
        if stage is _THINKER:
            self._on_token(result, now)
        elif self.speech is not None:
            self.speech.on_result(stage, result, now)
        if self.ended:
            return
        if self._think_done:
            self._finish_if_done()
        elif stage is not _TALKER or not self._keeps_place():
            self._offer_thinker(now)

    def on_job_failed(self, stage: Stage, key: JobKey, message: str) -> None:
        self.fail(message)

    def _on_token(self, result: StepResult, now: int) -> None:
        output = result.output
        if isinstance(output, TokenOutput) and output.text is not None:
            if self._opening:
                self._opening = False
                self.times.first_token_ns = now
            tokens = max(1, result.units)
            self._tokens += tokens
            if self.speech is not None:
                taken = min(tokens, self.speech.tokens.free)
                self.speech.tokens.take(taken)
                self._loose_tokens += taken
                self._payloads += output.payloads
            self._pass_on(self._parser.push(output.text), now)
        if result.finished and not self.ended:
            self._think_done = True
            self._end = output if isinstance(output, TokenOutput) else None
            self._end_text(now)

    def _end_text(self, now: int) -> None:
        self._pass_on(self._parser.finish(), now)
        if self.speech is not None and not self.ended:
            for clause in self._splitter.flush():
                self._add_clause(self.speech, clause, now)
            self.speech.tokens.give(self._loose_tokens)
            self._loose_tokens = 0
            self.speech.complete_text(now)

    def _pass_on(self, parts: list[tool_calls.Part], now: int) -> None:
        said = False
        for part in parts:
            match part:
                case tool_calls.PlainText(text):
                    said = True
                    self._say(text, now)
                case tool_calls.CallBegun(index, name):
                    self._payloads.clear()
                    self.emit(CallStarted(self.session, self.response, index, name))
                case tool_calls.CallPiece(index, arguments):
                    self._payloads.clear()
                    self.emit(CallArguments(self.session, self.response, index, arguments))
                case tool_calls.CallEnded(index):
                    self._payloads.clear()
                    self.emit(CallFinished(self.session, self.response, index))
                case tool_calls.CallDropped(index, reason):
                    self._drop_call(index, reason)
        if self.speech is not None and not said and not self._splitter.pending:
            self.speech.tokens.give(self._loose_tokens)  # tokens that will never be spoken
            self._loose_tokens = 0

    def _drop_call(self, index: int | None, reason: str) -> None:
        """A call that had begun cannot be taken back: the response fails. One that had not is only not made."""
        self._stages.metrics.stale("tool_call")
        if index is not None:
            self.fail(f"the model's function call was malformed: {reason}")

    def _say(self, text: str, now: int) -> None:
        self.emit(TextChunk(self.session, self.response, text))
        if self.speech is None:
            return
        for clause in self._splitter.push(text):
            self._add_clause(self.speech, clause, now)

    def _add_clause(self, speech: Speaking, clause: ClauseText, now: int) -> None:
        if self.times.first_clause_ns is None:
            self.times.first_clause_ns = now
        tokens, self._loose_tokens = self._loose_tokens, 0
        payloads, self._payloads = tuple(self._payloads), []
        speech.say(clause, payloads, tokens, now)

    # -- the way out

    def emit(self, message: ToSession) -> None:
        if self.ended:
            self._stages.metrics.stale("host")
            return
        try:
            self._receive(message)
        except Exception:  # one session's fault must not stop a stage that others use
            _LOG.exception("session %s could not take a message", message.session)

    def emit_chunk(self, start_sample: int, rate: int, pcm: bytes) -> None:
        index = self._chunk_index
        self._chunk_index += 1
        self.emit(
            Chunk(
                self.session, self.response, self.lane, self.epoch, index, start_sample, rate, pcm
            )
        )

    def first_audio(self, now: int) -> None:
        self.times.first_chunk_ns = now
        if self.epoch is not None:
            self._report_first_chunk()

    def _report_first_chunk(self) -> None:
        self._stages.metrics.first_chunk(self.times.first_chunk(self.session, self.response))

    def _finish_if_done(self) -> None:
        if self.speech is None or self.speech.done:
            if self.speech is not None and self.speech.credits_used:
                self.leak = f"{self.speech.credits_used} credits of {self.response}"
            self._finish(self._end.reason or "stop" if self._end is not None else "stop")

    def _finish(self, reason: str) -> None:
        end = self._end or TokenOutput(None)
        self._stages.metrics.prompt_read(end.prompt_tokens - end.cached_tokens, end.cached_tokens)
        self.emit(
            Finished(
                self.session,
                self.response,
                reason,
                end.prompt_tokens,
                end.cached_tokens,
                end.output_tokens or self._tokens,
                self._audio_tokens(),
            )
        )
        self._stop()

    def end_early(self, kind: str, now: int) -> None:
        """The speaker ran away: what came so far is the answer."""
        if not self.ended:
            self._stages.metrics.runaway(kind)
            self._finish("max_output_tokens")

    def fail(self, message: str, code: str = "server_error") -> None:
        """End with an error. Idempotent."""
        if not self.ended:
            self.emit(Failed(self.session, self.response, code, message))
            self._stop()

    def _stop(self) -> None:
        if self.ended:  # whoever got the last message has cancelled us meanwhile
            return
        self.ended = True
        self._thinker.release(self._key)
        if self.speech is not None:
            self.speech.cancel()
        self._over(self)

    def _audio_tokens(self) -> int:
        if self.playhead is None:
            return 0
        return -(-self.playhead.generated * _AUDIO_TOKENS_PER_S // self.playhead.rate)

    def _count_waste(self, where: str) -> None:
        audio_s, tokens = 0.0, self._tokens
        if self.playhead is not None:
            playhead = self.playhead
            lead_ns = playhead.lead_ns(self._stages.clock.now())
            unheard = min(playhead.generated - playhead.played, lead_ns * playhead.rate // NS_PER_S)
            audio_s = unheard / playhead.rate
            if playhead.generated:
                tokens = tokens * unheard // playhead.generated
        self._stages.metrics.wasted(where, audio_s, tokens)


def _output_rate(stages: HostStages) -> int:
    capabilities = stages.runners[Stage.VOCODER].capabilities
    return capabilities.unit_rate if capabilities is not None else 24_000
