"""What the engine host reports about itself; `observability` gives it Prometheus names.

Every call is made on the event loop's thread and must return at once. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FirstChunk:
    """How long a response's first audio took, in seconds; parts that did not happen are 0.

    `asr_s`: the recognition before it; `wait_s`: deferred by admission; `prefill_s`: until the first token;
    `first_clause_s`: until the first clause was complete; `first_chunk_s`: until its first audio;
    `total_s`: from the request (or the draft's) to first audio; `after_turn_end_s`: from the decided end of turn,
    never negative: 0 when the draft was faster.
    """

    session: str
    response: str
    drafted: bool
    asr_s: float
    wait_s: float
    prefill_s: float
    first_clause_s: float
    first_chunk_s: float
    total_s: float
    after_turn_end_s: float


class HostMetrics:
    """Where the host's measurements go: nowhere, but for those that a subclass takes."""

    def stage_step(self, stage: str, seconds: float, batch: int) -> None: ...

    def queue_depth(self, stage: str, depth: int) -> None: ...

    def starved_step(self, stage: str) -> None:
        """A free step found work that only lacked a slot or a credit."""

    def chunk_frames(self, stage: str, frames: int) -> None: ...

    def stale(self, boundary: str) -> None:
        """Something of a cancelled response or an old epoch was dropped at `boundary`."""

    def audio_generated(self, seconds: float) -> None: ...

    def wasted(self, where: str, audio_s: float, tokens: int) -> None:
        """Work that nobody will hear: `where` is draft, cancelled or runaway."""

    def first_chunk(self, times: FirstChunk) -> None: ...

    def admission(self, decision: str, reason: str) -> None: ...

    def engine_failed(self, stage: str, kind: str) -> None:
        """`kind`: threw, hung, not_loaded."""

    def engine_figures(self, stage: str, figures: Mapping[str, float]) -> None:
        """What an engine that schedules itself says of itself, once a second: `engines.streaming.FIGURES`."""

    def prompt_read(self, read: int, cached: int) -> None:
        """The prompt of an answer that is whole: tokens that had to be read, and those that were known."""

    def runaway(self, kind: str) -> None:
        """An answer was ended because it was too long for its text, or silent."""

    def work_done(self, stage: str, seconds: float, partial: bool) -> None:
        """A recognition or judgement took this long, queue included."""

    def work_dropped(self, stage: str, reason: str) -> None: ...

    def gave_way(self, stage: str) -> None:
        """A draft or warm-up was ended for a turn that needed its slot."""

    def overload_step(self, step: str) -> None:
        """The step of the overload ladder that the present load calls for."""

    def kv_blocks(self, state: str, blocks: int) -> None:
        """The thinker's pool: `state` is free, busy, idle, protected or moving."""

    def kv_evicted(self, reason: str) -> None:
        """State left the pool (room, preload), or was lost (host_full, failed)."""

    def kv_reloaded(self, seconds: float, critical: bool) -> None:
        """State came back; `critical`: an answer waited for it."""

    def kv_preload(self, result: str, size_bytes: int) -> None:
        """What came of a preload: hit, partial, late or wasted."""
