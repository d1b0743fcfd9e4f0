"""The eyes of a simulated conversation: a picture is `scene <number> ...` as text, and each scene has its own things in it.

A look takes the steps of its price, one after the other, as the detector takes a network a step. What was found in a picture is
remembered, so that a second look at the same bytes, which reads, costs only the reading.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from engines.base import (
    JobKey,
    PictureJob,
    SeenObject,
    StepRequest,
    StepResult,
    VisualEvidence,
)
from engines.sim.profile import Profile, StageCost
from engines.sim.scripted_base import Scripted
from session_server.types.audio import NS_PER_MS

REMEMBERED = 256
_KINDS = ("person", "dog", "cup", "chair", "book")
_WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass(slots=True)
class _Look:
    job: PictureJob
    left_ns: list[int]


def picture_of(scene: int, frame: int, session: str) -> bytes:
    """Of no other frame are the bytes the same."""
    return f"scene {scene} frame {frame} of {session}".encode()


class ScriptedEyes(Scripted):
    """Looks at one picture a step."""

    def __init__(self, profile: Profile, cost: StageCost) -> None:
        super().__init__(profile, cost)
        self.looks = 0
        self._jobs: dict[JobKey, _Look] = {}
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        """Pictures whose objects are known, and whether their text is."""

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, PictureJob):
            raise ValueError("eyes take a PictureJob")
        known = self._known.get(job.data)
        steps = [] if known is not None else list(self.cost.objects_ms)
        if job.read and not known:
            steps += self.cost.text_ms
        self._jobs[key] = _Look(job, [int(ms * NS_PER_MS) for ms in steps])

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A picture is whole when it starts."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        self.cost_ns, results = int(self.cost.host_gap_ms * NS_PER_MS), []
        for request in batch:
            look = self._jobs[request.key]
            if look.left_ns:
                self.cost_ns += look.left_ns.pop(0)
            if look.left_ns:
                results.append(StepResult(request.key, units=1))
            else:
                results.append(StepResult(request.key, self._seen(look.job), 1, finished=True))
        return results

    def _seen(self, job: PictureJob) -> VisualEvidence:
        self.looks += 1
        self._known[job.data] = job.read or self._known.get(job.data, False)
        self._known.move_to_end(job.data)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        words = job.data.decode(errors="replace").split()
        scene = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
        kind = _KINDS[scene % len(_KINDS)]
        seen = SeenObject(kind, "centre", True, _WHOLE)
        return VisualEvidence((seen,), () if job.read else None, (), "normal", 640, 480)

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)
