"""The thinker of a simulated host alone: text answers on prompts of known length, over a pool of known size.

Drives the real host with the real residency on a virtual clock; no listeners. Instants are nanoseconds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from session_server.core.actions import StartGeneration
from session_server.core.settings import Modality
from session_server.host.messages import (
    CloseSession,
    Finished,
    FromSession,
    OpenSession,
    TextChunk,
    ToSession,
    UserSpeaks,
)
from session_server.simulation.replica import Replica
from session_server.simulation.spec import SimulationSpec
from session_server.types.audio import NS_PER_MS, NS_PER_S
from session_server.types.prompt import PromptMessage
from session_server.types.tools import ToolChoice
from tests.sim.small_machine import exact_machine


@dataclass(slots=True)
class Asked:
    """`first`: when the first token came."""

    session: str
    at: int
    first: int | None = None
    done: bool = False

    @property
    def first_ms(self) -> float:
        assert self.first is not None, "no token came"
        return (self.first - self.at) / NS_PER_MS


@dataclass
class ThinkerBench:
    """`pool_tokens`: the thinker's memory; `host_gb`: what is moved out has room there."""

    pool_tokens: int
    host_gb: float = 1000.0
    h2d_gb_per_s: float = 50.0
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        profile = exact_machine()
        kv = dataclasses.replace(profile.kv, host_gb=self.host_gb, h2d_gb_per_s=self.h2d_gb_per_s)
        spec = SimulationSpec(
            sessions=1, seconds=3600.0, warm_up_s=0.0, kv_pool_tokens=self.pool_tokens
        )
        self.replica = Replica(spec, dataclasses.replace(profile, kv=kv), 0, 1)
        self.loop = self.replica.loop
        self.kv = self.replica.kv
        self.held: dict[str, int] = {}
        self._open: dict[str, Asked] = {}
        self.replica.take_messages(self._on_message)
        self.replica.host.begin(self.loop)
        self.loop.run_until(0)

    def open(self, *sessions: str) -> None:
        for session in sessions:
            self.replica.host.post(OpenSession(session))
            self.held[session] = 0

    def close(self, session: str) -> None:
        self.replica.host.post(CloseSession(session))

    def speaks(self, session: str) -> None:
        self.replica.host.post(UserSpeaks(session))

    def ask(self, session: str, new_tokens: int, answer_tokens: int = 1) -> Asked:
        """A turn: all that was said before, and `new_tokens` more."""
        asked = Asked(session, self.loop.time)
        self.asked.append(asked)
        name = f"r{len(self.asked)}"
        self._open[name] = asked
        said = (
            PromptMessage("assistant", "four" * self.held[session]),
            PromptMessage("user", f"turn 1 prompt {new_tokens} answer {answer_tokens}"),
        )
        self.held[session] += new_tokens + answer_tokens
        generate = FromSession(session, StartGeneration(name, "default", len(self.asked), "", said, (), ToolChoice("none"), Modality.TEXT, "heart", 1.0, None, self.loop.time))  # fmt: skip
        at = self.loop.time + self.replica.handover_ns
        self.loop.at(at, self.replica.host.post, generate)
        return asked

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time + int(seconds * NS_PER_S))

    def _on_message(self, message: ToSession) -> None:
        if isinstance(message, TextChunk | Finished):
            asked = self._open[message.response]
            if asked.first is None:
                asked.first = self.loop.time
            asked.done = isinstance(message, Finished)
