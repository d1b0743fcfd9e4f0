"""A closed loop of plain requests, as speech servers are benchmarked: no listener, no turns.

`concurrent` clients each ask, take all audio as fast as it comes, and ask again: published first-packet times and
real-time factors are of this kind. Drives the host alone. Times are nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from session_server.core.actions import StartGeneration
from session_server.core.settings import Modality
from session_server.host.messages import (
    Chunk,
    Failed,
    Finished,
    FromSession,
    OpenSession,
    ToSession,
)
from session_server.simulation.replica import Replica
from session_server.types.audio import NS_PER_MS, NS_PER_S
from session_server.types.prompt import PromptMessage
from session_server.types.tools import ToolChoice


@dataclass(slots=True)
class Request:
    asked: int
    first: int | None = None
    last: int = 0
    samples: int = 0
    done: bool = False

    @property
    def rtf(self) -> float:
        """From the first chunk to the last, over the audio that came after the first."""
        assert self.first is not None
        return (self.last - self.first) / NS_PER_S / max(1e-9, self.samples / 24_000)


@dataclass(slots=True)
class RequestLoop:
    """`run` returns the requests that ended. `gap_ns` shifts the clients' first requests apart."""

    replica: Replica
    concurrent: int
    prompt_tokens: int
    answer_tokens: int
    gap_ns: int = 37 * NS_PER_MS
    requests: list[Request] = field(default_factory=list)
    _open: dict[str, Request] = field(default_factory=dict)
    _count: int = 0

    def run(self, seconds: float) -> list[Request]:
        replica = self.replica
        replica.take_messages(self._on_message)
        replica.host.begin(replica.loop)
        replica.loop.run_until(0)
        for client in range(self.concurrent):
            replica.host.post(OpenSession(f"c{client}"))
            replica.loop.at(client * self.gap_ns, self._ask, f"c{client}")
        replica.loop.run_until(int(seconds * NS_PER_S))
        return [request for request in self.requests if request.done]

    def _ask(self, client: str) -> None:
        self._count += 1
        now = self.replica.loop.time
        request = Request(now)
        self.requests.append(request)
        self._open[client] = request
        words = f"turn 1 prompt {self.prompt_tokens} answer {self.answer_tokens}"
        generate = FromSession(client, StartGeneration(f"r{self._count}", "default", self._count, "", (PromptMessage("user", words),), (), ToolChoice("none"), Modality.AUDIO, "heart", 1.0, None, now))  # fmt: skip
        handover = self.replica.handover_ns
        self.replica.loop.at(now + handover, self.replica.host.post, generate)

    def _on_message(self, message: ToSession) -> None:
        request = self._open.get(message.session)
        if request is None:
            return
        now = self.replica.loop.time
        if isinstance(message, Chunk):
            if request.first is None:
                request.first = now
            else:
                request.samples += len(message.pcm) // 2
            request.last = now
        elif isinstance(message, Finished | Failed):
            request.done = isinstance(message, Finished)
            self.replica.loop.call_soon(self._ask, message.session)
