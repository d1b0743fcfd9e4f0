"""One session of spoken conversation: the pure core behind every connection.

    Session(settings, params, new_id, now)
    handle(event, now) -> actions      everything that happens goes in here; actions are carried out in order
    next_deadline() -> now | None      the shell arms one timer for this instant
    on_deadline(now) -> actions        call when it has come (a call too early does nothing)

No clock, no I/O, no randomness: the same events at the same instants give the same actions. `now` is integer
nanoseconds of a monotonic clock and never falls. The shell must finish carrying out the actions of one call before
it makes the next one. One writer.

The parts: `Listening` (the user's voice), `UserTurns` (commits, words, drafts), `Responses` with `Sending` (answers and
their playback), `Truncation` (what was heard), `Requests` (what clients ask for), `TurnTaking` (the one table of
states). This class routes events, keeps the table in step with whether an answer is busy, and owns the session's own deadlines:

* idle timeout: once per silence, from the end of playback;
* expiry: error `session_expired`, then close 1001;
* drain: no new response, and close 1001 once no answer is busy; shutdown: the same without waiting, answers fail;
* every open question and response has a deadline; missing it fails what waited (counted as `stuck_sessions`, by what
  was stuck), and the session goes on listening.

After Disconnected, expiry or a finished drain the session is closed: every event is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from session_server.core.actions import (
    Action,
    AnnounceIdleTimeout,
    AnnounceSettings,
    CancelGeneration,
    CloseConnection,
    RaiseFence,
)
from session_server.core.camera import Camera
from session_server.core.client_requests import Requests
from session_server.core.context import Context, Timer
from session_server.core.conversation import InputAudioContent, Item, ItemStatus, Message, Role
from session_server.core.events import (
    AudioAppended,
    AudioGenerated,
    AudioWritten,
    CallArguments,
    CallFinished,
    CallStarted,
    ClauseSpoken,
    Disconnected,
    DrainStarted,
    Event,
    FrameAlike,
    FrameCame,
    FramesCleared,
    FrameTaken,
    GenerationFailed,
    GenerationFinished,
    InputCleared,
    InputCommitted,
    ItemCreated,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    OutputCleared,
    PictureSeen,
    PlaybackAcked,
    ResponseCancelled,
    ResponseRequested,
    SettingsChanged,
    Shutdown,
    SpeechProbability,
    TextGenerated,
    TranscriptReady,
    TurnJudged,
    WorkFailed,
)
from session_server.core.host_requests import Works
from session_server.core.host_results import AnsweredWorks
from session_server.core.listening import Listening
from session_server.core.responses import DEFAULT_LANE, Responses
from session_server.core.settings import CoreParams, SessionSettings, TurnMode
from session_server.core.truncation import Truncation
from session_server.core.turn_taking import WITH_ANSWER, TurnEvent, TurnState, TurnTaking
from session_server.core.user_turns import InputBuffer, UserTurns
from session_server.core.video_window import VideoWindow
from session_server.types.audio import PlaybackSnapshot
from session_server.types.ids import NewId

CLOSE_GOING_AWAY = 1001


class Session:
    """See the module docstring for the rules of the calls."""

    def __init__(
        self, settings: SessionSettings, params: CoreParams, new_id: NewId, now: int
    ) -> None:
        context = Context(settings, params, new_id, now)
        self._context = context
        self._turn = TurnTaking()
        self._works = Works(context)
        self._buffer = InputBuffer(context)
        self._camera = Camera(context, self._works)
        self._responses = Responses(context, self._works, self._camera)
        self._turns = UserTurns(context, self._works, self._responses, self._buffer, self._camera)
        self._listening = Listening(
            context, self._turn, self._works, self._responses, self._buffer, self._turns
        )
        self._answers = AnsweredWorks(
            context, self._works, self._responses, self._turns, self._listening, self._camera
        )
        self._truncation = Truncation(context, self._responses)
        self._requests = Requests(
            context, self._works, self._responses, self._buffer, self._turns, self._listening,
            self._truncation,
        )  # fmt: skip
        self._camera.settings_changed()
        self._idle_spent = False
        self._idle_from_ms = 0
        if params.max_session_ms:
            context.timers.set(Timer.EXPIRY, context.in_ms(params.max_session_ms))
        self._timers: dict[Timer, Callable[[str], None]] = {
            Timer.EXPIRY: self._expire,
            Timer.IDLE: self._idle_timeout,
            Timer.WORK: self._answers.late,
            Timer.INPUT_GAP: lambda _: self._listening.input_stalled(),
            Timer.PACE: self._pace,
            Timer.REPORT: self._report,
            Timer.PROGRESS: self._check_progress,
            Timer.GENERATION: self._generation_is_late,
            Timer.PLAYED_OUT: self._played_out,
            Timer.ACK_SILENCE: self._acks_are_silent,
            Timer.SETTLE: self._settled,
            Timer.CAMERA: self._responses.camera_late,
            Timer.STILL: lambda _: self._camera.read(),
        }

    # -- the interface

    def handle(self, event: Event, now: int) -> list[Action]:
        """What follows from `event`. Raises IllegalTransition for a bug of ours, never for a client's mistake."""
        context = self._context
        if self._turn.state is TurnState.CLOSED:
            return []
        context.now = now
        if isinstance(event, SpeechProbability):
            self._listening.heard(event)
        elif isinstance(event, AudioAppended):
            self._listening.appended(event)
        elif isinstance(event, AudioWritten):
            self._responses.sending.written(event)
        elif isinstance(event, PlaybackAcked):
            self._acknowledge(event)
        else:
            self._route(event)
        self._reconcile()
        return context.take()

    def next_deadline(self) -> int | None:
        return self._context.timers.next()

    def on_deadline(self, now: int) -> list[Action]:
        """Do what is due; deadlines that this cancels or moves are not taken."""
        context = self._context
        context.now = now
        for key in context.timers.due(now):
            if context.timers.take(key, now):
                timer, of = key
                self._timers[timer](of)
                self._reconcile()
        return context.take()

    @property
    def voice_locked(self) -> bool:
        """An in-conversation response has sent audio: the voice may not change any more."""
        return self._responses.sending.voice_used

    @property
    def state(self) -> TurnState:
        """Who has the floor."""
        return self._turn.state

    @property
    def video_window(self) -> VideoWindow:
        """What the session's answers know of its camera, for inspection."""
        return self._camera.window

    @property
    def epoch(self) -> int:
        """The default lane's epoch."""
        return self._responses.epoch

    def snapshot(self, response_id: str) -> PlaybackSnapshot | None:
        """How far this response got, for onlookers; None when it is unknown or left no audio."""
        response = self._responses.find(response_id)
        return None if response is None else response.ledger.seen(self._context.now)

    def item(self, item_id: str) -> Item | None:
        """A conversation item as a client would retrieve it."""
        return self._requests.item(item_id)

    # -- routing

    def _route(self, event: Event) -> None:
        match event:
            case (
                TextGenerated() | ClauseSpoken() | AudioGenerated() | CallStarted() | CallArguments()
                | CallFinished() | GenerationFinished() | GenerationFailed()
            ):  # fmt: skip
                if not self._turns.hold(event):
                    self._responses.generated(event)
            case SettingsChanged():
                self._change_settings(event)
            case InputCommitted():
                self._requests.commit(event)
            case InputCleared():
                self._requests.clear()
            case ItemCreated():
                self._requests.create_item(event)
            case ItemDeleted():
                self._requests.delete_item(event)
            case ItemRetrieved():
                self._requests.retrieve_item(event)
            case ItemTruncated():
                self._truncation.truncate(event)
            case ResponseRequested():
                self._requests.request_response(event)
            case ResponseCancelled():
                self._requests.cancel_response(event)
            case OutputCleared():
                self._requests.clear_output(event)
            case TranscriptReady() | TurnJudged() | PictureSeen() | WorkFailed():
                self._answers.answered(event)
            case FrameTaken():
                self._camera.taken(event)
            case FrameAlike():
                self._camera.alike(event)
            case FrameCame():
                self._camera.came(event)
            case FramesCleared():
                self._camera.clear()
            case Disconnected():
                self._close()
            case DrainStarted():
                self._responses.draining = True
                self._responses.queued = False
            case Shutdown():
                self._end_all(("server_error", "The server is shutting down."))
                self._shut("server is shutting down")
            case SpeechProbability() | AudioAppended() | AudioWritten() | PlaybackAcked():
                pass  # taken by `handle`
            case _:
                assert_never(event)

    def _change_settings(self, event: SettingsChanged) -> None:
        self._context.settings = event.settings
        self._turns.draft_is_stale()
        self._camera.settings_changed()
        self._listening.mode_changed()
        self._context.emit(AnnounceSettings())
        if self._idle_ms() is None:
            self._context.timers.clear(Timer.IDLE)

    def _acknowledge(self, event: PlaybackAcked) -> None:
        if self._context.settings.playback is None:
            message = "playback.ack needs the playback extension"
            self._context.error("invalid_event", message, "type", event.event_id)
        else:
            self._truncation.acknowledge(event)

    # -- after every event

    def _reconcile(self) -> None:
        """Bring the table in step with whether an answer is busy, and do what waited for that."""
        turn, responses = self._turn, self._responses
        if turn.state is TurnState.CLOSED:
            return
        responses.finish_sent()
        self._camera.follow(self._listening.utterance is not None, responses.epoch)
        if len(self._context.conversation) > self._context.params.max_items:
            self._requests.trim()
        known = turn.state in WITH_ANSWER
        if self._listening.utterance is not None:
            self._idle_spent = False
        if known and not responses.busy:
            turn.apply(TurnEvent.ANSWER_ENDED)
            self._listening.answer_over()
            responses.prompting.answer_over()
        if responses.queued and turn.state in (TurnState.LISTENING, TurnState.ANSWERING):
            responses.start_queued()
        if turn.state is TurnState.LISTENING and self._camera.is_on and not responses.draining:
            responses.speak_up()
        if responses.busy:
            if turn.state not in WITH_ANSWER:
                self._context.timers.clear(Timer.IDLE)
                turn.apply(TurnEvent.ANSWER_STARTED)
            return
        if known and turn.state is TurnState.LISTENING:
            self._arm_idle()
        if responses.draining:
            self._shut("server is shutting down")

    def _arm_idle(self) -> None:
        idle_ms = self._idle_ms()
        if idle_ms is not None and not self._idle_spent:
            self._idle_from_ms = self._buffer.end_ms
            self._context.timers.set(Timer.IDLE, self._context.in_ms(idle_ms))

    def _idle_ms(self) -> int | None:
        detection = self._context.settings.turn_detection
        return None if detection.mode is TurnMode.MANUAL else detection.idle_timeout_ms

    # -- deadlines

    def _idle_timeout(self, _: str) -> None:
        """The user stayed silent: an empty audio item, and a response. Once per silence."""
        if self._turn.state is not TurnState.LISTENING or self._idle_ms() is None:
            return
        self._idle_spent = True
        context, end = self._context, self._buffer.end
        item_id = context.new_id("item")
        context.emit(AnnounceIdleTimeout(item_id, self._idle_from_ms, self._buffer.end_ms))
        content = InputAudioContent(end, end, "")
        item = Message(item_id, Role.USER, ItemStatus.COMPLETED, (content,))
        self._turns.add_item(item, committed=True)
        self._buffer.drop_before(end)
        self._responses.create_for_turn(context.now)

    def _pace(self, response_id: str) -> None:
        response = self._responses.live.get(response_id)
        if response is not None:
            self._responses.sending.pump(response)

    def _report(self, response_id: str) -> None:
        response = self._responses.live.get(response_id)
        if response is not None:
            self._responses.sending.report(response)

    def _check_progress(self, response_id: str) -> None:
        response = self._responses.live.get(response_id)
        if response is not None and not self._responses.sending.check_progress(response):
            self._context.count("stuck_sessions", response.phase.value)
            self._responses.fail(response, "server_error", "The answer stopped coming.")

    def _generation_is_late(self, response_id: str) -> None:
        response = self._responses.live.get(response_id)
        if response is not None:
            self._context.count("stuck_sessions", response.phase.value)
            self._responses.fail(response, "server_error", "The answer took too long.")

    def _played_out(self, response_id: str) -> None:
        response = self._responses.find(response_id)
        if response is not None:
            self._responses.sending.played_out(response)

    def _acks_are_silent(self, response_id: str) -> None:
        response = self._responses.find(response_id)
        if response is not None:
            self._responses.sending.acks_are_silent(response)

    def _settled(self, response_id: str) -> None:
        response = self._responses.find(response_id)
        if response is not None:
            self._responses.spoken.settled(response)

    # -- the end

    def _expire(self, _: str) -> None:
        ms = self._context.params.max_session_ms
        length = f"{ms / 1000:g} seconds" if ms < 60_000 else f"{ms // 60_000} minutes"
        message = f"Your session hit the maximum duration of {length}."
        self._end_all(("session_expired", message))
        self._context.error("session_expired", message)
        self._shut("session expired")

    def _shut(self, reason: str) -> None:
        self._end_all(("server_error", reason))
        self._context.emit(CloseConnection(CLOSE_GOING_AWAY, reason))
        self._retire()

    def _end_all(self, error: tuple[str, str]) -> None:
        """Every announced response gets its end, while somebody can still hear of it."""
        responses = self._responses
        for response in list(responses.live.values()):
            responses.stop([response], "failed", None, error)

    def _close(self) -> None:
        """The connection is gone: cancel everything, announce nothing."""
        for response in self._responses.live.values():
            self._context.emit(CancelGeneration(response.id))
        self._responses.epoch += 1
        self._context.emit(RaiseFence(DEFAULT_LANE, self._responses.epoch))
        self._retire()

    def _retire(self) -> None:
        self._turns.forget_ahead()
        self._works.cancel_all()
        self._context.timers.clear_all()
        self._turn.apply(TurnEvent.CLOSED)
