"""Questions to the engine host that are still open: transcripts, probes of an interruption, turn judgements, pictures.

Invariants: every open work item has a deadline; each is answered, failed, cancelled or timed out exactly once; an
answer to an unknown id is ignored (it raced with its cancellation).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from session_server.core.actions import (
    AnalyseImage,
    CancelWork,
    JudgeRange,
    LookAtFrame,
    RecogniseRange,
)
from session_server.core.context import Context, Timer


class WorkKind(enum.Enum):
    TRANSCRIPT = "transcript"
    """The words of a user item; the item may not exist yet."""
    PROBE = "probe"
    """The words so far of speech that goes on."""
    JUDGEMENT = "judgement"
    PICTURE = "picture"
    """What is in a picture of an item."""
    FRAME = "frame"
    """What is in a frame of the camera."""


@dataclass(frozen=True, slots=True)
class Work:
    """`item_id`: the item (or the id reserved for it) that the answer is about, "" for the camera. Range: input samples, of sound."""

    id: str
    kind: WorkKind
    item_id: str
    content_index: int
    start: int
    end: int


class Works:
    """The open work items of one session."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._open: dict[str, Work] = {}

    def recognise(self, item_id: str, start: int, end: int, partial: bool = False) -> Work:
        """Ask for the words in a range of the input time line."""
        kind = WorkKind.PROBE if partial else WorkKind.TRANSCRIPT
        work = self._begin(kind, item_id, 0, start, end, self._context.params.recognition_ms)
        self._context.emit(RecogniseRange(work.id, start, end, partial))
        return work

    def recognise_inside(self, item_id: str, content_index: int, end: int) -> Work:
        """Ask for the words of audio that came inside an item."""
        limit = self._context.params.recognition_ms
        work = self._begin(WorkKind.TRANSCRIPT, item_id, content_index, 0, end, limit)
        self._context.emit(RecogniseRange(work.id, 0, end, False, item_id, content_index))
        return work

    def judge(self, item_id: str, start: int, end: int) -> Work:
        """Ask the turn model whether the utterance is complete."""
        limit = self._context.params.turn_model_ms
        work = self._begin(WorkKind.JUDGEMENT, item_id, 0, start, end, limit)
        self._context.emit(JudgeRange(work.id, start, end))
        return work

    def look(self, item_id: str, content_index: int, image_url: str) -> Work:
        """Ask what is in a picture of an item."""
        limit = self._context.params.looking_ms
        work = self._begin(WorkKind.PICTURE, item_id, content_index, 0, 0, limit)
        self._context.emit(AnalyseImage(work.id, image_url))
        return work

    def look_at_frame(self, frame: int, read: bool) -> Work:
        """Ask what is in a frame of the camera."""
        work = self._begin(WorkKind.FRAME, "", 0, 0, 0, self._context.params.frame_ms)
        self._context.emit(LookAtFrame(work.id, frame, read))
        return work

    def _begin(
        self, kind: WorkKind, item_id: str, index: int, start: int, end: int, limit_ms: int
    ) -> Work:
        work = Work(self._context.new_id("work"), kind, item_id, index, start, end)
        self._open[work.id] = work
        self._context.timers.set(Timer.WORK, self._context.in_ms(limit_ms), work.id)
        return work

    def take(self, work_id: str) -> Work | None:
        """The open work with this id, which is then closed."""
        self._context.timers.clear(Timer.WORK, work_id)
        return self._open.pop(work_id, None)

    def cancel(self, work_id: str) -> None:
        if self.take(work_id) is not None:
            self._context.emit(CancelWork(work_id))

    def late(self, work_id: str) -> Work | None:
        """Its deadline has come: nobody wants the answer any more."""
        work = self.take(work_id)
        if work is not None:
            self._context.emit(CancelWork(work_id))
        return work

    def cancel_of(self, item_id: str) -> None:
        """Cancel everything about one item."""
        for work in [work for work in self._open.values() if work.item_id == item_id]:
            self.cancel(work.id)

    def cancel_all(self) -> None:
        for work_id in list(self._open):
            self.cancel(work_id)

    def pending(self, *kinds: WorkKind) -> set[str]:
        """Ids of the items of which something of these kinds is awaited."""
        return {work.item_id for work in self._open.values() if work.kind in kinds}
