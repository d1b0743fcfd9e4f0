"""A ramp of answers climbs the ladder step by step, and nobody who is being served hears it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

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
from session_server.simulation.spec import SimulationSpec
from session_server.types.audio import NS_PER_MS, NS_PER_S, OUTPUT_RATE, samples_to_ns
from session_server.types.prompt import PromptMessage
from session_server.types.tools import ToolChoice
from tests.sim.small_machine import small_machine

pytestmark = pytest.mark.sim

SHORT, ASKED = 20, 60
STEPS = ["none", "longer_chunks", "shorter_answers", "defer", "refuse"]


@dataclass
class Heard:
    """One answer at a listener who plays what came, from its first chunk on."""

    dry: int = 0
    worst_ns: int = 0
    samples: int = 0
    ended: ToSession | None = None


@dataclass
class Ramp:
    """Every 0.4 s another session asks for 18 s of speech."""

    answers: int
    overrides: tuple[tuple[str, float], ...] = ()
    heard: dict[str, Heard] = field(default_factory=dict)

    def run(self, seconds: float) -> Replica:
        spec = SimulationSpec(
            sessions=1, seconds=3600.0, warm_up_s=0.0, admission=True,
            overrides=(("max_sessions", 1000), *self.overrides),
        )  # fmt: skip
        self.replica = replica = Replica(spec, small_machine(), 0, 1)
        replica.take_messages(self._on_message)
        replica.host.begin(replica.loop)
        replica.loop.run_until(0)
        for session in range(-(-self.answers // 8)):
            replica.host.post(OpenSession(f"s{session}"))
        for number in range(self.answers):
            replica.loop.at(int(number * 0.4 * NS_PER_S), self._ask, number)
        replica.loop.run_until(int(seconds * NS_PER_S))
        return replica

    def _ask(self, number: int) -> None:
        """Eight answers a session, each on a lane of its own: sessions are not what is refused here."""
        host, now = self.replica.host, self.replica.loop.time
        session, name = f"s{number // 8}", f"r{number}"
        words = f"turn 1 prompt 60 answer {ASKED}"
        self.heard[name] = Heard()
        host.post(
            FromSession(session, StartGeneration(name, name, 1, "", (PromptMessage("user", words),), (), ToolChoice("none"), Modality.AUDIO, "heart", 1.0, None, now))
        )  # fmt: skip

    def _on_message(self, message: ToSession) -> None:
        now = self.replica.loop.time
        if isinstance(message, Chunk):
            heard, samples = self.heard[message.response], len(message.pcm) // 2
            if heard.samples:
                heard.worst_ns = max(heard.worst_ns, now - heard.dry)
            heard.dry = max(heard.dry, now) + samples_to_ns(samples, OUTPUT_RATE)
            heard.samples += samples
        elif isinstance(message, Finished | Failed):
            self.heard[message.response].ended = message


def climbed(replica: Replica) -> list[str]:
    """Steps in the order in which they were first reached."""
    return list(dict.fromkeys(step for _, step in replica.said.ladder))


def test_steps_come_in_their_order_and_no_answer_is_disturbed() -> None:
    ramp = Ramp(48, (("overload_max_tokens", SHORT),))
    replica = ramp.run(60)
    reached = climbed(replica)
    assert reached == sorted(reached, key=STEPS.index)
    assert reached[-1] == "refuse"
    assert {"longer_chunks", "shorter_answers"} <= set(reached)
    served = [heard for heard in ramp.heard.values() if isinstance(heard.ended, Finished)]
    refused = [h.ended for h in ramp.heard.values() if isinstance(h.ended, Failed)]
    assert len(served) + len(refused) == 48
    assert max(heard.worst_ns for heard in served) <= 100 * NS_PER_MS
    assert all("try again in" in failed.message for failed in refused)
    assert all(h.samples == 0 for h in ramp.heard.values() if isinstance(h.ended, Failed))
    assert replica.said.ladder_s(60 * NS_PER_S)["refuse"] > 1


def test_answers_are_shortened_only_where_the_configuration_allows_it() -> None:
    allowed, never = Ramp(24, (("overload_max_tokens", SHORT),)), Ramp(24)
    allowed.run(45)
    never.run(45)
    lengths = [
        {h.ended.output_tokens for h in ramp.heard.values() if isinstance(h.ended, Finished)}
        for ramp in (allowed, never)
    ]
    assert lengths == [{SHORT, ASKED}, {ASKED}]


def test_the_ladder_is_left_when_the_crowd_has_gone() -> None:
    replica = Ramp(30).run(90)
    assert replica.said.ladder[-1][1] == "none"
