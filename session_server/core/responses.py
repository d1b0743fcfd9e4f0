"""The responses of one session: lanes and epochs, starting, what the engine brings, and how each ends.

Invariants: at most one active response in the default conversation; each announced response gets exactly one
`response.done`, and nothing of it is announced after that; a lane's epoch never falls. Every way to stop an answer
goes through `stop`, which keeps the order of design.md: fence, silence the listener, cancel the work, truncate to what
was heard, terminal events. A response that fails by itself goes through `fail`: what was sent plays on.

Output of an unknown or ended response is stale: dropped here and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from session_server.core.actions import (
    AdoptDraft,
    AnnounceRateLimits,
    AnnounceResponseCreated,
    AnnounceResponseDone,
    CancelGeneration,
    PromptMessage,
    PurgeAudio,
    RaiseFence,
    StartGeneration,
    Usage,
    WarmPrefix,
)
from session_server.core.context import Context
from session_server.core.deadlines import Timer
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
from session_server.core.heard_text import Clause
from session_server.core.items import Item, ItemStatus
from session_server.core.output_items import OutputItems
from session_server.core.prompt import prompt_messages, user_message
from session_server.core.response import Phase, Plan, Response, plan
from session_server.core.sending import Sending
from session_server.core.settings import ResponseOverrides
from session_server.core.spoken_answers import SpokenAnswers
from session_server.core.turns_to_answer import TurnsToAnswer
from session_server.core.works import WorkKind, Works
from session_server.media import samples_to_ms

DEFAULT_LANE = "default"
MAX_AHEAD_MS = 60_000
"""Audio held beyond the cap on generation: an engine that ignores the frontier fails its response here."""

GenerationEvent = (
    TextGenerated | ClauseSpoken | AudioGenerated | CallStarted | CallArguments | CallFinished
    | GenerationFinished | GenerationFailed
)  # fmt: skip


class Responses:
    """All responses that are not over, and of the ended ones what truncation and acknowledgements need."""

    def __init__(self, context: Context, works: Works) -> None:
        self._context = context
        self._works = works
        self.sending = Sending(context, self.find)
        self.epoch = 1
        self.active: Response | None = None
        self.queued = False
        self._queued_turn_ns = 0
        self.draining = False
        self.last_id: str | None = None
        self.live: dict[str, Response] = {}
        """Announced and not ended, out-of-band ones too."""
        self.spoken = SpokenAnswers(context, self.sending)
        self._turns = TurnsToAnswer(context)

    @property
    def busy(self) -> bool:
        """An answer is being generated, sent, or still playing at the listener."""
        return self.active is not None or bool(self.sending.playing)

    def find(self, response_id: str) -> Response | None:
        """A response that is live, or whose speech may still matter."""
        return self.live.get(response_id) or self.spoken.find(response_id)

    # -- beginning

    def build(self, wanted: Plan, epoch: int | None) -> Response:
        """A response that nobody knows of yet."""
        context = self._context
        response_id = context.new_id("resp")
        ledger = self.sending.new_ledger(wanted.out_of_band)
        lane = response_id if wanted.out_of_band else DEFAULT_LANE
        output = OutputItems(context, response_id, wanted.modality, wanted.out_of_band)
        return Response(response_id, lane, epoch, wanted, Phase.WAITING, output, ledger)

    def create(self, wanted: Plan) -> None:
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
        else:
            if wanted.input_items is None:
                items = self._context.conversation  # speech that goes on is no item yet
                response.waiting_for = {i for i in self._awaited() if i in items}
            if not response.waiting_for:
                self.start(response)

    def create_for_turn(self, turn_end_ns: int, item_id: str | None = None) -> None:
        """The automatic response to a user turn (None: to silence); behind a running one it is queued, once."""
        self._turns.ask(item_id)
        self.queued = self.active is not None
        self._queued_turn_ns = turn_end_ns
        if not self.queued:
            self._create_automatic()

    def _create_automatic(self) -> None:
        self.queued = False
        response = self.build(plan(self._context.settings, ResponseOverrides()), self.epoch)
        self._turns.take(response.id)
        response.turn_end_ns = self._queued_turn_ns
        self._begin(response)

    def start_queued(self) -> None:
        """The answer that a turn is waiting for, once none is active."""
        if self.queued and self.active is None:
            self._create_automatic()

    def adopt(self, draft: Response, turn_end_ns: int) -> None:
        """A draft becomes the answer: announce it, then all that it brought so far."""
        draft.epoch = self.epoch
        draft.phase = Phase.RUNNING
        draft.turn_end_ns = turn_end_ns
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
        context, wanted = self._context, response.plan
        items = context.conversation if wanted.input_items is None else wanted.input_items
        messages = self._prompt(items)
        if turn is not None:
            messages = (*messages, turn)
        if response.phase is Phase.WAITING:
            response.phase = Phase.RUNNING
            self._watch(response)
        context.emit(
            StartGeneration(
                response_id=response.id,
                lane=response.lane,
                epoch=response.epoch,
                instructions=wanted.instructions,
                messages=messages,
                tools=wanted.tools,
                tool_choice=wanted.tool_choice,
                modality=wanted.modality,
                voice=wanted.voice,
                speed=wanted.speed,
                max_output_tokens=wanted.max_output_tokens,
                turn_end_ns=response.turn_end_ns,
            )
        )

    def warm_prefix(self, words: str = "") -> None:
        """Let the engine read the conversation so far, and the user's `words` so far, while the user still speaks."""
        context, settings = self._context, self._context.settings
        said, work_id = self._prompt(context.conversation), context.new_id("work")
        if words:
            said = (*said, user_message(words))
        tools, choice = settings.tools, settings.tool_choice
        context.emit(WarmPrefix(work_id, settings.instructions, said, tools, choice))

    def _prompt(self, items: Iterable[Item]) -> tuple[PromptMessage, ...]:
        """Of items that are still in progress only what was heard may enter."""
        heard = {}
        for response in self.live.values():
            if response.output.message_id is not None and not response.plan.out_of_band:
                heard[response.output.message_id] = self.spoken.heard_text(response)
        bound, natively = self._context.params.prompt_items, self._context.settings.hearing.natively
        return prompt_messages(items, bound, heard, natively)

    def _awaited(self) -> set[str]:
        """Items of which a prompt still lacks something."""
        words = () if self._context.settings.hearing.natively else (WorkKind.TRANSCRIPT,)
        return self._works.pending(WorkKind.PICTURE, *words)

    def item_known(self, item_id: str) -> None:
        """What was awaited of an item came, or it is gone: start what waited for it, or end what has no words to answer."""
        if item_id in self._awaited():
            return
        for response in [r for r in self.live.values() if item_id in r.waiting_for]:
            response.waiting_for.discard(item_id)
            if self._turns.are_empty(response.id):
                self._end(response, "completed")
            elif not response.waiting_for:
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
                response.spoken.time(
                    Clause(
                        event.char_start, event.char_end, event.start_sample, event.end_sample,
                        event.words, event.estimated,
                    )
                )  # fmt: skip
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
        if not response.spoken_aloud or response.phase is not Phase.RUNNING:
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
        if response.phase is not Phase.RUNNING:
            return
        used = event.usage
        response.usage = Usage(
            used.input_text, used.input_audio, used.input_cached, used.output_text, used.output_audio
        )  # fmt: skip
        response.finish_reason = event.reason
        response.phase = Phase.SENDING
        response.ledger.finish()
        self._context.timers.clear(Timer.GENERATION, response.id)
        self.sending.pump(response)
        self.finish_if_sent(response)

    # -- ends

    def finish_sent(self) -> None:
        """End every response of which all was handed over, whatever event brought the last piece out."""
        for response in [r for r in self.live.values() if r.phase is Phase.SENDING]:
            self.finish_if_sent(response)

    def finish_if_sent(self, response: Response) -> None:
        """The natural end: everything was generated and handed over."""
        if response.phase is not Phase.SENDING or response.ledger.unsent:
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
        response.phase = Phase.ENDED
        del self.live[response.id]
        self._turns.end(response.id)
        for timer in (Timer.PROGRESS, Timer.GENERATION, Timer.PACE):
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
