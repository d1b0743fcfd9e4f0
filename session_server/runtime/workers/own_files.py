"""What a worker makes of the server's configuration: files of its own, and its place.

A file that one process writes would be torn by several. `observability.record_file` gets the worker's number into its name, and
an equal share of `record_mb`: `talks.jsonl` is `talks.w1.jsonl` in worker 1, and `talks.w1-2.jsonl` in the second one that took its
place, so that what a worker recorded before it was killed is still there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from session_server.config import Config
from session_server.runtime.place import Place
from session_server.runtime.tls import Tls
from session_server.runtime.workers.control import Begin
from session_server.runtime.workers.relay import socket_of


def own_config(config: Config, begin: Begin) -> tuple[Config, Place]:
    """The configuration with this worker's files, and where it stands."""
    place = Place(
        started_at=begin.started_at,
        slot=begin.slot,
        workers=begin.workers,
        port=begin.port,
        socket=socket_of(Path(begin.folder), begin.slot),
    )
    log = config.observability
    if log.record_file is not None:
        log = replace(
            log,
            record_file=str(own_path(Path(log.record_file), begin.slot, begin.life)),
            record_mb=place.share_of(log.record_mb, least=1),
        )
    return replace(config, observability=log), place


def own_certificate_of(folder: Path) -> Path:
    """Where the server's own certificate lies for its workers."""
    return folder / "tls.pem"


def one_certificate(config: Config, tls: Tls | None, folder: Path) -> Config:
    """The configuration for the workers: what was self-signed is one file for all of them, and for those that come later.

    The one that is kept in the cache may be another one by then.
    """
    if tls is None or not tls.self_signed:
        return config
    file = own_certificate_of(folder)
    file.touch(mode=0o600)
    file.write_bytes(tls.certificate.read_bytes())
    server = replace(config.server, tls_self_signed=False, tls_cert=str(file), tls_key=None)
    return replace(config, server=server)


def own_path(path: Path, slot: int, life: int) -> Path:
    """The name with the worker's number, and how often it was begun again."""
    again = f"-{life}" if life else ""
    return path.with_name(f"{path.stem}.w{slot}{again}{path.suffix}")
