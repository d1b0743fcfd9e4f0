"""Pictures from files, looked at by the vision engine that a server would use, without a server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.base import (
    JobKey,
    PictureJob,
    SteppedEngine,
    StepRequest,
    UnseenPicture,
    VisualEvidence,
)
from engines.model_store.store import ModelStore
from engines.registry import factory
from session_server.types.errors import ConfigError, EngineFault, ModelsMissing

_ENGINE = "cpu.picture_detector"


@dataclass(frozen=True, slots=True)
class PictureReport:
    """What is in one picture, or why it could not be looked at; `step_ms`: processor time of this process, step by step."""

    path: Path
    evidence: VisualEvidence | None
    error: str | None
    step_ms: tuple[float, ...] = ()

    @property
    def cpu_ms(self) -> float:
        return sum(self.step_ms)


def looks(
    store: ModelStore, pictures: Sequence[Path], *, read: bool = True
) -> Iterator[PictureReport]:
    """One for each picture, in their order. Raises ModelsMissing, or ConfigError where the packages of vision are not installed."""
    missing = store.missing_for_vision()
    if missing:
        raise ModelsMissing(
            f"model file {missing[0]} is not in {store.root}: run `session-server models fetch --vision`"
        )
    try:
        engine = factory(_ENGINE)({}, store)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; looking at pictures needs pip install 'session-server[vision]'"
        ) from error
    engine.load()
    try:
        for number, path in enumerate(pictures):
            yield _looked_at(engine, path, JobKey("look", str(number)), read)
    finally:
        engine.close()


def _looked_at(engine: SteppedEngine, path: Path, key: JobKey, read: bool) -> PictureReport:
    try:
        engine.start(key, PictureJob(path.read_bytes(), read))
    except OSError as error:
        return PictureReport(path, None, error.strerror or str(error))
    step_ms: list[float] = []
    finished = False
    while not finished:
        begun = time.process_time()
        result = engine.step([StepRequest(key, 1)])[0]
        step_ms.append(1e3 * (time.process_time() - begun))
        finished = result.finished or result.error is not None
    engine.release(key)
    if result.error is not None:
        return PictureReport(path, None, result.error, tuple(step_ms))
    if isinstance(result.output, UnseenPicture):
        return PictureReport(path, None, result.output.reason, tuple(step_ms))
    if not isinstance(result.output, VisualEvidence):
        raise EngineFault(f"{_ENGINE} gave no evidence")
    return PictureReport(path, result.output, None, tuple(step_ms))
