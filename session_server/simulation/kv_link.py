"""An accelerator's memory for prompts in virtual time: its pool, and the link to its host's memory.

The pool is the real `ThinkerResidency` over blocks; only the transfers are modelled: each direction carries one at a
time at the profile's bandwidth, beside the steps. `kv_eviction: off` is an engine that moves nothing and forgets what
it has no room for. Sizes are tokens and bytes, instants nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from engines.base import JobKey
from engines.sim.cost_profile import KvCosts
from engines.sim.kv_cache import ForgetfulPool, KvMemory, Unlimited
from engines.sim.scripted_stages import ScriptedThinker
from session_server.host.stages.kv_residency import ThinkerResidency, pool_params
from session_server.host.stages.kv_store import MovedState
from session_server.scheduler.params import KvEviction, SchedulerParams
from session_server.scheduler.residency import Residency
from session_server.scheduler.residency_events import LoadState, Moved, MoveFailed, Offload
from session_server.simulation.virtual_loop import VirtualLoop
from session_server.types.audio import NS_PER_S

_ANSWER_ROOM = 256
"""Tokens reserved for an answer: more than nearly all of them have. A longer one reserves what it will have."""


class KvLink:
    """Both directions of a link of `gb_per_s` each way. `tell`: residency's door."""

    def __init__(self, loop: VirtualLoop, gb_per_s: float, tell: Callable[[Moved], None]) -> None:
        self._loop = loop
        self._ns_per_byte = NS_PER_S / (gb_per_s * 1e9)
        self._tell = tell

    def offload(self, move: Offload) -> None:
        self._carry(move.ticket, move.size_bytes)

    def load(self, move: LoadState) -> None:
        self._carry(move.ticket, move.size_bytes)

    def _carry(self, ticket: int, size_bytes: int) -> None:
        through = self._loop.time + int(size_bytes * self._ns_per_byte)
        self._loop.at(through, self._tell, Moved(ticket))

    def drop(self, session: str, keep: int) -> None:
        """Nothing is kept here but time."""

    def engine_lost(self) -> None:
        """A simulated engine is never lost."""

    def moved(self, move: MovedState) -> Moved | MoveFailed:
        raise AssertionError("a scripted engine moves nothing itself")

    def stop(self) -> None:
        """Nothing to give back."""


class Outgrown(BaseException):
    """A prompt is longer than the whole pool. No Exception, since it ends the run and not one session in it: with so
    little memory its figures would mean nothing."""


class _PoolSizes:
    """What jobs of the scripted thinker take of the pool, which has room for `most` tokens."""

    def __init__(self, thinker: Callable[[], ScriptedThinker], most: int) -> None:
        self._thinker = thinker
        self._most = most

    def room(self, job: object) -> int:
        prompt, answer = self._thinker().sizes(job)
        tokens = prompt + (max(_ANSWER_ROOM, answer) if answer else 0)
        if tokens > self._most:
            raise Outgrown(f"a turn needs {tokens} tokens, and there is room for {self._most}")
        return tokens

    def held(self, key: JobKey) -> int | None:
        return self._thinker().held_tokens(key)


class _ResidentMemory:
    """The thinker's memory where residency moves state: what its books say is there when a job starts. Residency hears
    of the ends of jobs and sessions by itself."""

    def __init__(self, machine: Residency) -> None:
        self._machine = machine

    def begin(self, session: str, tokens: int, room: int) -> tuple[int, int]:
        return self._machine.tokens(session), 0

    def end(self, session: str, tokens: int) -> None:
        pass

    def forget(self, session: str) -> None:
        pass


def attach_pool(
    residency: ThinkerResidency,
    params: SchedulerParams,
    kv: KvCosts,
    pool_tokens: int,
    loop: VirtualLoop,
    thinker: Callable[[], ScriptedThinker],
) -> KvMemory:
    """Give the thinker a pool of `pool_tokens`; its memory. Without one all prompts stay where they are."""
    if pool_tokens <= 0 or kv.bytes_per_token <= 0:
        return Unlimited()
    if params.kv_eviction is KvEviction.OFF:
        return ForgetfulPool(pool_tokens)
    link_bytes_s = kv.h2d_gb_per_s * 1e9
    pool = pool_params(
        params,
        pool_tokens * kv.bytes_per_token,
        kv.bytes_per_token,
        link_bytes_s,
        int(kv.host_gb * 1e9),
    )
    link = KvLink(loop, kv.h2d_gb_per_s, residency.tell)
    most = pool.total_blocks * pool.block_tokens
    residency.use_pool(pool, link, _PoolSizes(thinker, most))
    assert residency.machine is not None
    return _ResidentMemory(residency.machine)
