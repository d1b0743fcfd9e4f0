"""A chunk that waits for more frames goes out when none come: the listener does not run dry beside finished frames."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engines.base import Stage, StepRequest, StepResult
from engines.sim.scripted_stages import ScriptedTalker
from session_server.core.actions import StartGeneration
from session_server.core.settings import Modality
from session_server.host.messages import Chunk, FromSession, OpenSession, ToSession
from session_server.simulation.replica import Replica
from session_server.simulation.spec import SimulationSpec
from session_server.types.audio import NS_PER_S
from session_server.types.prompt import PromptMessage
from session_server.types.tools import ToolChoice
from tests.sim.small_machine import exact_machine

pytestmark = pytest.mark.sim

_STALL_S = 3.0


class Bench:
    """One answer of 40 tokens (12 s) by a talker whose step number `stalls_at` takes 3 s more."""

    def __init__(self, stalls_at: int) -> None:
        profile = exact_machine()
        self.replica = Replica(
            SimulationSpec(sessions=1, seconds=60.0, warm_up_s=1.0), profile, 0, 1
        )
        self.chunks: list[tuple[float, int]] = []
        self.stall_s = 0.0
        self.replica.take_messages(self._on_message)
        self.replica.host.begin(self.replica.loop)
        self.replica.loop.run_until(0)
        self._stall(stalls_at)

    def run(self) -> None:
        host, loop = self.replica.host, self.replica.loop
        host.post(OpenSession("s"))
        words = (PromptMessage("user", "turn 1 prompt 100 answer 40"),)
        host.post(
            FromSession(
                "s",
                StartGeneration(
                    "r",
                    "default",
                    1,
                    "",
                    words,
                    (),
                    ToolChoice("none"),
                    Modality.AUDIO,
                    "heart",
                    1.0,
                    None,
                    0,
                ),
            )
        )
        loop.run_until(60 * NS_PER_S)

    def _on_message(self, message: ToSession) -> None:
        if isinstance(message, Chunk):
            self.chunks.append((self.replica.loop.time / NS_PER_S, len(message.pcm) // 2))

    def _stall(self, at: int) -> None:
        talker = self.replica.engines[Stage.TALKER]
        step, steps = talker.step, 0

        def slow(batch: Sequence[StepRequest]) -> list[StepResult]:
            nonlocal steps
            results = step(batch)
            steps += 1
            if steps == at:
                talker.cost_ns += int(_STALL_S * NS_PER_S)
                self.stall_s = self.replica.loop.time / NS_PER_S
            return results

        talker.step = slow  # type: ignore[method-assign]


@pytest.mark.parametrize("stalls_at", [36, 46])
def test_frames_that_wait_go_out_while_the_talker_stalls(stalls_at: int) -> None:
    bench = Bench(stalls_at)
    bench.run()
    begin = bench.stall_s
    before = sum(samples for at, samples in bench.chunks if at <= begin)
    meanwhile = [(at, n) for at, n in bench.chunks if begin < at < begin + _STALL_S]
    assert (stalls_at - 1) * 1920 - before >= 4 * 1920, "enough frames waited when the stall began"
    assert meanwhile, "they went out before it was over"
    played_out = bench.chunks[0][0] + before / 24_000
    assert meanwhile[0][0] < played_out, "and before the listener had run dry"
    talker = bench.replica.engines[Stage.TALKER]
    assert isinstance(talker, ScriptedTalker)
    assert sum(samples for _, samples in bench.chunks) == talker.frames * 1920
