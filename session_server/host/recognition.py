"""Recognition, turn judgement and looking at pictures as scheduled work: one item each, with the instant when the answer is needed.

Owns the work items that are under way. Every one gets exactly one answer (a result or WorkFailed), unless it was
cancelled. Under load partial recognitions go first: a newer recognition of the same session takes the place of a
partial that has not started (`superseded`), and one that is past its due time when it would start is dropped (`late`).

Camera frames are refused rather than kept waiting (`overloaded`): where the stage is behind by more than `MOST_WAIT_NS`, and while the
session has one under way. So each session has one in the queue at most, all with the same time to their due time: the stage takes
them in the order of their arrival, which is round robin among the sessions that want more than there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engines.base import (
    EmbeddedPicture,
    JobKey,
    PictureJob,
    Stage,
    StepResult,
    Transcript,
    TurnJudgement,
    UnseenPicture,
    UtteranceJob,
    VisualEvidence,
)
from session_server.host.messages import (
    JudgeTurn,
    LookAt,
    PictureSeen,
    Recognise,
    RecognitionDone,
    ToSession,
    TurnJudged,
    WorkFailed,
)
from session_server.host.pipeline_parts import HostStages
from session_server.host.prompt import described, sure_kinds, unnamed
from session_server.scheduler.work import WorkClass, WorkItem
from session_server.types.audio import NS_PER_S

MOST_PICTURE_BYTES = 64 << 20
"""Of one session's pictures that wait to be looked at."""

MOST_WAIT_NS = NS_PER_S
"""Of the picture that has waited longest: beyond it no camera frame is taken."""


@dataclass(frozen=True, slots=True)
class _Work:
    key: JobKey
    stage: Stage
    partial: bool
    arrived_ns: int
    due_ns: int
    picture_bytes: int = 0
    camera: bool = False
    latest_ns: int = 0
    """When its first step has to begin; said of later steps, too, so that nothing that came after it goes between them."""


class RecognitionLane:
    """All sessions' recognitions and judgements. `last_asr_ns` gives a session's last final recognition."""

    def __init__(self, stages: HostStages, deliver: Callable[[ToSession], None]) -> None:
        self._stages = stages
        self._deliver = deliver
        self._works: dict[str, dict[str, _Work]] = {}
        self._pictures: dict[JobKey, _Work] = {}
        self._last_asr_ns: dict[str, int] = {}

    def recognise(self, request: Recognise, now: int) -> None:
        job = UtteranceJob(request.pcm, request.partial)
        works = self._works.get(request.session, {})
        older = [work for work in works.values() if work.key.work != request.work_id]
        self._add(
            Stage.ASR, request.session, request.work_id, job, request.partial, request.due_ns, now
        )
        for work in older:
            if work.partial and not self._stages.runners[work.stage].is_started(work.key):
                self._fail(work, "superseded", "a newer recognition took its place")

    def judge(self, request: JudgeTurn, now: int) -> None:
        job = UtteranceJob(request.pcm)
        self._add(Stage.TURN, request.session, request.work_id, job, False, request.due_ns, now)

    def look(self, request: LookAt, now: int) -> None:
        """A picture of an item waits its turn; a camera frame does not, since there will be a newer one."""
        job = PictureJob(request.picture, request.read)
        session, work_id = request.session, request.work_id
        if request.camera and (reason := self._no_room(session, now)):
            key = JobKey(session, work_id)
            work = _Work(key, Stage.VISION, False, now, request.due_ns)
            self._answer_failed(work, "overloaded", reason)
            return
        self._add(
            Stage.VISION, session, work_id, job, False, request.due_ns, now, camera=request.camera
        )

    def _no_room(self, session: str, now: int) -> str:
        """Why no camera frame of this session is taken now."""
        if any(work.camera for work in self._works.get(session, {}).values()):
            return "a frame of this session is being looked at"
        runner = self._stages.runners.get(Stage.VISION)
        if runner is None:
            return ""
        waits = (work for work in self._pictures.values() if not runner.is_started(work.key))
        oldest = next(waits, None)  # they stand in the order of their arrival
        if oldest is not None and now - oldest.arrived_ns > MOST_WAIT_NS:
            return "pictures have waited for more than a second"
        return ""

    def cancel(self, session: str, work_id: str) -> None:
        """Nobody wants this answer any more. Idempotent."""
        work = self._take(session, work_id)
        if work is not None:
            self._stages.runners[work.stage].release(work.key)

    def close(self, session: str) -> None:
        for work_id in list(self._works.get(session, ())):
            self.cancel(session, work_id)
        self._last_asr_ns.pop(session, None)
        self._stages.pictures.close(session)

    def last_asr_ns(self, session: str) -> int:
        return self._last_asr_ns.get(session, 0)

    def _drop_late(self, now: int) -> None:
        """Partials that missed their due time while they waited are not worth a step any more."""
        for works in list(self._works.values()):
            for work in list(works.values()):
                runner = self._stages.runners[work.stage]
                if work.partial and work.due_ns < now and not runner.is_started(work.key):
                    self._fail(work, "late", "the partial recognition came too late")

    def __len__(self) -> int:
        return sum(map(len, self._works.values()))

    def _add(
        self,
        stage: Stage,
        session: str,
        work_id: str,
        job: UtteranceJob | PictureJob,
        partial: bool,
        due_ns: int,
        now: int,
        camera: bool = False,
    ) -> None:
        size = len(job.data) if isinstance(job, PictureJob) else 0
        runner = self._stages.runners.get(stage)
        step_ns = 0 if runner is None else self._stages.estimates.single_ns(stage)
        latest_ns = due_ns - step_ns
        work = _Work(JobKey(session, work_id), stage, partial, now, due_ns, size, camera, latest_ns)
        if runner is None:
            self._answer_failed(work, "unsupported", f"this server has no {stage.value} stage")
            return
        works = self._works.get(session, {})
        if work_id in works:  # ids are never reused: it was said twice
            return
        too_many = len(works) >= self._stages.params.max_work_per_session
        if too_many or sum(w.picture_bytes for w in works.values()) + size > MOST_PICTURE_BYTES:
            self._answer_failed(
                work, "overloaded", "too much of this session waits to be recognised"
            )
            return
        self._works.setdefault(session, works)[work_id] = work
        if stage is Stage.VISION:
            self._pictures[work.key] = work
        kind = WorkClass.PARTIAL if partial else WorkClass.FINAL
        runner.submit(work.key, job, self)
        runner.ready(WorkItem(work.key, kind, now, due_ns, latest_ns))

    # -- results

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None:
        work = self._works.get(result.key.session, {}).get(result.key.work)
        if work is None:
            return
        match result.output:
            case Transcript(text):
                self._drop_late(now)
                self._settle(work, RecognitionDone(work.key.session, work.key.work, text), now)
            case TurnJudgement(probability):
                self._settle(work, TurnJudged(work.key.session, work.key.work, probability), now)
            case VisualEvidence() as evidence:
                said, kinds = described(evidence), sure_kinds(evidence)
                written, key = bool(evidence.texts), work.key
                seen = PictureSeen(key.session, key.work, said, evidence, kinds, written)
                self._settle(work, seen, now)
            case EmbeddedPicture() as picture:
                self._stages.pictures.keep(work.key.session, picture, work.camera)
                evidence, key = unnamed(picture), work.key
                seen = PictureSeen(key.session, key.work, picture.mark, evidence, None)
                self._settle(work, seen, now)
            case UnseenPicture(reason):
                self._fail(work, "invalid_value", reason)
            case _ if result.finished:
                self._fail(work, "server_error", f"the {stage.value} engine gave no answer")
            case _:
                kind = WorkClass.PARTIAL if work.partial else WorkClass.FINAL
                runner = self._stages.runners[stage]
                runner.ready(
                    WorkItem(
                        work.key, kind, work.arrived_ns, work.due_ns, work.latest_ns, started=True
                    )
                )

    def on_job_failed(self, stage: Stage, key: JobKey, message: str) -> None:
        work = self._works.get(key.session, {}).get(key.work)
        if work is not None:
            self._fail(work, "server_error", message)

    def _settle(self, work: _Work, answer: ToSession, now: int) -> None:
        self._take(work.key.session, work.key.work)
        self._stages.runners[work.stage].release(work.key)
        took = now - work.arrived_ns
        if work.stage is Stage.ASR and not work.partial:
            self._last_asr_ns[work.key.session] = took
        self._stages.metrics.work_done(work.stage.value, took / NS_PER_S, work.partial)
        self._deliver(answer)

    def _fail(self, work: _Work, code: str, message: str) -> None:
        if self._take(work.key.session, work.key.work) is None:
            return
        self._stages.runners[work.stage].release(work.key)
        self._answer_failed(work, code, message)

    def _answer_failed(self, work: _Work, code: str, message: str) -> None:
        self._stages.metrics.work_dropped(work.stage.value, code)
        self._deliver(WorkFailed(work.key.session, work.key.work, code, message))

    def _take(self, session: str, work_id: str) -> _Work | None:
        works = self._works.get(session)
        work = works.pop(work_id, None) if works is not None else None
        if works is not None and not works:
            del self._works[session]
        if work is not None:
            self._pictures.pop(work.key, None)
        return work
