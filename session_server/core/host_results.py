"""Where the engine host's answers about a session's work go: words, judgements, what is in a picture, and failures.

A picture that cannot be looked at holds up no answer: the prompt says so in its place, and the client is told when the picture is at
fault.
"""

from __future__ import annotations

from dataclasses import replace

from session_server.core.camera import Camera
from session_server.core.context import Context
from session_server.core.conversation import ImageContent, Message
from session_server.core.events import PictureSeen, TranscriptReady, TurnJudged, WorkFailed
from session_server.core.host_requests import Work, WorkKind, Works
from session_server.core.listening import Listening
from session_server.core.responses import Responses
from session_server.core.user_turns import UserTurns
from session_server.types.vision import VisualEvidence

NOT_SEEN = "it could not be looked at"
Answer = TranscriptReady | TurnJudged | PictureSeen | WorkFailed


class AnsweredWorks:
    """Closes each open work once, by its answer or at its deadline."""

    def __init__(
        self,
        context: Context,
        works: Works,
        responses: Responses,
        turns: UserTurns,
        listening: Listening,
        camera: Camera,
    ) -> None:
        self._context = context
        self._works = works
        self._responses = responses
        self._turns = turns
        self._listening = listening
        self._camera = camera

    def answered(self, event: Answer) -> None:
        """An answer to an unknown work is ignored."""
        work = self._works.take(event.work_id)
        if work is None:
            return
        match event:
            case TranscriptReady(text=text) if work.kind is WorkKind.TRANSCRIPT:
                self._turns.transcribed(work, text.strip())
                self._listening.words_came()
            case TranscriptReady(text=text):
                self._listening.probe_answered(work, text)
            case TurnJudged(probability=probability):
                self._listening.judged(work, probability)
            case PictureSeen() if work.kind is WorkKind.FRAME:
                self._camera.seen(work, event)
                self._responses.camera_known()
            case PictureSeen(text=text, evidence=evidence):
                self._seen(work, text, evidence)
            case WorkFailed(code=code, message=message):
                self._failed(work, code, message)

    def late(self, work_id: str) -> None:
        """Its deadline has come."""
        work = self._works.late(work_id)
        if work is not None:
            if work.kind is not WorkKind.FRAME:  # a newer one will come; the rate sinks
                self._context.count("stuck_sessions", work.kind.value)
            self._failed(work, "server_error", f"The {work.kind.value} took too long.")

    def _failed(self, work: Work, code: str, message: str) -> None:
        match work.kind:
            case WorkKind.TRANSCRIPT:
                self._turns.recognition_failed(work, code, message)
            case WorkKind.PROBE:
                self._listening.probe_answered(work, "")
            case WorkKind.JUDGEMENT:
                self._listening.judged(work, None)
            case WorkKind.PICTURE:
                if code == "invalid_value":
                    param = f"item.content[{work.content_index}].image_url"
                    self._context.error(code, message, param)
                self._seen(work, NOT_SEEN)
            case WorkKind.FRAME:
                self._camera.failed(work, code)
                self._responses.camera_known()

    def _seen(self, work: Work, text: str, evidence: VisualEvidence | None = None) -> None:
        conversation = self._context.conversation
        item = conversation.get(work.item_id)
        if isinstance(item, Message):
            parts = list(item.content)
            part = parts[work.content_index]
            if isinstance(part, ImageContent):
                parts[work.content_index] = replace(part, seen=text, evidence=evidence)
                conversation.replace(replace(item, content=tuple(parts)))
        self._responses.item_known(work.item_id)
