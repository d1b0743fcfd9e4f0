"""An engine's own process, as the server sees it: how it begins, what it says, how it ends.

Owns the process and this end of the channel. A fresh interpreter is executed, never a fork of this one: engines have threads. It has
nothing that outlives it: arenas without names, and no end that takes longer than END_S, stopped or hung as it may be. The thread that
begins it has to live for as long as it is wanted (see `end_with_parent`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Protocol

from session_server.runtime.arena import Arena
from session_server.runtime.bulk_channel import BulkChannel

STOP = "stop"
END_S = 3.0
"""For the step under way and the engine's close; then it is killed."""
_MODULE = "session_server.runtime.engine_child"


class Birth(Protocol):
    """The first message to it: picklable."""

    @property
    def name(self) -> str:
        """For whoever lists processes."""
        ...

    def serve(self, channel: BulkChannel) -> None:
        """All that the process does; it returns when STOP has come. Raises EOFError or OSError when the server is gone."""
        ...


class EngineProcess:
    """Begins at once. Raises OSError when the system gives none, and what pickling raises."""

    def __init__(self, birth: Birth) -> None:
        ours, theirs = socket.socketpair()
        self.channel = BulkChannel(Connection(ours.detach()), Arena.new(), Arena.new())
        try:
            with theirs:
                self._process = _begun(birth.name, (theirs.fileno(), *self.channel.arenas))
        except BaseException:
            self.channel.close()
            raise
        try:
            self.channel.send(birth)
        except BaseException:
            self.kill()
            self.end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """At once, on any thread. Idempotent. Whoever waits for the process is told by the channel's end."""
        self._process.kill()

    def end(self) -> int:
        """Ask it to end, kill it if that takes too long, and give back what belonged to it; the exit code, negative
        for a signal. Idempotent. Not while another thread uses the channel."""
        patience = threading.Timer(END_S, self.kill)
        patience.daemon = True
        patience.start()
        with contextlib.suppress(EOFError, OSError):
            self.channel.send(STOP)
            # what it still says is not wanted, but has to be read: it may be waiting for room
            while True:
                self.channel.connection.recv_bytes()
        code = self._process.wait()
        patience.cancel()
        self.channel.close()
        return code


def ending(code: int) -> str:
    """What is said of a process that ended by itself."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"


def _begun(name: str, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, name, *(str(one) for one in descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
