"""What the operator chose about scheduling; `config` fills it from YAML.

Units: seconds in fields that end in `_s`; properties in `_ns` are integer nanoseconds. Chunk sizes are
seconds of audio, never one engine's frames.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from session_server.types.audio import NS_PER_S
from session_server.types.bounds import Within


class PolicyName(enum.Enum):
    FCFS = "fcfs"
    LIVESERVE = "liveserve"
    DEADLINE = "deadline"


class Chunking(enum.Enum):
    """FIXED: the smallest step of the ladder first, then the largest; LEAD: sized by slack."""

    FIXED = "fixed"
    LEAD = "lead"


class KvEviction(enum.Enum):
    """Which idle engine state is moved to host memory when slots run short: NEXT_USE: the one that will be used
    last; LRU: the one used longest ago; OFF: none is, the engine forgets what it has no slot for."""

    NEXT_USE = "next_use"
    LRU = "lru"
    OFF = "off"


class _Nanoseconds:
    """`starve_ns` is `starve_s` in whole nanoseconds."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._seconds = f"{name.removesuffix('ns')}s"

    def __get__(self, params: SchedulerParams, owner: type) -> int:
        return int(getattr(params, self._seconds) * NS_PER_S)


@dataclass(frozen=True, slots=True)
class SchedulerParams:
    """Defaults suit the CPU stack; `serving.md` 3.1 says where they come from."""

    policy: PolicyName = PolicyName.DEADLINE
    max_sessions: Annotated[int, Within(1, 100_000)] = 16
    max_responses_per_session: Annotated[int, Within(1, 1000)] = 8
    max_work_per_session: Annotated[int, Within(1, 1000)] = 64
    lead_cap_s: Annotated[float, Within(0.1, 600)] = 2.0
    draft_cap_s: Annotated[float, Within(0, 600)] = 1.0
    text_ahead_s: Annotated[float, Within(0.1, 600)] = 4.0
    chunking: Chunking = Chunking.LEAD
    chunk_ladder_s: tuple[float, ...] = (0.1, 0.2, 0.4)
    prefill_tokens: Annotated[int, Within(1, 100_000)] = 64
    prefill_batch: Annotated[int, Within(1, 1000)] = 1
    first_audio_s: Annotated[float, Within(0.01, 60)] = 1.0
    nearly_dry_s: Annotated[float, Within(0, 60)] = 0.4
    begin_lead_s: Annotated[float, Within(0, 600)] = 0.0
    rush_lead_s: Annotated[float, Within(0, 600)] = 0.0
    late_lead_s: Annotated[float, Within(0, 600)] = 0.0
    rush_cap_s: Annotated[float, Within(0, 600)] = 0.0
    pressing_s: Annotated[float, Within(0, 60)] = 0.2
    urgent_share: Annotated[float, Within(0, 1)] = 0.25
    prefill_rule: bool = True
    late_rule: bool = True
    starve_s: Annotated[float, Within(0.1, 3600)] = 30.0
    lead_idle_s: Annotated[float, Within(0.05, 600)] = 1.2
    safe_lead_s: Annotated[float, Within(0, 60)] = 1.0
    safe_share: Annotated[float, Within(0, 1)] = 0.25
    memory_weight: Annotated[float, Within(0, 1000)] = 1.0
    utilisation: Annotated[float, Within(0.05, 1)] = 0.9
    cores: Annotated[float, Within(0, 4096)] = 0.0
    transport_s: Annotated[float, Within(0, 10)] = 0.02
    chars_per_s: Annotated[float, Within(1, 200)] = 15.0
    audio_s_per_char_cap: Annotated[float, Within(0.01, 60)] = 0.5
    audio_s_floor: Annotated[float, Within(0.1, 600)] = 3.0
    silence_cap_s: Annotated[float, Within(0.1, 600)] = 2.0
    admission: bool = True
    first_audio_limit_s: Annotated[float, Within(0.01, 600)] = 6.0
    longer_chunks_at: Annotated[float, Within(0, 100)] = 0.7
    shorter_answers_at: Annotated[float, Within(0, 100)] = 0.85
    overload_max_tokens: Annotated[int, Within(0, 100_000)] = 0
    kv_eviction: KvEviction = KvEviction.NEXT_USE
    kv_host_mb: Annotated[float, Within(0, 16_777_216)] = 1024.0
    kv_folder: str | None = None
    kv_preload: bool = True
    kv_protected_share: Annotated[float, Within(0, 1)] = 0.25
    kv_protect_s: Annotated[float, Within(0, 600)] = 15.0
    kv_busy_share: Annotated[float, Within(0, 1)] = 0.25
    kv_link_mb_s: Annotated[float, Within(1, 10_000_000)] = 1000.0

    def __post_init__(self) -> None:
        if not self.chunk_ladder_s or sorted(set(self.chunk_ladder_s)) != list(self.chunk_ladder_s):
            raise ValueError("chunk_ladder_s must rise")
        if self.chunk_ladder_s[0] <= 0 or self.chunk_ladder_s[-1] > self.lead_cap_s:
            raise ValueError("chunk_ladder_s must lie in 0..lead_cap_s")

    lead_cap_ns = _Nanoseconds()
    lead_idle_ns = _Nanoseconds()
    starve_ns = _Nanoseconds()
    pressing_ns = _Nanoseconds()
    draft_cap_ns = _Nanoseconds()
    first_audio_ns = _Nanoseconds()
    first_audio_limit_ns = _Nanoseconds()
    nearly_dry_ns = _Nanoseconds()
    begin_lead_ns = _Nanoseconds()
    rush_lead_ns = _Nanoseconds()
    late_lead_ns = _Nanoseconds()
    safe_lead_ns = _Nanoseconds()
    transport_ns = _Nanoseconds()

    @property
    def rush_cap_ns(self) -> int:
        """At least `lead_cap_ns`."""
        return int(max(self.rush_cap_s, self.lead_cap_s) * NS_PER_S)
