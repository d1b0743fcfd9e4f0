"""The vision stage of an Omni model: pictures become what its thinker takes in their place (`edge.Sight`), in a step of their own.

A step is one pass of the vision tower over at most `max_batch` pictures; thinker, talker and vocoder have threads of their own, and may
have other devices. Answers are remembered by the picture's identity, its mark: the picture's bytes, and whatever else the answer
depends on (`_model_digest`). The memory is shared by all sessions, which is harmless: whoever has the same bytes knows the picture
already. It is bounded by tokens. A picture's mark does not depend on the batch that it was looked at in; its embeddings may by rounding.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engines.base import (
    Capabilities,
    EmbeddedPicture,
    JobKey,
    PictureJob,
    Stage,
    StepRequest,
    StepResult,
    UnseenPicture,
    device_place,
)
from engines.omni.lacking import lacking
from engines.omni.options import VisionOptions, read_options
from engines.omni.parts import LOADING, Family
from engines.omni.picture_tower import Patches, PictureTower
from engines.stepping import require_new
from engines.vision.picture import LONGEST, BadPicture
from session_server.types.errors import EngineFault, one_line

VERSION = 1
"""Of what is done before the tower and after it."""


class OmniVision:
    """SteppedEngine for Stage.VISION: PictureJob in, EmbeddedPicture out."""

    def __init__(self, options: VisionOptions, family: Family) -> None:
        self._options = options
        self._family = family
        self._tower: PictureTower | None = None
        self._model = b""
        self._jobs: dict[JobKey, PictureJob] = {}
        self._known: OrderedDict[str, EmbeddedPicture] = OrderedDict()
        self._known_tokens = 0

    @property
    def capabilities(self) -> Capabilities:
        options = self._options
        return Capabilities(
            Stage.VISION,
            options.max_batch,
            options.slots,
            sees=True,
            runs_on=device_place(options.device),
        )

    @property
    def jobs_held(self) -> int:
        return len(self._jobs)

    @property
    def tokens_remembered(self) -> int:
        return self._known_tokens

    def load(self) -> None:
        if self._tower is None:
            with LOADING:
                self._tower = PictureTower(self._options, self._family)
            self._model = _model_digest(self._options)

    def start(self, key: JobKey, job: object) -> None:
        if not isinstance(job, PictureJob):
            raise ValueError(f"vision takes a PictureJob, not {type(job).__name__}")
        require_new(self._jobs, key, self._options.slots)
        self._jobs[key] = job

    def feed(self, key: JobKey, payload: object, last: bool) -> None:
        """A picture is whole when it is started: there is nothing to feed."""

    def step(self, batch: Sequence[StepRequest]) -> list[StepResult]:
        if self._tower is None:
            raise EngineFault("the vision tower is not loaded")
        results: dict[JobKey, StepResult] = {}
        marks: dict[JobKey, str] = {}
        unseen: dict[str, Patches] = {}
        for key in (request.key for request in batch):
            job = self._jobs.pop(key, None)
            if job is None:
                results.setdefault(key, StepResult(key, finished=True))
                continue
            mark = self._mark(job.data)
            try:
                if mark not in self._known and mark not in unseen:
                    unseen[mark] = self._tower.patches(job.data)
            except BadPicture as error:
                bad = UnseenPicture(f"The picture {error}.")
                results[key] = StepResult(key, bad, 1, finished=True)
                continue
            except Exception as error:  # whatever the processor makes of it: that picture's fault
                reason = one_line(error, 200)
                results[key] = StepResult(key, finished=True, error=f"looking failed: {reason}")
                continue
            marks[key] = mark
        new = self._looked_at(self._tower, unseen)
        for key, mark in marks.items():
            picture = new.get(mark) or self._known[mark]
            results[key] = StepResult(key, picture, int(mark in new), finished=True)
        self._remember(new, marks.values())
        return [results[request.key] for request in batch]

    def release(self, key: JobKey) -> None:
        self._jobs.pop(key, None)

    def close(self) -> None:
        self._jobs.clear()
        self._known.clear()
        self._known_tokens = 0
        self._tower = None

    # -- within a step

    def _mark(self, data: bytes) -> str:
        return f"<picture {hashlib.blake2b(data, digest_size=8, key=self._model).hexdigest()}>"

    @staticmethod
    def _looked_at(
        tower: PictureTower, unseen: Mapping[str, Patches]
    ) -> dict[str, EmbeddedPicture]:
        if not unseen:
            return {}
        sights = tower.look(list(unseen.values()))
        return {
            mark: EmbeddedPicture(
                mark, sight.rows * sight.columns, patches.width, patches.height, sight
            )
            for (mark, patches), sight in zip(unseen.items(), sights, strict=True)
        }

    def _remember(self, new: Mapping[str, EmbeddedPicture], used: Iterable[str]) -> None:
        self._known.update(new)
        self._known_tokens += sum(picture.tokens for picture in new.values())
        for mark in used:
            self._known.move_to_end(mark)
        while self._known_tokens > self._options.remembered_tokens:
            _, oldest = self._known.popitem(last=False)
            self._known_tokens -= oldest.tokens


def _model_digest(options: VisionOptions) -> bytes:
    """Of all that the same bytes could be seen differently by: configuration and weights (by names and sizes), precision, and the
    size to which pictures are brought."""
    folder = Path(options.weights).expanduser()
    digest = hashlib.blake2b(digest_size=32)
    for name in ("config.json", "preprocessor_config.json"):
        digest.update((folder / name).read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
    digest.update(f"{options.dtype} {options.picture_tokens} {LONGEST} {VERSION}".encode())
    return digest.digest()


def missing_for(options: Mapping[str, object], family: Family) -> list[str]:
    """What is not here for these options, a line each."""
    return lacking(options, VisionOptions(), family, family.vision)


def create_for(options: Mapping[str, object], family: Family) -> OmniVision:
    return OmniVision(read_options(options, VisionOptions()), family)
