"""What a simulated host says about itself, and what only the simulation can see of its run.

Owns which sessions and turns were let in, the steps of the overload ladder, and where state was:
one object a replica; `replica_figures` puts them together. Counts of admission run from the start
of the run, those of residency from the end of its warm-up.

Units: instants are nanoseconds of the virtual clock, audio is samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from session_server.observability.host_metrics import HostMetrics
from session_server.process.clock import Clock
from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import (
    Action,
    Evicted,
    LoadState,
    Offload,
    PreloadEnded,
    PreloadResult,
    Rank,
    StartWork,
)
from session_server.types.audio import NS_PER_S


class HostRecords(HostMetrics):
    """Counts what the host reports. `counts`: the records of the replica's users, for what has no place of its own."""

    def __init__(self, counts: Counter[str], clock: Clock) -> None:
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.hints_s: list[int] = []
        self.ladder: list[tuple[int, str]] = [(0, "none")]
        self._counts = counts
        self._clock = clock

    def stale(self, boundary: str) -> None:
        self._counts[f"stale:{boundary}"] += 1

    def admission(self, decision: str, reason: str) -> None:
        self.decisions[decision, reason] += 1
        self._counts[f"admission:{decision}"] += 1

    def overload_step(self, step: str) -> None:
        self.ladder.append((self._clock.now(), step))

    def ladder_s(self, end_ns: int) -> dict[str, float]:
        """Seconds on each step of the overload ladder."""
        seconds: dict[str, float] = {}
        ends = [at for at, _ in self.ladder[1:]] + [end_ns]
        for (begin, step), end in zip(self.ladder, ends, strict=True):
            seconds[step] = seconds.get(step, 0.0) + (min(end, end_ns) - begin) / NS_PER_S
        return seconds

    def chunk_frames(self, stage: str, frames: int) -> None:
        self._counts[f"chunks:{frames}"] += 1

    def starved_step(self, stage: str) -> None:
        self._counts[f"starved:{stage}"] += 1

    def runaway(self, kind: str) -> None:
        self._counts[f"runaway:{kind}"] += 1


class KvRecords:
    """What residency decided after `since_ns`: the observer of `ThinkerResidency`.

    `waits_ns`: of every turn, from being ready but for its state until it had that, 0 where it was there; waiting for
    room counts. `reloads_ns`: of those whose state was not all in the pool.
    """

    def __init__(self, since_ns: int) -> None:
        self.waits_ns: list[int] = []
        self.reloads_ns: list[int] = []
        self.preloads: Counter[PreloadResult] = Counter()
        self.preload_bytes: Counter[PreloadResult] = Counter()
        self.evicted_bytes: Counter[str] = Counter()
        self.loaded_bytes = 0
        self.loaded_ahead_bytes = 0
        self.offloaded_bytes = 0
        self.protected_peak_bytes = 0
        self.occupied_ns = 0.0
        self.state_ns = 0.0
        self.seconds_ns = 0
        self.first_eviction_ns: int | None = None
        self._since_ns = since_ns
        self._last: tuple[int, float, float] | None = None

    def __call__(self, machine: Residency, actions: Sequence[Action], now: int) -> None:
        if now < self._since_ns:
            return
        self._integrate(machine, now)
        self.protected_peak_bytes = max(self.protected_peak_bytes, machine.protected_bytes)
        for action in actions:
            self._note(action)
            if self.first_eviction_ns is None and isinstance(action, Evicted):
                self.first_eviction_ns = now

    def _integrate(self, machine: Residency, now: int) -> None:
        if self._last is not None:
            then, occupied, state = self._last
            self.occupied_ns += occupied * (now - then)
            self.state_ns += state * (now - then)
            self.seconds_ns += now - then
        occupied = machine.occupancy
        self._last = (now, occupied, occupied + machine.host_bytes / machine.params.pool_bytes)

    def _note(self, action: Action) -> None:
        match action:
            case StartWork(waited_ns=waited_ns, reload_ns=reload_ns, rank=rank):
                if rank is not Rank.WARM:
                    self.waits_ns.append(waited_ns)
                    if reload_ns:
                        self.reloads_ns.append(reload_ns)
            case LoadState():
                self.loaded_bytes += action.size_bytes
                self.loaded_ahead_bytes += 0 if action.critical else action.size_bytes
            case Offload():
                self.offloaded_bytes += action.size_bytes
            case Evicted(size_bytes=size_bytes, reason=reason):
                self.evicted_bytes[reason.value] += size_bytes
            case PreloadEnded(result=result, size_bytes=size_bytes):
                self.preloads[result] += 1
                self.preload_bytes[result] += size_bytes
            case _:
                pass


@dataclass(slots=True)
class ReplicaRecords:
    """`lead`: (instant, seconds generated and not yet played) of its first session. `generated_samples`: all speech that was
    made; `wasted_samples`: what of it nobody heard, or will."""

    generated_samples: int = 0
    wasted_samples: int = 0
    lead: list[tuple[int, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
