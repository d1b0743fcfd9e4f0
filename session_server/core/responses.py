"""The responses of one session: lanes and epochs, starting, what the engine brings, and how each ends.

Invariants: at most one active response in the default conversation; each announced response gets exactly one
`response.done`, and nothing of it is announced after that; a lane's epoch never falls. Every way to stop an answer
goes through `stop`, which keeps the order of design.md: fence, silence the listener, cancel the work, truncate to what
was heard, terminal events. A response that fails by itself goes through `fail`: what was sent plays on.

Output of an unknown or ended response is stale: dropped here and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from session_server.core.actions import (
    AdoptDraft,
    AnnounceRateLimits,
    AnnounceResponseCreated,
    AnnounceResponseDone,
    CancelGeneration,
    PurgeAudio,
    RaiseFence,
)
from session_server.core.camera import Camera
from session_server.core.context import Context, Timer
from session_server.core.conversation import ItemStatus
from session_server.core.events import (
    AudioGenerated,
    CallArguments,
    CallFinished,
    CallStarted,
    ClauseSpoken,
    EngineEvent,
    GenerationFailed,
    GenerationFinished,
    PictureSeen,
    TextGenerated,
    TranscriptReady,
    TurnJudged,
    WorkFailed,
)
from session_server.core.host_requests import Works
from session_server.core.output_items import OutputItems
from session_server.core.prompt import Prompting
from session_server.core.response import (
    Response,
    ResponsePhase,
    ResponsePlan,
    TurnsToAnswer,
    WaitingAnswers,
    plan,
)
from session_server.core.sending import Sending
from session_server.core.settings import ResponseOverrides
from session_server.core.spoken_answers import SpokenAnswers
from session_server.types.audio import samples_to_ms
from session_server.types.prompt import PromptMessage

DEFAULT_LANE = "default"
MAX_AHEAD_MS = 60_000
"""Audio held beyond the cap on generation: an engine that ignores the frontier fails its response here."""

GenerationEvent = (
    TextGenerated | ClauseSpoken | AudioGenerated | CallStarted | CallArguments | CallFinished
    | GenerationFinished | GenerationFailed
)  # fmt: skip


class Responses:
    """All responses that are not over, and of the ended ones what truncation and acknowledgements need."""

    def __init__(self, context: Context, works: Works, camera: Camera) -> None:
        self._context = context
        self._waiting = WaitingAnswers(context, works, camera)
        self.sending = Sending(context, self.find)
        self.epoch = 1
        self.active: Response | None = None
        self.queued = False
        self._queued_turn_ns = 0
        self._queued_until: int | None = None
        self.draining = False
        self.last_id: str | None = None
        self.live: dict[str, Response] = {}
        """Announced and not ended, out-of-band ones too."""
        self.spoken = SpokenAnswers(context, self.sending)
        self.prompting = Prompting(context, camera, self.spoken, self.live)
        self._turns = TurnsToAnswer(context)

    @property
    def busy(self) -> bool:
        """An answer is being generated, sent, or still playing at the listener."""
        return self.active is not None or bool(self.sending.playing)

    def find(self, response_id: str) -> Response | None:
        """A response that is live, or whose speech may still matter."""
        return self.live.get(response_id) or self.spoken.find(response_id)

    # -- beginning

    def build(self, wanted: ResponsePlan, epoch: int | None) -> Response:
        """A response that nobody knows of yet."""
        context = self._context
        response_id = context.new_id("resp")
        ledger = self.sending.new_ledger(wanted.out_of_band)
        lane = response_id if wanted.out_of_band else DEFAULT_LANE
        output = OutputItems(context, response_id, wanted.modality, wanted.out_of_band)
        return Response(response_id, lane, epoch, wanted, ResponsePhase.WAITING, output, ledger)

    def create(self, wanted: ResponsePlan) -> None:
        """Announce a response that was asked for, and start it as soon as its context is complete."""
        self._begin(self.build(wanted, 1 if wanted.out_of_band else self.epoch))

    def _begin(self, response: Response) -> None:
        self._announce(response)
        wanted = response.plan
        if self.draining:
            self.fail(response, "server_error", "The server is shutting down.")
        elif wanted.out_of_band and len(self.live) > self._context.params.max_out_of_band:
            self.fail(response, "inference_rate_limit_exceeded", "Too many responses at once.")
        elif self._turns.are_empty(response.id):
            self._end(response, "completed")
        elif not self._waiting.must_wait(response):
            self.start(response)

    def create_for_turn(
        self, turn_end_ns: int, item_id: str | None = None, heard_until: int | None = None
    ) -> None:
        """The automatic response to a user turn (None: to silence); behind a running one it is queued, once."""
        self._turns.ask(item_id)
        self.queued = self.active is not None
        self._queued_turn_ns, self._queued_until = turn_end_ns, heard_until
        if not self.queued:
            self._create_automatic()

    def _create_automatic(self) -> None:
        self.queued = False
        response = self.build(plan(self._context.settings, ResponseOverrides()), self.epoch)
        self._turns.take(response.id)
        response.turn_end_ns = self._queued_turn_ns
        response.heard_until = self._queued_until
        self._begin(response)

    def speak_up(self) -> None:
        """Nobody speaks: say what the camera shows, if there is news."""
        if self.busy:
            return
        change = self.prompting.news()
        if change is not None:
            response = self.build(plan(self._context.settings, ResponseOverrides()), self.epoch)
            response.change = change
            self._begin(response)

    def start_queued(self) -> None:
        """The answer that a turn is waiting for, once none is active."""
        if self.queued and self.active is None:
            self._create_automatic()

    def adopt(self, draft: Response, turn_end_ns: int) -> None:
        """A draft becomes the answer: announce it, then all that it brought so far."""
        draft.epoch = self.epoch
        draft.phase = ResponsePhase.RUNNING
        draft.turn_end_ns = turn_end_ns
        self.prompting.used_camera(draft)
        self._context.emit(AdoptDraft(draft.id, draft.lane, draft.epoch, turn_end_ns))
        self._announce(draft)
        self._watch(draft)
        held, draft.held = draft.held, []
        for event in held:
            if not draft.ended:
                self._apply(draft, event)

    def _announce(self, response: Response) -> None:
        self.live[response.id] = response
        if not response.plan.out_of_band:
            self.active = response
            if not self.queued:
                self._turns.forget()
            self.last_id = response.id
            response.ledger.floor_ns = self.sending.lane_busy_until()
        self._context.emit(
            AnnounceResponseCreated(response.view("in_progress")), AnnounceRateLimits()
        )

    def start(self, response: Response, turn: PromptMessage | None = None) -> None:
        """Hand the prompt to the engine. `turn`: one that is no item yet (a draft's)."""
        if response.phase is ResponsePhase.WAITING:
            response.phase = ResponsePhase.RUNNING
            self._watch(response)
            self.prompting.used_camera(response)
        self.prompting.start(response, turn)

    def item_known(self, item_id: str) -> None:
        """What was awaited of an item came, or it is gone: start what waited for it, or end what has no words to answer."""
        for response in self._waiting.know(item_id, self.live.values()):
            if self._turns.are_empty(response.id):
                self._end(response, "completed")
            elif self._waiting.is_ready(response):
                self.start(response)

    def camera_known(self) -> None:
        """A look at the camera's frame has ended: start what waited for it."""
        for response in self._waiting.look_again(self.live.values()):
            if self._waiting.is_ready(response):
                self.start(response)

    def camera_late(self, response_id: str) -> None:
        """The camera has held up this answer for long enough."""
        response = self.live.get(response_id)
        if response is not None and response.awaits_camera:
            self._waiting.give_up_camera(response)
            if self._waiting.is_ready(response):
                self.start(response)

    def transcript_failed(self, item_id: str, message: str) -> None:
        for response in [r for r in self.live.values() if item_id in r.waiting_for]:
            self.fail(response, "server_error", message)

    # -- what the engine brings

    def generated(self, event: GenerationEvent) -> None:
        response = self.live.get(event.response_id)
        if response is None:
            self._context.count("stale_outputs", "session")
        else:
            self._apply(response, event)

    def _apply(self, response: Response, event: EngineEvent) -> None:
        response.news_ns = self._context.now
        output = response.output
        match event:
            case TextGenerated():
                response.spoken.say(event.text)
                output.say(event.text)
                self.spoken.know(response)
            case ClauseSpoken():
                response.spoken.time(event)
            case AudioGenerated():
                self._add_audio(response, event)
            case CallStarted():
                output.begin_call(event.index, event.name)
            case CallArguments():
                output.extend_call(event.index, event.arguments)
            case CallFinished():
                output.end_call(event.index)
            case GenerationFinished():
                self._generation_over(response, event)
            case GenerationFailed():
                self.fail(response, event.code, event.message)
            case TranscriptReady() | TurnJudged() | PictureSeen() | WorkFailed():
                pass

    def _add_audio(self, response: Response, event: AudioGenerated) -> None:
        if not response.spoken_aloud or response.phase is not ResponsePhase.RUNNING:
            return
        ledger, params = response.ledger, self._context.params
        if event.start_sample != ledger.generated:
            self.fail(response, "server_error", "The engine left a gap in the audio.")
            return
        response.output.message()
        self.spoken.know(response)
        ledger.add(event.pcm)
        if samples_to_ms(ledger.unsent, ledger.rate) > params.lead_generated_ms + MAX_AHEAD_MS:
            self.fail(response, "server_error", "The engine ran too far ahead.")
            return
        self.sending.pump(response)

    def _generation_over(self, response: Response, event: GenerationFinished) -> None:
        if response.phase is not ResponsePhase.RUNNING:
            return
        response.usage = event.usage
        response.finish_reason = event.reason
        response.phase = ResponsePhase.SENDING
        response.ledger.finish()
        self._context.timers.clear(Timer.GENERATION, response.id)
        self.sending.pump(response)
        self.finish_if_sent(response)

    # -- ends

    def finish_sent(self) -> None:
        """End every response of which all was handed over, whatever event brought the last piece out."""
        for response in [r for r in self.live.values() if r.phase is ResponsePhase.SENDING]:
            self.finish_if_sent(response)

    def finish_if_sent(self, response: Response) -> None:
        """The natural end: everything was generated and handed over."""
        if response.phase is not ResponsePhase.SENDING or response.ledger.unsent:
            return
        whole = response.finish_reason == "stop"
        status = ItemStatus.COMPLETED if whole else ItemStatus.INCOMPLETE
        response.output.close(response.spoken.text, status)
        if whole:
            self._end(response, "completed")
        else:
            self._end(response, "incomplete", response.finish_reason)

    def fail(self, response: Response, code: str, message: str) -> None:
        """An end by fault: nothing more is made; what the client already has may play."""
        dropped = response.ledger.abandon()
        self.sending.count_waste("vocoded", dropped, response)
        self._context.emit(CancelGeneration(response.id))
        said = response.spoken.text
        if response.spoken_aloud:
            ledger = response.ledger
            said = response.spoken.heard(ledger.queued, ledger.generated).text
        response.output.close(said, ItemStatus.INCOMPLETE)
        self._end(response, "failed", error=(code, message))

    def stop(
        self,
        victims: Sequence[Response],
        status: str,
        reason: str | None,
        error: tuple[str, str] | None = None,
        cut: int | None = None,
    ) -> None:
        """Stop these responses of one lane, at once and in the one order. `cut`: the client's truncation, in samples."""
        if not victims:
            return
        self._raise_fence(victims[0])
        for response in victims:
            if response.spoken_aloud:
                self._context.emit(PurgeAudio(response.id))
        for response in victims:
            self.sending.silence(response, self.epoch)
        for response in victims:
            if not response.ended:
                self._context.emit(CancelGeneration(response.id))
        for response in victims:
            self.spoken.cut(response, cut)
        for response in victims:
            said = self.spoken.heard_text(response)
            if response.ended:
                self.spoken.keep_heard(response)
            else:
                called = set(response.output.ids()) - {response.output.message_id}
                if reason == "turn_detected" and not said and not called:
                    self._turns.leave(response.id)
                response.output.close(said, ItemStatus.INCOMPLETE)
                self._end(response, status, reason, error)

    def _raise_fence(self, victim: Response) -> None:
        if victim.lane == DEFAULT_LANE:
            self.epoch += 1
            self._context.emit(RaiseFence(DEFAULT_LANE, self.epoch))
        else:
            self._context.emit(RaiseFence(victim.lane, (victim.epoch or 0) + 1))

    def _end(
        self,
        response: Response,
        status: str,
        reason: str | None = None,
        error: tuple[str, str] | None = None,
    ) -> None:
        context = self._context
        response.phase = ResponsePhase.ENDED
        del self.live[response.id]
        self._turns.end(response.id)
        for timer in (Timer.PROGRESS, Timer.GENERATION, Timer.PACE, Timer.CAMERA):
            context.timers.clear(timer, response.id)
        context.emit(AnnounceResponseDone(response.view(status, reason, error)))
        if response.plan.out_of_band:
            return
        self.active = None
        self.spoken.remember(response)
        self.sending.ended(response)

    # -- deadlines

    def _watch(self, response: Response) -> None:
        context, params = self._context, self._context.params
        response.news_ns = context.now
        context.timers.set(Timer.PROGRESS, context.in_ms(params.first_output_ms), response.id)
        context.timers.set(Timer.GENERATION, context.in_ms(params.response_ms), response.id)
