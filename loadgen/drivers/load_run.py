"""A load run, whatever carries it: who comes when, with which lines, what the server says of itself meanwhile.

Owns the run's outcome. How one user's connection is opened and spoken over is the driver's: `Carry`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from loadgen.call_reception import CallFigures
from loadgen.drivers.camera_feed import FilmFeed
from loadgen.drivers.wire import message_of
from loadgen.drivers.wire_client import CarriedUser, ClipSets, UserPlan
from loadgen.records import FilmFigures, ResponseIds, UserRecord
from loadgen.server_probe import Sample, ServerProbe
from loadgen.speech import Material, room_noise, share
from loadgen.users.player import QUANTUM_NS
from session_server.process.clock import Clock, MonotonicClock
from session_server.types.audio import NS_PER_S
from session_server.types.errors import SessionServerError

OPEN_S = 10.0
PROBE_EVERY_S = 2.0
LEAD_EVERY_NS = 5 * QUANTUM_NS
LEAD_SAMPLES = 600


class RunFailed(SessionServerError):
    """No session could be opened. One line that says why."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What to run. `starts`: seconds from the beginning, one a user; each user opens `rounds` sessions in turn."""

    url: str
    plan: UserPlan
    material: Material
    starts: Sequence[float]
    seed: int
    rounds: int = 1
    knock_again: bool = False
    """Whoever is refused comes again when the server said."""
    api_key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A session that the server did not take: what it said, and after how many seconds to come again (None: not said)."""

    said: str
    retry_after_s: int | None


@dataclass(slots=True)
class LoadOutcome:
    """What a run gave. `looks`: (sessions ended so far, the server then). `lead`: (second of the run, seconds of audio that had
    arrived and were not played yet) of the first user, for its first minute or so. `calls`: of a run over WebRTC. `film`: of
    all users' cameras."""

    records: list[UserRecord] = field(default_factory=list)
    late_ns: list[int] = field(default_factory=list)
    looks: list[tuple[int, Sample]] = field(default_factory=list)
    lead: list[tuple[float, float]] = field(default_factory=list)
    sessions: int = 0
    refusals: list[RefusedCall] = field(default_factory=list)
    calls: list[CallFigures] | None = None
    film: FilmFigures = field(default_factory=FilmFigures)


Carry = Callable[[int, ClipSets, random.Random], Awaitable[int | None]]
"""One session of one user: its number, what it says, its luck. Returns in how many seconds to try again, None: not."""

_MOST_KNOCKS = 100
"""Of a user who is refused again and again."""


def refusal(body: str, headers: Mapping[str, str]) -> RefusedCall:
    """From an HTTP answer that takes nobody in."""
    wait = headers.get("Retry-After", "")
    return RefusedCall(message_of(body), int(wait) if wait.isdecimal() else None)


class LoadRun:
    """Runs a load. `outcome`: what there is so far; of a run that was cancelled, all there is."""

    def __init__(
        self,
        load: LoadPlan,
        probe: ServerProbe,
        progress: Callable[[int], None],
        clock: Clock | None = None,
    ) -> None:
        self.load = load
        self.clock = clock if clock is not None else MonotonicClock()
        self.ids = ResponseIds()
        self.room = room_noise(load.seed)
        self.outcome = LoadOutcome()
        self.began = 0
        self._probe = probe
        self._progress = progress
        self._refusals: list[str] = []
        self._ended_turns = 0

    async def run(self, carry: Carry) -> LoadOutcome:
        """Raises RunFailed when not one session could be opened."""
        self.began = self.clock.now()
        await self._look()
        looking = asyncio.create_task(self._keep_looking())
        try:
            async with asyncio.TaskGroup() as group:
                for index, start in enumerate(self.load.starts):
                    group.create_task(self._user(index, start, carry))
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        if not self.outcome.sessions:
            raise RunFailed(self._refusals[0] if self._refusals else "no session could be opened")
        await self._look()
        return self.outcome

    def refuse(self, why: str, kind: str, refused: RefusedCall | None = None) -> int | None:
        """A session could not be opened. Returns in how many seconds its user tries again; None: it does not, and that is
        an error. `refused`: where the server said that it takes no more now."""
        if refused is not None:
            self.outcome.refusals.append(refused)
            if self.load.knock_again and refused.retry_after_s is not None:
                return refused.retry_after_s
        said = f": {refused.said}" if refused is not None and refused.said else ""
        self._refusals.append(why + said)
        record = UserRecord()
        record.errors[kind] += 1
        self.outcome.records.append(record)
        return None

    def feed(self, user: int) -> Callable[[], FilmFeed]:
        """Makes the feed of that user's camera, which begins when it is made."""

        def begin() -> FilmFeed:
            assert self.load.plan.cameras is not None
            return FilmFeed(self.load.plan.cameras, user, self.clock.now(), self.outcome.film)

        return begin

    async def frames(
        self, user: CarriedUser, begun: int, over: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[int]:
        """The instant of each of its microphone's frames, once it has come, until the user has done or its session is `over`.
        Notes how late it is, and the turns that have ended."""
        due, ended = begun, 0
        while not user.done and not over():
            due += QUANTUM_NS
            wait = due - self.clock.now()
            if wait > 0:
                await asyncio.sleep(wait / NS_PER_S)
            self.outcome.late_ns.append(max(0, self.clock.now() - due))
            yield due
            turns = user.user.turns_ended
            if turns > ended:
                self._ended_turns += turns - ended
                self._progress(self._ended_turns)
            ended = turns

    async def _user(self, index: int, start: float, carry: Carry) -> None:
        await asyncio.sleep(start)
        users = len(self.load.starts)
        for lap in range(self.load.rounds):
            rng = random.Random(f"{self.load.seed}/{index}/{lap}")
            material = self.load.material
            lines = ClipSets(
                share(material.questions, index, users, rng),
                share(material.interruptions, index, users, rng),
                share(material.backchannels, index, users, rng) if material.backchannels else (),
            )
            for _ in range(_MOST_KNOCKS):
                wait_s = await carry(index, lines, rng)
                if wait_s is None:
                    break
                await asyncio.sleep(wait_s)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        sample = await asyncio.to_thread(self._probe.sample)
        if sample is not None:
            self.outcome.looks.append((len(self.outcome.records), sample))
