"""The file into which a server records its sessions (`observability.record_file`).

Owns the open file. It is made at the start, readable by its owner only, because it holds what was said; another kind of
file is never overwritten, nor one into which another server writes. A disk that fails ends the record, with one line in the log,
and harms no session.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import BinaryIO

from session_server.config.tree import ObservabilityConfig
from session_server.recording.recorder import Recorder
from session_server.types.errors import ConfigError

if sys.platform != "win32":
    import fcntl

_log = logging.getLogger(__name__)

_KEY = "observability.record_file"
_BUFFER_BYTES = 1 << 18
_FIRST_BYTES = b'{"session":'


class RecordInUse(ConfigError):
    """The file is another server's."""


class RecordFile:
    """An open record; `recorder` writes into it."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        """Raises ConfigError naming key and file."""
        self._path = path
        self._file = _open(path)
        self.recorder = Recorder(self._file, limit_bytes, self._failed)

    def close(self) -> None:
        """Idempotent."""
        try:
            self._file.close()
        except OSError as fault:
            self._failed(fault)
            with contextlib.suppress(OSError):
                self._file.close()

    def _failed(self, fault: OSError) -> None:
        _log.error("the record %s ends here: %s", self._path, fault.strerror or fault)


def open_record(config: ObservabilityConfig) -> RecordFile | None:
    """What the configuration asks for; None: nothing is to be recorded. Raises ConfigError."""
    if config.record_file is None:
        return None
    return RecordFile(Path(config.record_file).expanduser(), config.record_mb * 1_000_000)


def require_record(config: ObservabilityConfig) -> None:
    """Raise ConfigError, one line, when the record that is asked for cannot be written; leaves everything as it was."""
    if config.record_file is None:
        return
    path = Path(config.record_file).expanduser()
    new = not path.exists()
    with _locked(path):
        if new:
            path.unlink()


def _open(path: Path) -> BinaryIO:
    file = _locked(path)
    if sys.platform != "win32":
        os.fchmod(file.fileno(), 0o600)
    file.truncate()
    return file


def _locked(path: Path) -> BinaryIO:
    """The file as it is, for this process alone."""
    try:
        if path.exists() and not _is_record(path):
            raise ConfigError(f"{_KEY}: {path} is there and is no record: it is not overwritten")
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb", _BUFFER_BYTES)
    except OSError as fault:
        raise ConfigError(f"{_KEY}: {path}: {fault.strerror}") from fault
    try:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        file.close()
        raise RecordInUse(f"{_KEY}: {path}: another server is writing into it") from fault
    return file


def _is_record(path: Path) -> bool:
    """A regular file that is empty or begins as records do."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.read(len(_FIRST_BYTES))
    return not first or first == _FIRST_BYTES
