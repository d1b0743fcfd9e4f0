"""Reading ahead: while a user speaks, the thinker reads what the next prompt will begin with.

Owns at most one such job per session. It gives nothing but warmth: the session's slot then knows the prefix, and the
answer's own job reads only what is new. Ranked with the drafts, below all that anyone waits for; ended by the
session's next response, which takes over the slot.
"""

from __future__ import annotations

from engines.base import JobKey, Stage, StepResult, ThinkJob
from session_server.core.actions import WarmPrefix
from session_server.host.pipeline_parts import HostStages
from session_server.host.prompt import chat
from session_server.scheduler.work import FOREVER_NS, WorkClass, WorkItem


class Warming:
    """All sessions' prefixes that are being read."""

    def __init__(self, stages: HostStages) -> None:
        self._stages = stages
        self._jobs: dict[str, tuple[JobKey, int]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def begin(self, session: str, request: WarmPrefix, now: int) -> None:
        """A newer one of the same session takes the place of an older one. Nothing for a thinker that cannot."""
        self.end(session)
        if not self._can:
            return
        key = JobKey(session, request.work_id)
        self._jobs[session] = (key, now)
        job = ThinkJob(
            request.instructions,
            chat(request.messages, self._stages.pictures.of(session)),
            request.tools,
            request.tool_choice.mode,
            request.tool_choice.name,
            warm=True,
        )
        self._stages.runners[Stage.THINKER].submit(key, job, self)
        self._offer(key, now)

    @property
    def _can(self) -> bool:
        """Whose steps the server chooses, every thinker can; an engine that schedules itself says so."""
        able = self._stages.runners[Stage.THINKER].capabilities
        return Stage.THINKER in self._stages.stepped or (able is not None and able.warms)

    def end(self, session: str) -> None:
        """The slot is wanted, or nobody needs it any more. Idempotent."""
        job = self._jobs.pop(session, None)
        if job is not None:
            self._stages.runners[Stage.THINKER].release(job[0])

    def give_way(self, key: JobKey) -> bool:
        """A turn needs the slot: what was read so far stays in it."""
        self._stages.metrics.gave_way(Stage.THINKER.value)
        self.end(key.session)
        return True

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None:
        job = self._jobs.get(result.key.session)
        if job is None or job[0] != result.key:
            return
        if result.finished:
            self.end(result.key.session)
        else:
            self._offer(result.key, job[1])

    def on_job_failed(self, stage: Stage, key: JobKey, message: str) -> None:
        """Only warmth is lost."""
        self.end(key.session)

    def _offer(self, key: JobKey, arrived_ns: int) -> None:
        runner = self._stages.runners[Stage.THINKER]
        runner.ready(
            WorkItem(
                key,
                WorkClass.DRAFT,
                arrived_ns,
                FOREVER_NS,
                FOREVER_NS,
                units=self._stages.params.prefill_tokens,
                opening=True,
                started=runner.is_started(key),
            )
        )
