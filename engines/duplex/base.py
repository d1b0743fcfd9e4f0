"""The contract of a duplex engine: a model that hears and speaks at the same time, frame by frame.

Such a model has a fixed number of *slots*, one for each live conversation. Every tick takes one frame of what each user
said and gives one frame of what the model says, for all of them in one batch; the tick's length is the deadline.

    join(slot, config)       a conversation begins in an empty slot, afresh, whatever was in the slot before
    update(slot, config)     what the conversation was told is replaced; holds from the next tick on
    leave(slot)              it is over; its state is gone. Idempotent
    reset(slot)              it begins anew in the same slot, with the same config
    tick(frames)             one step of the whole batch
    save_state(slot)         a copy of the conversation as it stands between two ticks
    load_state(slot, state)  goes on from such a copy, in any slot of the same model that is joined

Rules that every engine keeps, and `engines.conformance.duplex_checks` checks:

* All calls come from one thread, one at a time; an engine needs no locks. Only `close` may come from elsewhere, to end a
  step that hangs.
* The slots named in `frames` advance by one frame, and each gets exactly one AssistantFrame. A slot whose frame is None
  hears silence: its user's audio was late or lost; whoever calls counts that.
* A joined slot that is not named is paused: it does not advance, nothing comes from it, and it goes on later as if no
  time had passed.
* What a slot hears and says depends on its own frames alone: neighbours that join, leave, reset or pause change nothing.
  (With random sampling the draws may differ; with greedy choice nothing does.)
* `update` reaches what the model decides from then on; an answer under way may go on as it was begun. A model that reads nothing
  is not changed by it.
* Slots that are not joined are never in a result, nor is anything that was under way when one left.
* `tick` fails as a whole: whoever called closes the engine and loads it again. All conversations are then lost.

Who has the floor is the model's own decision. It says so by `TurnAction`s; audio counts as an answer only between
TAKE and YIELD or GIVE_WAY. A model without such tokens is judged by what it says (`engines.duplex.activity`).
Audio is s16le mono at `rate`, frames of `frame_samples`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

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
