"""A storm of messages in random order, over engines that fail now and then: nothing leaks, nothing stale gets out."""

from __future__ import annotations

import asyncio
import random

import pytest

from engines.sim.wave import verify
from session_server.core.actions import (
    AdoptDraft,
    CancelGeneration,
    CancelWork,
    RaiseFence,
    ReportFrontier,
)
from session_server.host.messages import (
    Chunk,
    CloseSession,
    Failed,
    Finished,
    FromSession,
    JudgeTurn,
    Recognise,
)
from session_server.scheduler.params import PolicyName, SchedulerParams
from session_server.types.audio import NS_PER_MS, PlaybackSnapshot

pytestmark = pytest.mark.integration

TEXTS = ["Hi", "Tell me about the sea", "Tell me a long story", "..."]


class Storm:
    """Says what comes to mind, and remembers which responses must be silent from then on."""

    def __init__(self, bench, seed):
        self.bench = bench
        self.dice = random.Random(seed)
        self.count = 0
        self.fences = dict.fromkeys(range(3), 1)
        self.live = {}
        self.dead = {}

    def step(self):
        session = self.dice.randrange(3)
        name = f"s{session}"
        bench = self.bench
        match self.dice.randrange(10):
            case 0 | 1 | 2:
                self.count += 1
                response = f"r{self.count}"
                epoch = self.dice.choice([None, self.fences[session]])
                spoken = self.dice.random() < 0.8
                self.live[response] = (session, epoch)
                text = self.dice.choice(TEXTS)
                bench.ask(response, text, session=name, epoch=epoch, spoken=spoken)
            case 3 if self.live:
                response, (owner, epoch) = self.dice.choice(list(self.live.items()))
                if epoch is None:
                    self.live[response] = (owner, self.fences[owner])
                    bench.post(
                        FromSession(
                            f"s{owner}", AdoptDraft(response, "default", self.fences[owner])
                        )
                    )
            case 4 if self.live:
                response, (owner, _) = self.dice.choice(list(self.live.items()))
                bench.post(FromSession(f"s{owner}", CancelGeneration(response)))
                self.bury(response)
            case 5:
                self.fences[session] += 1
                bench.post(FromSession(name, RaiseFence("default", self.fences[session])))
                for response, (owner, epoch) in list(self.live.items()):
                    if owner == session and epoch is not None:
                        self.bury(response)
            case 6:
                bench.post(CloseSession(name))
                for response, (owner, _) in list(self.live.items()):
                    if owner == session:
                        self.bury(response)
            case 7:
                self.count += 1
                work = f"w{self.count}"
                partial = self.dice.random() < 0.5
                bench.post(Recognise(name, work, bytes(3200), partial, bench.clock.now()))
            case 8:
                self.count += 1
                some = f"w{self.dice.randrange(self.count)}"
                bench.post(
                    JudgeTurn(name, f"j{self.count}", bytes(3200), 0),
                    FromSession(name, CancelWork(some)),
                )
            case _ if self.live:
                response, (owner, _) = self.dice.choice(list(self.live.items()))
                made = len(bench.pcm(response)) // 2
                paused = self.dice.random() < 0.3
                played = self.dice.randint(0, made)
                bench.post(
                    FromSession(
                        f"s{owner}",
                        ReportFrontier(
                            response, PlaybackSnapshot(made, made, played, 24_000), paused
                        ),
                    )
                )
                bench.clock.advance(self.dice.randrange(300) * NS_PER_MS)

    def bury(self, response):
        del self.live[response]
        self.dead[response] = len(self.bench.of(response))


@pytest.mark.parametrize("policy", list(PolicyName))
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.asyncio
async def test_a_storm_leaves_nothing_behind(open_bench, policy, seed):
    faults = [
        {},
        {"thinker": {"slots": 2}},
        {"codec": {"throw_at_step": 40}},
        {"talker": {"slots": 1}},
    ]
    bench = await open_bench(faults[seed], params=SchedulerParams(policy=policy, cores=1000))
    bench.play = False
    storm = Storm(bench, seed)
    for _ in range(150):
        storm.step()
        for _ in range(storm.dice.randrange(4)):
            await asyncio.sleep(0)
    await bench.settle()
    for response, heard in storm.dead.items():
        assert len(bench.of(response)) == heard, f"{response} spoke after its end"
    failed = 0
    for response in {m.response for m in bench.got if isinstance(m, Chunk | Finished | Failed)}:
        failed += isinstance(bench.end(response), Failed)
        assert verify(bench.pcm(response), response).intact
    assert failed <= 16
    await bench.close("s0", "s1", "s2")
