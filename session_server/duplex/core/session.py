"""The session of a duplex model, which hears and speaks at once and decides on the floor.

Everything but turn taking is as in `Session`: items, responses, playback, truncation,
acknowledgements, deadlines. The model's events are one for each tick, and its loss. What differs:

* No turn is detected here, and nothing is asked of an engine but words. A response is opened when
  the model takes the floor and closed, completed, when it yields; in between every tick brings
  audio and now and then text. Other audio of the model (silence, breathing) is sent to no client.
* Barge-in is the model's: when it gives way its response is cancelled (`turn_detected`), the
  listener silenced, and the user's speech announced. When it says that it hears the user, that is
  announced too. The user's turn is committed, as an item, when the model takes the floor.
* The fence is ours still: `response.cancel`, a truncation, `output_audio_buffer.clear`. The model
  goes on talking, since it cannot be told; the rest of that utterance is dropped until it yields
  or takes the floor anew. Frames of an epoch before the fence are stale, and so is the whole of an
  utterance that began with such a frame. An event's `epoch` is the default lane's, as the host knew
  it when the tick began.
* An utterance without end is cut into responses of `max_speech_ms`, at a frame, without losing a
  sample.
* A client that is behind has its old answer's rest dropped when the next one begins: the model does
  not wait.
* `response.create` and `input_audio_buffer.commit` are errors that say why.
* Where a recogniser works beside the model and the client asked for transcripts, each of the user's
  items gets its words, as in every session. Where the model does not say when the user speaks,
  voice activity alone makes the items, without `speech_started`, which would stop an answer that
  the model goes on with. Such an utterance begins with START_MS of speech and ends with END_MS of
  silence, or at LONGEST_MS.

Settings are narrowed at the entry: no turn detection, no tools. Actions are those of
`engines.duplex_engine.TurnAction`, by name.

Units: positions are samples at INPUT_RATE.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from session_server.core.actions import Action, AnnounceSpeechStarted, AnnounceSpeechStopped
from session_server.core.events import (
    AudioGenerated,
    Event,
    GenerationFinished,
    InputCleared,
    InputCommitted,
    ResponseRequested,
    SettingsChanged,
    SpeechProbability,
    TextGenerated,
)
from session_server.core.response import Response, plan
from session_server.core.session import Session
from session_server.core.settings import (
    CoreParams,
    Hearing,
    ResponseOverrides,
    SessionSettings,
    TurnDetection,
    TurnMode,
)
from session_server.core.turn_taking import TurnState
from session_server.types.audio import INPUT_RATE, Value, ms_to_samples, samples_to_ms
from session_server.types.ids import NewId
from session_server.types.usage import TokenUsage

TAKE = "take"
YIELD = "yield"
GIVE_WAY = "give_way"
HEAR = "hear"


class AssistantSpoke(Value, frozen=True):
    """One frame of what the model says, s16le at OUTPUT_RATE. `tokens`: of text."""

    epoch: int
    pcm: bytes
    text: str = ""
    actions: tuple[str, ...] = ()
    tokens: int = 0


class AssistantLost(Value, frozen=True):
    """The model's conversation is gone: its engine failed. It begins anew when the engine is back."""

    message: str


DuplexEvent = AssistantSpoke | AssistantLost


SPEECH = 0.5
SILENCE = 0.35
"""Probabilities: between them nothing changes."""
START_MS = 96
END_MS = 700
LONGEST_MS = 30_000
PADDING_MS = 300


class Overheard:
    """One user's speech. `start`: of the utterance under way, with its padding; None: there is none."""

    def __init__(self) -> None:
        self.start: int | None = None
        self._speech_from: int | None = None
        self._silence_from: int | None = None
        self._end = 0

    def heard(self, end: int, probability: float) -> tuple[int, int] | None:
        """One more frame, which ends there: the utterance that is over with it."""
        began, self._end = self._end, end
        if probability >= SPEECH:
            self._silence_from = None
            if self._speech_from is None:
                self._speech_from = began
        elif probability < SILENCE:
            self._speech_from = None
            if self._silence_from is None:
                self._silence_from = began
        if self.start is not None:
            return self._go_on(end, self.start)
        self._begin(end)
        return None

    def forget(self) -> None:
        """The client took back what it said."""
        self.start = self._speech_from = self._silence_from = None

    def _begin(self, end: int) -> None:
        since = self._speech_from
        if since is not None and end - since >= ms_to_samples(START_MS, INPUT_RATE):
            self.start = max(0, since - ms_to_samples(PADDING_MS, INPUT_RATE))

    def _go_on(self, end: int, start: int) -> tuple[int, int] | None:
        quiet = 0 if self._silence_from is None else end - self._silence_from
        if quiet >= ms_to_samples(END_MS, INPUT_RATE):
            over = end - quiet + ms_to_samples(PADDING_MS, INPUT_RATE)
        elif end - start >= ms_to_samples(LONGEST_MS, INPUT_RATE):
            over = end
        else:
            return None
        self.forget()
        return start, over


KEPT_INPUT_MS = 10_000
"""Of the user's audio between turns: the model has heard it."""
BEFORE_SPEECH_MS = 300
"""The model notices speech a little after it began."""


class Floor(enum.Enum):
    """Who has it, as the model said. MUTED: the model, and what it says is dropped."""

    USER = "user"
    MODEL = "model"
    MUTED = "muted"


def duplex_settings(settings: SessionSettings) -> SessionSettings:
    """What of the settings holds where the model takes the turns."""
    words = settings.transcribe and settings.hearing.words
    return replace(
        settings,
        turn_detection=TurnDetection(mode=TurnMode.MANUAL),
        transcribe=words,
        tools=(),
        hearing=Hearing(natively=False, words=words),
    )


class DuplexSession(Session):
    """See the module docstring; the calls are those of `Session`, and `duplex` for what the model brings."""

    def __init__(
        self, settings: SessionSettings, params: CoreParams, new_id: NewId, now: int
    ) -> None:
        super().__init__(duplex_settings(settings), params, new_id, now)
        self.floor = Floor.USER
        self._answer: Response | None = None
        self._tokens = 0
        self._frames = 0
        self._speech: tuple[str, int] | None = None
        """The user's announced turn: the id of its item, and where it began."""
        self._overheard = Overheard()
        self._known_epoch = self.epoch
        self._fence = self.epoch
        """Frames of an older epoch are stale."""

    def duplex(self, event: DuplexEvent, now: int) -> list[Action]:
        """What follows from what the model brought."""
        context = self._context
        if self.state is TurnState.CLOSED:
            return []
        context.now = now
        if isinstance(event, AssistantSpoke):
            self._spoke(event)
        else:
            self._lost(event)
        self._reconcile()
        return context.take()

    # -- what the model brings

    def _spoke(self, event: AssistantSpoke) -> None:
        stale = event.epoch < self._fence
        for action in event.actions:
            if action == TAKE:
                self._taken(stale)
            elif action == GIVE_WAY:
                self._gives_way()
            elif action == HEAR:
                self._user_begins()
        if self.floor is Floor.MODEL and not stale:
            self._say(event)
        elif self.floor is not Floor.USER:
            self._context.count("stale_outputs", "session")
        if YIELD in event.actions:
            self._finish()
            self.floor = Floor.USER

    def _taken(self, stale: bool) -> None:
        self._finish()
        self._user_ends()
        if stale or self._responses.draining:
            self.floor = Floor.MUTED
            return
        self.floor = Floor.MODEL
        self._open()

    def _open(self) -> None:
        """A response that nobody asked for."""
        responses = self._responses
        if responses.active is not None:  # all of it is made, and its client has not taken it yet
            self._drop_rest(responses.active)
        self._tokens = self._frames = 0
        self._answer = responses.build(plan(self._context.settings, ResponseOverrides()), None)
        responses.adopt(self._answer, self._context.now)

    def _drop_rest(self, behind: Response) -> None:
        responses = self._responses
        responses.sending.count_waste("vocoded", behind.ledger.abandon(), behind)
        responses.finish_if_sent(behind)

    def _say(self, event: AssistantSpoke) -> None:
        answer = self._answer
        assert answer is not None  # the model has the floor
        limit = ms_to_samples(self._context.params.max_speech_ms, answer.ledger.rate)
        if answer.ledger.generated >= limit:
            self._finish()
            self._open()
            answer = self._answer
            assert answer is not None
        self._tokens += event.tokens
        self._frames += 1
        if event.text:
            self._responses.generated(TextGenerated(answer.id, event.text))
        if not answer.ended:
            start = answer.ledger.generated
            self._responses.generated(AudioGenerated(answer.id, start, event.pcm))

    def _finish(self) -> None:
        """The answer is complete; what was not handed over yet goes out as the client takes it."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.ended:
            used = TokenUsage(output_text=self._tokens, output_audio=self._frames)
            self._responses.generated(GenerationFinished(answer.id, "stop", used))

    def _lost(self, event: AssistantLost) -> None:
        """One clear error: that of the answer under way, else one of the session."""
        answer, self._answer = self._answer, None
        self.floor = Floor.USER
        self._speech = None
        if answer is not None and not answer.ended:
            self._responses.fail(answer, "server_error", event.message)
        else:
            self._context.error("server_error", event.message)

    # -- the user's turns, as the model tells of them

    def _gives_way(self) -> None:
        responses = self._responses
        victims = list(responses.sending.playing)
        if responses.active is not None and responses.active not in victims:
            victims.append(responses.active)
        if victims:
            self._context.count("interruptions", "true")
        responses.stop(victims, "cancelled", "turn_detected")
        self._answer = None
        self._known_epoch = self.epoch  # the model knows: what it says from now on is not stale
        self.floor = Floor.USER
        self._user_begins()

    def _user_begins(self) -> None:
        if self._speech is None:
            buffer = self._buffer
            start = max(buffer.start, buffer.end - ms_to_samples(BEFORE_SPEECH_MS, INPUT_RATE))
            self._speech = self._context.new_id("item"), start
            start_ms = samples_to_ms(start, INPUT_RATE)
            self._context.emit(AnnounceSpeechStarted(self._speech[0], start_ms))

    def _user_ends(self) -> None:
        speech, self._speech = self._speech, None
        if speech is not None:
            item_id, start = speech
            self._context.emit(AnnounceSpeechStopped(item_id, self._buffer.end_ms))
            self._turns.commit(item_id, start, self._buffer.end, respond=False)

    def _hear_speech(self, event: SpeechProbability) -> None:
        """Only where the model does not tell of the user's turns."""
        utterance = self._overheard.heard(event.end_sample, event.probability)
        if utterance is not None:
            start, end = utterance
            start = max(start, self._buffer.start)
            self._turns.commit(self._context.new_id("item"), start, end, respond=False)

    # -- the client

    def handle(self, event: Event, now: int) -> list[Action]:
        if not isinstance(event, SpeechProbability) or self.state is TurnState.CLOSED:
            return super().handle(event, now)
        self._context.now = now
        self._hear_speech(event)
        self._reconcile()
        return self._context.take()

    def _route(self, event: Event) -> None:
        match event:
            case SettingsChanged(settings, event_id):
                super()._route(SettingsChanged(duplex_settings(settings), event_id))
            case InputCommitted(event_id):
                self._context.error(
                    "input_audio_buffer_commit_empty",
                    "Error committing input audio buffer: this model hears audio as it comes, and decides itself "
                    "when it answers; there is nothing to commit.",
                    None,
                    event_id,
                )
            case ResponseRequested(event_id=event_id):
                self._context.error(
                    "invalid_value",
                    "This model decides itself when it speaks; response.create cannot make it.",
                    "type",
                    event_id,
                )
            case InputCleared():
                self._speech = None
                self._overheard.forget()
                super()._route(event)
            case _:
                super()._route(event)

    # -- after every event

    def _reconcile(self) -> None:
        super()._reconcile()
        if self.state is TurnState.CLOSED:
            return
        if self.epoch > self._known_epoch:
            self._fence = self._known_epoch = self.epoch
        if self._answer is not None and self._answer.ended:
            self._answer = None
            self.floor = Floor.MUTED  # somebody stopped it; the model does not know
        if self._speech is None and self._overheard.start is None:
            kept = ms_to_samples(KEPT_INPUT_MS, INPUT_RATE)
            if self._buffer.samples > kept + INPUT_RATE:
                self._buffer.drop_before(self._buffer.end - kept)
