"""A multi-turn workload on the residency machine alone: users who speak, interrupt, murmur, over a link of known speed.

Virtual time; transfers take what their bytes take, one each way at a time; a turn uses its state for 0.6 s. Figures of
the default: state of 1,000 to 4,000 tokens at 98,304 B, room for half the sessions, 50 GB/s (serving page, section 7).
Shell: `python -m tests.sim.residency_workload [sessions] [seconds]`.
"""

from __future__ import annotations

import heapq
import random
import sys
from dataclasses import dataclass, field

from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import (
    Action,
    Ended,
    Event,
    EvictionOrder,
    LoadState,
    Moved,
    Offload,
    Playing,
    PreloadEnded,
    PreloadResult,
    ResidencyParams,
    SpeechDismissed,
    StartWork,
    StateWanted,
    UserSpeechStarted,
)
from session_server.types.audio import NS_PER_MS, NS_PER_S

_TOKENS = 2000
_BYTES = 98_304
_LINK = 50e9
_ANSWER_TOKENS = 80
_ROOM = 300
_WARM_UP_S = 60


@dataclass
class Outcome:
    """`reloads_ms`: of every turn after the warm-up, how long it waited for its state; 0 when that was resident."""

    reloads_ms: list[float] = field(default_factory=list)
    bytes: dict[PreloadResult, int] = field(default_factory=dict)
    moved_bytes: int = 0
    events: int = 0

    def quantile(self, share: float) -> float:
        ordered = sorted(self.reloads_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    @property
    def wasted(self) -> float:
        """Share of the preloaded bytes that were never used."""
        total = sum(self.bytes.values())
        return self.bytes.get(PreloadResult.WASTED, 0) / total if total else 0.0


class Workload:
    """`sessions` users for `seconds`; the same seed gives the same run."""

    def __init__(
        self, order: EvictionOrder, preload: bool, sessions: int, seed: int = 0, share: float = 0.5
    ) -> None:
        self.outcome = Outcome()
        self.machine = Residency(
            ResidencyParams(
                int(sessions * share * _TOKENS * _BYTES), _BYTES, _LINK, 10**15, order=order, preload=preload
            )
        )  # fmt: skip
        self._random = random.Random(seed)
        self._queue: list[tuple[int, int, str, tuple]] = []
        self._serial = 0
        self._tokens = {
            f"s{i}": self._random.randint(_TOKENS // 2, _TOKENS) for i in range(sessions)
        }
        self._now = 0

    def run(self, seconds: float) -> Outcome:
        for session in self._tokens:
            self._later(self._random.uniform(0, 30), "speak", session, True)
        while self._queue and self._queue[0][0] <= seconds * NS_PER_S:
            self._now, _, what, arguments = heapq.heappop(self._queue)
            due = self.machine.next_deadline()
            if due is not None and due <= self._now:
                self._do(self.machine.on_deadline(self._now))
            getattr(self, f"_{what}")(*arguments)
        self.machine.check()
        return self.outcome

    def _later(self, seconds: float, what: str, *arguments: object) -> None:
        self._serial += 1
        at = self._now + int(seconds * NS_PER_S)
        heapq.heappush(self._queue, (at, self._serial, what, arguments))

    def _tell(self, event: Event) -> None:
        self.outcome.events += 1
        self._do(self.machine.handle(event, self._now))

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case LoadState() | Offload():
                    self.outcome.moved_bytes += action.size_bytes
                    self._later(action.size_bytes / _LINK, "moved", action.ticket)
                case StartWork(session, _, _, reload_ns):
                    if self._now > _WARM_UP_S * NS_PER_S:
                        self.outcome.reloads_ms.append(reload_ns / NS_PER_MS)
                    self._later(0.6, "answered", session)
                case PreloadEnded(_, result, size):
                    self.outcome.bytes[result] = self.outcome.bytes.get(result, 0) + size

    def _moved(self, ticket: int) -> None:
        self._tell(Moved(ticket))

    def _speak(self, session: str, true: bool) -> None:
        self._tell(UserSpeechStarted(session))
        length = min(20.0, max(0.4, self._random.lognormvariate(0.916, 0.6)))
        self._later(length + 0.5, "turn" if true else "murmured", session)

    def _murmured(self, session: str) -> None:
        self._tell(SpeechDismissed(session))

    def _turn(self, session: str) -> None:
        self._tell(StateWanted(session, "turn", self._tokens[session] + _ROOM, order=self._now))

    def _answered(self, session: str) -> None:
        self._tokens[session] += _ANSWER_TOKENS
        self._tell(Ended(session, "turn", self._tokens[session]))
        if self._tokens[session] >= 2 * _TOKENS:  # trimmed at its bound
            self._tokens[session] = _TOKENS // 2
        draw = self._random
        plays = 0.3 * min(220.0, max(6.0, draw.lognormvariate(3.6, 0.8)))
        self._tell(Playing(session, self._now + int(plays * NS_PER_S)))
        if draw.random() < 0.15:
            self._later(plays / 2, "speak", session, False)
        barges_in = draw.random() < 0.3
        thinks = draw.uniform(0.5, 1.5) + draw.expovariate(0.25)
        self._later(draw.uniform(0, plays) if barges_in else plays + thinks, "speak", session, True)


def main() -> None:
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 200.0
    print("order     preload  turns  reload p50 / p95 / p99 ms   wasted  moved GB")
    for order in EvictionOrder:
        for preload in (True, False):
            o = Workload(order, preload, sessions).run(seconds)
            q = " / ".join(f"{o.quantile(share):5.1f}" for share in (0.5, 0.95, 0.99))
            print(
                f"{order.value:9} {preload!s:7} {len(o.reloads_ms):6}  {q:26} {o.wasted:6.3f} "
                f"{o.moved_bytes / 1e9:9.0f}"
            )


if __name__ == "__main__":
    main()
