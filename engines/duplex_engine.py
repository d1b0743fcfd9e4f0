"""The contract of a duplex engine: a model that hears and speaks at once, frame by frame.

Such a model has a fixed number of *slots*, one for each live conversation. Every tick takes one
frame of what each user said and gives one frame of what the model says, for all of them in one
batch; the tick's length is the deadline.

    join(slot, config)       a conversation begins afresh in an empty slot, whatever was there
    update(slot, config)     replaces what the conversation was told; holds from the next tick on
    leave(slot)              it is over; its state is gone. Idempotent
    reset(slot)              it begins anew in the same slot, with the same config
    tick(frames)             one step of the whole batch
    save_state(slot)         a copy of the conversation as it stands between two ticks
    load_state(slot, state)  goes on from such a copy, in any slot of the same model that is joined

The module also owns what engines share: `SlotTable` (which slots are joined, what an engine keeps
of each beside its tensors, and the checks that are the same for every engine, so that each says the
same of a mistake), `Activity` and `TextPieces`.

Invariants: every engine keeps these rules, and `engines.conformance.duplex` checks them.

* All calls come from one thread, one at a time; an engine needs no locks. Only `close` may come
  from elsewhere, to end a step that hangs.
* The slots named in `frames` advance by one frame, and each gets exactly one AssistantFrame. A slot
  whose frame is None hears silence: its user's audio was late or lost; the caller counts that.
* A joined slot that is not named is paused: it does not advance, nothing comes from it, and it goes
  on later as if no time had passed.
* What a slot hears and says depends on its own frames alone: neighbours that join, leave, reset or
  pause change nothing. (With random sampling the draws may differ; with greedy choice nothing
  does.)
* `update` reaches what the model decides from then on; an answer under way may go on as it was
  begun. A model that reads nothing is not changed by it.
* Slots that are not joined are never in a result, nor is anything that was under way when one left.

Who has the floor is the model's own decision. It says so by `TurnAction`s; audio counts as an
answer only between TAKE and YIELD or GIVE_WAY. A model without such tokens speaks into one endless
stream, mostly silence; `Activity` judges it by what it says. It takes the floor with a frame that
has text or is loud, and has yielded it once it was quiet, without text, for `gap_frames`. Clients
need that border: only a response that ends is complete, has a transcript and a place in the
conversation. Why the user spoke into it is not known, so such a model never gives way.

`TextPieces` reads a SentencePiece vocabulary token by token: padding tokens say nothing, `▁` is a
space, byte tokens (`<0xE4>`) are gathered until they are a character. It owns nothing but these
rules; the rest that is still gathered belongs to the caller.

Units: audio is s16le mono at `rate`, frames of `frame_samples`. Levels are dBFS of a frame's mean
square.

Errors: `tick` fails as a whole: the caller closes the engine and loads it again. All conversations
are then lost.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar, runtime_checkable

from session_server.types.audio import NS_PER_S, Value


class TurnAction(enum.Enum):
    """What a model says about the floor; in a frame's `actions` they come in the order in which they hold."""

    TAKE = "take"
    """It begins an answer: this frame is the first of it."""
    YIELD = "yield"
    """Its answer is complete: this frame is the last of it."""
    GIVE_WAY = "give_way"
    """The user took the floor from it: its answer breaks off, and this frame is no part of it."""
    HEAR = "hear"
    """The user began to speak, while it had nothing to say."""

    __hash__ = object.__hash__


class DuplexConfig(Value, frozen=True):
    """What a conversation begins with; an engine uses what its model knows (`DuplexCapabilities`)."""

    instructions: str = ""
    voice: str = ""


class DuplexCapabilities(Value, frozen=True):
    """`owns_turns`: the model says itself who has the floor; else that is judged by what it says. `can_save`: states of
    slots can be saved and loaded. `reads_instructions`, `has_voices`: those of a conversation reach the model."""

    rate: int
    frame_samples: int
    slots: int
    owns_turns: bool = False
    can_save: bool = False
    reads_instructions: bool = False
    has_voices: bool = False

    @property
    def tick_ns(self) -> int:
        """Length of a tick: one frame."""
        return self.frame_samples * NS_PER_S // self.rate

    @property
    def frame_bytes(self) -> int:
        return 2 * self.frame_samples


class AssistantFrame(Value, frozen=True):
    """What the model said in one tick. `text`: whole characters, often none; `tokens`: text tokens behind them."""

    pcm: bytes
    text: str = ""
    actions: tuple[TurnAction, ...] = ()
    tokens: int = 0


@runtime_checkable
class DuplexEngine(Protocol):
    """See the module docstring for the rules of the calls."""

    @property
    def capabilities(self) -> DuplexCapabilities:
        """Known before `load`."""
        ...

    def load(self) -> None:
        """Read the model and warm up. Raises ModelsMissing, ConfigError or EngineFault with one clear line."""
        ...

    def join(self, slot: int, config: DuplexConfig) -> None:
        """Raises ValueError for a slot that does not exist or is joined."""
        ...

    def leave(self, slot: int) -> None: ...

    def update(self, slot: int, config: DuplexConfig) -> None:
        """Raises ValueError for a slot that is not joined."""
        ...

    def reset(self, slot: int) -> None:
        """Raises ValueError for a slot that is not joined."""
        ...

    def tick(self, frames: Mapping[int, bytes | None]) -> Mapping[int, AssistantFrame]:
        """Raises ValueError, before anything has moved, for a slot that is not joined or a frame of another length."""
        ...

    def save_state(self, slot: int) -> bytes:
        """Raises ValueError for a slot that is not joined, or an engine that cannot."""
        ...

    def load_state(self, slot: int, state: bytes) -> None:
        """Raises ValueError for a slot that is not joined, or a state that is damaged or of another model."""
        ...

    def close(self) -> None: ...


Kept = TypeVar("Kept")


class SlotTable(Generic[Kept]):
    """Joined slots and what is kept of each."""

    def __init__(self, capabilities: DuplexCapabilities) -> None:
        self._capabilities = capabilities
        self._kept: dict[int, Kept] = {}

    def join(self, slot: int, kept: Kept) -> None:
        """Raises ValueError for a slot that does not exist or is joined."""
        if not 0 <= slot < self._capabilities.slots:
            raise ValueError(f"there is no slot {slot}, only 0 to {self._capabilities.slots - 1}")
        if slot in self._kept:
            raise ValueError(f"slot {slot} is joined already")
        self._kept[slot] = kept

    def leave(self, slot: int) -> bool:
        """Whether it was joined."""
        return self._kept.pop(slot, None) is not None

    def of(self, slot: int) -> Kept:
        """Raises ValueError for a slot that is not joined."""
        if slot not in self._kept:
            raise ValueError(f"slot {slot} is not joined")
        return self._kept[slot]

    def put(self, slot: int, kept: Kept) -> None:
        """Replace what is kept of a joined slot."""
        self.of(slot)
        self._kept[slot] = kept

    def clear(self) -> None:
        self._kept.clear()

    def require(self, frames: Mapping[int, bytes | None]) -> None:
        """Raises ValueError unless every slot of a tick is joined and every frame has the length of one."""
        length = self._capabilities.frame_bytes
        for slot, frame in frames.items():
            self.of(slot)
            if frame is not None and len(frame) != length:
                raise ValueError(f"the frame of slot {slot} has {len(frame)} bytes, not {length}")


LOUD_DBFS = -50.0
"""Below this an agent counts as silent (docs/duplex.md)."""

FULL_SCALE = 32768.0
SILENT_DBFS = -120.0


def level_dbfs(mean_square: float) -> float:
    """Of samples in units of full scale."""
    return 10 * math.log10(mean_square) if mean_square > 1e-12 else SILENT_DBFS


class Activity:
    """The floor of one conversation. `loud` frames in a row are needed where there is no text: one may be a click."""

    def __init__(self, gap_frames: int = 10, loud_frames: int = 2) -> None:
        self._gap_frames = gap_frames
        self._loud_frames = loud_frames
        self.speaking = False
        self._quiet = 0
        self._loud = 0

    def heard(self, level: float, has_text: bool) -> tuple[TurnAction, ...]:
        """One more frame of what it says."""
        loud = level >= LOUD_DBFS
        self._loud = self._loud + 1 if loud else 0
        self._quiet = 0 if loud or has_text else self._quiet + 1
        if not self.speaking:
            if not has_text and self._loud < self._loud_frames:
                return ()
            self.speaking = True
            return (TurnAction.TAKE,)
        if self._quiet < self._gap_frames:
            return ()
        self.speaking = False
        return (TurnAction.YIELD,)

    def state(self) -> tuple[int, int, int]:
        """For saving."""
        return int(self.speaking), self._quiet, self._loud

    def restore(self, state: tuple[int, int, int]) -> None:
        self.speaking, self._quiet, self._loud = bool(state[0]), state[1], state[2]


SPACE = "▁"
_MOST_BYTES = 4


class TextPieces:
    """`piece_of`: the vocabulary. `silent`: tokens that say nothing (padding, its end, unknown)."""

    def __init__(self, piece_of: Callable[[int], str], silent: frozenset[int]) -> None:
        self._piece_of = piece_of
        self._silent = silent

    def says(self, token: int) -> bool:
        """Whether the token is text at all."""
        return token >= 0 and token not in self._silent

    def push(self, rest: bytes, token: int) -> tuple[str, bytes]:
        """What can be shown after one more token, and the bytes of a character that is not whole yet."""
        if not self.says(token):
            return "", rest
        piece = self._piece_of(token)
        byte = _byte(piece)
        if byte is None:
            return _shown(rest) + piece.replace(SPACE, " "), b""
        rest += bytes([byte])
        try:
            return rest.decode(), b""
        except UnicodeDecodeError:
            return ("", rest) if len(rest) < _MOST_BYTES else (_shown(rest), b"")


def _shown(rest: bytes) -> str:
    """Bytes that will never be a character."""
    return rest.decode(errors="replace")


def _byte(piece: str) -> int | None:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return int(piece[3:5], 16)
        except ValueError:
            return None
    return None
