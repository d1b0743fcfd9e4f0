"""What residency is told and what it answers; values only.

Sizes are tokens of a session's state and bytes; instants are nanoseconds. A *work* is one job that needs its session's
state; it *holds* the state from `Start` to `Ended`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from session_server.types.audio import NS_PER_S


class EvictionOrder(enum.Enum):
    """Whose idle state goes first: whose next use is farthest away, or whose last use is (the baseline)."""

    NEXT_USE = "next_use"
    LRU = "lru"


class Rank(enum.IntEnum):
    """What wants a session's state, most pressing first."""

    TURN = 0
    DRAFT = 1
    WARM = 2
    """Reading ahead while the user speaks: no use of the state in the sense of the counts."""


class PreloadResult(enum.StrEnum):
    """What had become of a preload when the state was used: all there, a part, or still under way; or the bytes
    left again before any use."""

    HIT = "hit"
    PARTIAL = "partial"
    LATE = "late"
    WASTED = "wasted"


class EvictionReason(enum.Enum):
    """ROOM: for work that waited; PRELOAD: for a preload; HOST_FULL: lost, since host memory is full; FAILED: lost in a
    transfer or with the engine."""

    ROOM = "room"
    PRELOAD = "preload"
    HOST_FULL = "host_full"
    FAILED = "failed"


class KvLocation(enum.Enum):
    """Where a session's state is. OFFLOADED: some of it, or all, is in host memory and nothing moves."""

    RESIDENT = "resident"
    OFFLOADING = "offloading"
    OFFLOADED = "offloaded"
    LOADING = "loading"


@dataclass(frozen=True, slots=True)
class ResidencyParams:
    """`pool_bytes` of the device hold blocks of `block_tokens`; `host_bytes` bound what is moved out. A transfer moves at
    most `piece_tokens` at a time (None: a session's state in one piece), so that it can be cancelled in between.
    `bandwidth_bytes_s` is the first guess for the link, each way. `protected_share` of the pool may be protected.
    `reply_prior_s`: from the end of playback to the next turn; `speech_prior_s`: from the start of speech until the
    thinker is wanted; both before anything was learned of a session. `protect_s`: protection ends by itself after.
    """

    pool_bytes: int
    bytes_per_token: int
    bandwidth_bytes_s: float
    host_bytes: int
    block_tokens: int = 16
    piece_tokens: int | None = 512
    order: EvictionOrder = EvictionOrder.NEXT_USE
    preload: bool = True
    protected_share: float = 0.25
    protect_s: float = 15.0
    reply_prior_s: float = 5.0
    speech_prior_s: float = 1.0

    def __post_init__(self) -> None:
        if self.bytes_per_token < 1 or self.block_tokens < 1 or self.bandwidth_bytes_s <= 0:
            raise ValueError("bytes_per_token, block_tokens and bandwidth_bytes_s must be positive")
        if self.total_blocks < 1:
            raise ValueError("pool_bytes is less than one block")
        if self.piece_tokens is not None and self.piece_tokens < 2 * self.block_tokens:
            raise ValueError("piece_tokens must be at least two blocks")

    @property
    def block_bytes(self) -> int:
        return self.block_tokens * self.bytes_per_token

    @property
    def total_blocks(self) -> int:
        return self.pool_bytes // self.block_bytes

    @property
    def protected_blocks(self) -> int:
        """How many blocks may be protected: at least one."""
        return max(1, int(self.total_blocks * self.protected_share))

    @property
    def protect_ns(self) -> int:
        return int(self.protect_s * NS_PER_S)

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_tokens)


# -- events


@dataclass(frozen=True, slots=True)
class StateWanted:
    """`work` needs the session's state, and room for `room_tokens` in all (prompt and answer). `order` sorts equals in
    rank, smallest first. Told again for the same work: its rank or order changed."""

    session: str
    work: str
    room_tokens: int
    rank: Rank = Rank.TURN
    order: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """`work` is over, or is not wanted any more. `tokens`: what the session's state holds now, the room of the work at
    most; None: as before."""

    session: str
    work: str
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Sized:
    """An idle, resident state turned out to hold `tokens`, within the blocks that it has."""

    session: str
    tokens: int


@dataclass(frozen=True, slots=True)
class UserSpeechStarted:
    """The user of the session began to speak, or broke in: its state will soon be used."""

    session: str


@dataclass(frozen=True, slots=True)
class SpeechDismissed:
    """That was no turn: a noise, a backchannel."""

    session: str


@dataclass(frozen=True, slots=True)
class Playing:
    """The session's listener has something to hear until then."""

    session: str
    until_ns: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The session is over: its state is not kept anywhere."""

    session: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A transfer is done. `tokens`: how many it really moved, where that can differ from what was asked."""

    ticket: int
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class MoveFailed:
    """A transfer failed: what it was to move is lost."""

    ticket: int


@dataclass(frozen=True, slots=True)
class PoolLost:
    """The engine lost all that it held, work included; what is in host memory is still good."""


Event = (
    StateWanted | Ended | Sized | UserSpeechStarted | SpeechDismissed | Playing | SessionClosed | Moved | MoveFailed
    | PoolLost
)  # fmt: skip


# -- actions


@dataclass(frozen=True, slots=True)
class LoadState:
    """Move tokens `first`.. into the pool; answer with Moved or MoveFailed. `critical`: work waits for it."""

    ticket: int
    session: str
    first: int
    tokens: int
    size_bytes: int
    critical: bool


@dataclass(frozen=True, slots=True)
class Offload:
    """Move tokens `first`.. out of the pool and free their place there; answer with Moved or MoveFailed."""

    ticket: int
    session: str
    first: int
    tokens: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StartWork:
    """The state is resident and the room is reserved. `reload_ns`: how long the work waited for a state that was not
    resident; `waited_ns`: how long it waited in all; `rank`: what it was in the end."""

    session: str
    work: str
    waited_ns: int
    reload_ns: int
    rank: Rank = Rank.TURN


@dataclass(frozen=True, slots=True)
class DropState:
    """Forget what the session's state holds behind its first `keep` tokens, in the pool and in host memory."""

    session: str
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Evicted:
    """A report: so much of a session's state left the pool, or was lost."""

    session: str
    size_bytes: int
    reason: EvictionReason


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A report: a session's state is back, `took_ns` after that was decided."""

    session: str
    took_ns: int
    critical: bool


@dataclass(frozen=True, slots=True)
class PreloadEnded:
    """A report: what came of a preload that moved `size_bytes`."""

    session: str
    result: PreloadResult
    size_bytes: int


Action = LoadState | Offload | StartWork | DropState | Evicted | Reloaded | PreloadEnded
