"""From input audio to user items: commits, transcripts, automatic responses, drafts.

Owns the input time line and the part of it that is not committed yet. An utterance (speech found by
turn detection) has its item id from the start. When enough silence has passed its words are asked
for, and with `speculate` an answer is drafted from them; both are thrown away if speech goes on. At
the end of turn the item is committed and the draft adopted, or the response waits for the words.

A user item without words (noise) is kept; no prompt has a message for it. Clients wait for its
automatic response, so there is one, which ends at once: completed, no output, nothing generated. It
is answered only together with turns that have words: queued ones, or one whose answer it cut off
before any of that was heard. Responses that the client asks for, and the one to the user's silence
(idle timeout), are generated whatever was heard.

Failing recognition fails the responses that wait for it, and tells a client that asked for
transcripts. Where the thinker hears (`Hearing.natively`), drafts and answers are begun from the
audio, and the words, if there are any, come beside them.

Invariants: `end` never falls; `start <= end`; everything before `start` is committed, cleared or
dropped for good. Without turn detection the buffer keeps the newest `max_input_ms`; with it, while
nobody speaks, the newest `idle_input_ms`. Audio beyond that is dropped from the front, and the
shell is told that it may forget it (in steps of a second, not with each frame).

Units: positions are samples at INPUT_RATE since the session began.

The user's words are asked for while he still speaks, so that the thinker reads them early. With `read_along_ms` 0 nothing is asked for: what precedes the turn is read when it begins, and the turn in its pauses. Otherwise the
words so far are asked for after so much speech, and again when the turn has grown by that and by a quarter: the recognitions
of a long turn cost a few times its last one, however long it is. One is open at a time. The last word is left out, since it may
have been cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from session_server.core.actions import (
    AnnounceCommitted,
    AnnounceItemAdded,
    AnnounceItemDone,
    AnnounceTranscript,
    AnnounceTranscriptDelta,
    AnnounceTranscriptFailed,
    CancelGeneration,
    ForgetInput,
)
from session_server.core.camera import Camera
from session_server.core.context import Context
from session_server.core.conversation import InputAudioContent, ItemStatus, Message, Role
from session_server.core.events import GenerationFailed
from session_server.core.host_requests import Work, WorkKind, Works
from session_server.core.prompt import user_message
from session_server.core.response import Response, ResponsePhase, plan
from session_server.core.responses import GenerationEvent, Responses
from session_server.core.settings import ResponseOverrides, SessionSettings
from session_server.core.turn_taking import Utterance
from session_server.core.video_window import Evidence
from session_server.types.audio import INPUT_RATE, NS_PER_S, ms_to_samples, samples_to_ms
from session_server.types.prompt import UserAudio

STEP = INPUT_RATE


class InputBuffer:
    """Where uncommitted input starts and ends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.start = 0
        self.end = 0

    @property
    def samples(self) -> int:
        return self.end - self.start

    @property
    def end_ms(self) -> int:
        return samples_to_ms(self.end, INPUT_RATE)

    def extend(self, end: int, keep_ms: int, needed: int | None) -> None:
        """The time line has grown. `needed`: an open utterance starts here; nothing behind that is dropped."""
        self.end = max(self.end, end)
        bound = self.end - ms_to_samples(keep_ms, INPUT_RATE)
        if needed is not None:
            bound = min(bound, needed)
        if bound - self.start >= STEP:
            self.drop_before(bound)

    def drop_before(self, sample: int) -> None:
        """Input before `sample` is committed or dropped."""
        if sample > self.start:
            self.start = min(sample, self.end)
            self._context.emit(ForgetInput(self.start))


MAX_DRAFT_EVENTS = 2_000
_NO_WORDS = "This server has no speech recognition beside its model."


@dataclass(slots=True)
class Ahead:
    """What was begun before the end of turn is decided. `text` None: the words are still awaited."""

    work: Work | None
    start: int
    end: int
    text: str | None = None
    draft: Response | None = None
    dropped: bool = False
    """Its draft failed or went stale: the answer is begun at the end of turn."""
    began_ns: int = 0
    version: int = 0
    settings: SessionSettings | None = None
    evidence: Evidence | None = None
    """What the draft knows of the camera's picture."""


class UserTurns:
    """Commits user input, and remembers its words."""

    def __init__(
        self,
        context: Context,
        works: Works,
        responses: Responses,
        buffer: InputBuffer,
        camera: Camera,
    ) -> None:
        self._context = context
        self._camera = camera
        self._works = works
        self._responses = responses
        self._buffer = buffer
        self.ahead: Ahead | None = None

    # -- before the end of turn

    def look_ahead(self, item_id: str, start: int, end: int) -> None:
        """The user has paused: ask for the words already."""
        words = self._context.settings.hearing.words
        work = self._works.recognise(item_id, start, end) if words else None
        self.ahead = Ahead(work, start, end)
        self._camera.read()

    def forget_ahead(self) -> None:
        """Speech goes on, or is dropped: nothing of it is remembered."""
        ahead, self.ahead = self.ahead, None
        if ahead is None:
            return
        if ahead.work is not None:
            self._works.cancel(ahead.work.id)
        self._drop_draft(ahead)

    def _drop_draft(self, ahead: Ahead) -> None:
        draft, ahead.draft = ahead.draft, None
        if draft is not None:
            ahead.dropped = True
            self._context.emit(CancelGeneration(draft.id))
            self._context.count("drafts", "dropped")
            ran = (self._context.now - ahead.began_ns) / NS_PER_S
            self._context.count("draft_wasted_seconds", None, ran)

    def begin_draft(self) -> None:
        """The words are known, or none are needed, and the user is still silent: draft the answer."""
        ahead, context = self.ahead, self._context
        if ahead is None or ahead.draft is not None or ahead.dropped:
            return
        if self._works.pending(WorkKind.PICTURE):  # the answer will begin when it is known
            return
        # few questions are about what is written: that is not waited for
        if self._camera.must_wait(ahead.end, reading=False):
            return
        natively = context.settings.hearing.natively
        if not ahead.text and (ahead.text is not None or not natively):
            return
        draft = self._responses.build(plan(context.settings, ResponseOverrides()), None)
        draft.phase = ResponsePhase.DRAFT
        draft.heard_until = ahead.end
        ahead.evidence = self._camera.window.of_turn(ahead.end)
        ahead.draft = draft
        ahead.began_ns = context.now
        ahead.version = context.conversation.version
        ahead.settings = context.settings
        context.count("drafts", "started")
        audio = UserAudio(ahead.start, ahead.end) if natively else None
        self._responses.start(draft, user_message(ahead.text or "", audio))

    def hold(self, event: GenerationEvent) -> bool:
        """Keep what a draft brings; False when the event is not the draft's."""
        ahead = self.ahead
        if ahead is None or ahead.draft is None or ahead.draft.id != event.response_id:
            return False
        ahead.draft.held.append(event)
        if isinstance(event, GenerationFailed) or len(ahead.draft.held) > MAX_DRAFT_EVENTS:
            self._drop_draft(ahead)
        return True

    def draft_is_stale(self) -> None:
        """Drop a draft whose prompt is no longer what the answer's would be."""
        ahead = self.ahead
        if ahead is None or ahead.draft is None:
            return
        changed = ahead.version != self._context.conversation.version
        changed = changed or bool(self._works.pending(WorkKind.PICTURE))
        if self._camera.is_on:
            changed = changed or not self._camera.window.still_good(ahead.evidence, ahead.end)
        if changed or ahead.settings is not self._context.settings:
            self._drop_draft(ahead)

    # -- the end of turn

    def commit(
        self, item_id: str, start: int, end: int, respond: bool, heard_until: int | None = None
    ) -> None:
        """Make a user item of the input `start..end`; its words may be known, awaited, or to be asked for. `heard_until`: where its
        speech ended, if that is known."""
        self.draft_is_stale()
        ahead, self.ahead = self.ahead, None
        text = None if ahead is None else ahead.text
        content = InputAudioContent(start, end, text)
        words = self._context.settings.hearing.words
        if words and (ahead is None or (ahead.text is None and ahead.work is None)):
            self._works.recognise(item_id, start, end)
        self.add_item(Message(item_id, Role.USER, ItemStatus.COMPLETED, (content,)), committed=True)
        self._buffer.drop_before(end)
        self._responses.spoken.fix_texts()
        self._respond(item_id, ahead, heard_until, respond)
        if text is not None:
            self._announce_words(item_id, 0, text, end - start)
        elif not words and self._context.settings.transcribe:
            self._context.emit(AnnounceTranscriptFailed(item_id, 0, "unsupported", _NO_WORDS))

    def _respond(
        self, item_id: str, ahead: Ahead | None, heard_until: int | None, respond: bool
    ) -> None:
        if ahead is not None and ahead.draft is not None:
            free = self._responses.active is None and not self._responses.draining
            if respond and free:
                draft, ahead.draft = ahead.draft, None
                self._context.count("drafts", "adopted")
                self._responses.adopt(draft, self._context.now)
                return
            self._drop_draft(ahead)
        if respond:
            until = heard_until if ahead is None else ahead.end
            self._responses.create_for_turn(self._context.now, item_id, until)

    def add_item(self, item: Message, committed: bool) -> None:
        """Put a user item at the end of the conversation and announce it."""
        before = self._context.conversation.add(item)
        if committed:
            self._context.emit(AnnounceCommitted(item.id, before))
        self._context.emit(AnnounceItemAdded(item, before), AnnounceItemDone(item, before))

    # -- words

    def transcribed(self, work: Work, text: str) -> None:
        """Recognition has answered about a user item, or about an utterance that is none yet."""
        ahead = self.ahead
        if ahead is not None and ahead.work is work:
            ahead.work, ahead.text = None, text
            if not text.strip():  # a draft that was begun from the audio alone would answer noise
                self._drop_draft(ahead)
            return
        self._remember(work, text)
        if work.item_id in self._context.conversation:
            self._announce_words(work.item_id, work.content_index, text, work.end - work.start)
        self._responses.item_known(work.item_id)

    def recognition_failed(self, work: Work, code: str, message: str) -> None:
        ahead = self.ahead
        if ahead is not None and ahead.work is work:
            ahead.work = None  # asked again when the turn is committed
            return
        if work.item_id in self._context.conversation and self._context.settings.transcribe:
            self._context.emit(
                AnnounceTranscriptFailed(work.item_id, work.content_index, code, message)
            )
        self._responses.transcript_failed(work.item_id, message)

    def _remember(self, work: Work, text: str) -> None:
        item = self._context.conversation.get(work.item_id)
        if not isinstance(item, Message):
            return
        parts = list(item.content)
        part = parts[work.content_index]
        if isinstance(part, InputAudioContent):
            parts[work.content_index] = replace(part, transcript=text)
            self._context.conversation.replace(replace(item, content=tuple(parts)))

    def _announce_words(self, item_id: str, index: int, text: str, samples: int) -> None:
        if not self._context.settings.transcribe:
            return
        if text:
            self._context.emit(AnnounceTranscriptDelta(item_id, index, text))
        self._context.emit(AnnounceTranscript(item_id, index, text, samples / INPUT_RATE))


class ReadingAlong:
    """What is read of a turn that goes on. Only of announced speech that no answer is under."""

    def __init__(self, context: Context, works: Works, responses: Responses) -> None:
        self._context = context
        self._works = works
        self._responses = responses

    def begin(self) -> None:
        """Speech has begun: all of the prompt that is known can be read."""
        if self._is_wanted():
            self._responses.prompting.warm()

    def follow(self, utterance: Utterance, end: int) -> None:
        """The user has been heard up to `end`."""
        every_ms, hearing = self._context.params.read_along_ms, self._context.settings.hearing
        if not every_ms or utterance.probe is not None or hearing.natively or not hearing.words:
            return
        known = max(utterance.start, utterance.probed_to)
        grown = max(ms_to_samples(every_ms, INPUT_RATE), (known - utterance.start) // 4)
        if end - known >= grown and self._is_wanted():
            utterance.probed_to = end
            utterance.probe = self._works.recognise(
                utterance.item_id, utterance.start, end, partial=True
            )

    def read(self, text: str) -> None:
        """The words so far have come."""
        words = text.split()[:-1]
        if words and self._is_wanted():
            self._responses.prompting.warm(" ".join(words))

    def _is_wanted(self) -> bool:
        detection = self._context.settings.turn_detection
        return self._context.params.speculate and detection.create_response
