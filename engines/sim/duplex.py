"""A simulated duplex model: it hears by loudness, takes turns by itself, and says known words in a known wave.

Its control tokens, by rule, in frames of 80 ms:

* the user was loud for `start_frames`: HEAR, once, while it listens;
* quiet for `reply_frames` after that: TAKE, and an answer of `answer_frames`, a word every `word_frames`; with its last
  frame YIELD;
* the user was loud for `give_way_frames` while it speaks: GIVE_WAY, and it listens. A shorter sound (a backchannel) changes
  nothing.

Instructions that come later hold from the next answer on.

Answer number n of a conversation sounds as `engines.sim.wave` has it for `answer_name(instructions, n)` in frames, so a test finds every
sample that is lost, repeated or another's. `owns_turns: false` leaves the tokens out: the floor is then judged by
`engines.duplex_engine`, as for a model that has none. `reads_instructions: false`: a model that is told nothing. The price of a tick is slept with `real_time`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from engines.duplex_engine import (
    FULL_SCALE,
    LOUD_DBFS,
    Activity,
    AssistantFrame,
    DuplexCapabilities,
    DuplexConfig,
    SlotTable,
    TurnAction,
    level_dbfs,
)
from engines.model_store.store import ModelStore
from engines.options import Count, Within, by_type
from engines.sim.job_engine import SimulatedFault
from engines.sim.wave import expected_pcm, wave_seed

RATE = 24_000
_WORDS = "one two three four five six seven eight nine ten".split()  # noqa: SIM905 - readable


@dataclass(frozen=True, slots=True)
class DuplexOptions:
    """Faults count ticks from 1, anew in an engine that is made anew; 0: never. `hang_at_tick` hangs until `close`, or `hang_s`."""

    slots: Annotated[int, Within(1, 4096)] = 8
    frame_samples: Annotated[int, Within(24, 10 * RATE)] = 1_920
    owns_turns: bool = True
    reads_instructions: bool = True
    start_frames: Count = 2
    reply_frames: Count = 4
    give_way_frames: Count = 5
    answer_frames: Count = 25
    word_frames: Count = 4
    base_s: float = 0.0
    per_slot_s: float = 0.0
    real_time: bool = False
    throw_at_tick: int = 0
    hang_at_tick: int = 0
    hang_s: float = 60.0


def answer_name(instructions: str, number: int) -> str:
    """Whose wave answer `number` (from 1) of a conversation is."""
    return f"{instructions}#{number}"


@dataclass(slots=True)
class _Talk:
    """One conversation. `said`: frames of the running answer; -1: it listens."""

    config: DuplexConfig
    loud: int = 0
    quiet: int = 0
    heard: bool = False
    answers: int = 0
    said: int = -1
    name: str = ""
    """Whose wave the running answer is."""
    activity: Activity = field(default_factory=lambda: Activity(loud_frames=1))

    def state(self) -> dict[str, object]:
        return {
            "config": [self.config.instructions, self.config.voice], "name": self.name, "loud": self.loud, "quiet": self.quiet, "heard": self.heard,
            "answers": self.answers, "said": self.said, "activity": self.activity.state(),
        }  # fmt: skip


class SimDuplex:
    """A `DuplexEngine`."""

    def __init__(self, options: DuplexOptions) -> None:
        self.options = options
        self.capabilities = DuplexCapabilities(
            RATE,
            options.frame_samples,
            options.slots,
            owns_turns=options.owns_turns,
            can_save=True,
            reads_instructions=options.reads_instructions,
        )
        self.ticks = 0
        self._table: SlotTable[_Talk] = SlotTable(self.capabilities)
        self._closed = threading.Event()

    def load(self) -> None:
        self._closed.clear()
        self._table.clear()

    def join(self, slot: int, config: DuplexConfig) -> None:
        self._table.join(slot, _Talk(config))

    def update(self, slot: int, config: DuplexConfig) -> None:
        self._table.of(slot).config = config

    def leave(self, slot: int) -> None:
        self._table.leave(slot)

    def reset(self, slot: int) -> None:
        self._table.put(slot, _Talk(self._table.of(slot).config))

    def tick(self, frames: Mapping[int, bytes | None]) -> dict[int, AssistantFrame]:
        self._table.require(frames)
        self.ticks += 1
        self._fault()
        found = {slot: self._advance(self._table.of(slot), f) for slot, f in frames.items()}
        if self.options.real_time:
            time.sleep(self.options.base_s + self.options.per_slot_s * len(frames))
        return found

    def _fault(self) -> None:
        if self.ticks == self.options.throw_at_tick:
            raise SimulatedFault(f"tick {self.ticks} was told to throw")
        if self.ticks == self.options.hang_at_tick:
            self._closed.wait(self.options.hang_s)
            raise SimulatedFault(f"tick {self.ticks} was told to hang")

    # -- one conversation

    def _advance(self, talk: _Talk, frame: bytes | None) -> AssistantFrame:
        loud = frame is not None and _level(frame) >= LOUD_DBFS
        talk.loud = talk.loud + 1 if loud else 0
        talk.quiet = 0 if loud else talk.quiet + 1
        said = self._speak(talk) if talk.said >= 0 else self._listen(talk)
        if self.options.owns_turns:
            return said
        level = _level(said.pcm)
        return AssistantFrame(
            said.pcm, said.text, talk.activity.heard(level, bool(said.text)), said.tokens
        )

    def _listen(self, talk: _Talk) -> AssistantFrame:
        options, actions = self.options, []
        if not talk.heard and talk.loud >= options.start_frames:
            talk.heard = True
            actions.append(TurnAction.HEAR)
        if not talk.heard or talk.quiet < options.reply_frames:
            return self._silence(*actions)
        talk.heard = False
        talk.answers += 1
        talk.said = 0
        told = talk.config.instructions if options.reads_instructions else ""
        talk.name = answer_name(told, talk.answers)
        return self._speak(talk, TurnAction.TAKE)

    def _speak(self, talk: _Talk, *actions: TurnAction) -> AssistantFrame:
        options = self.options
        if talk.loud >= options.give_way_frames:
            talk.said, talk.heard = -1, True
            return self._silence(TurnAction.GIVE_WAY)
        size, at = options.frame_samples, talk.said
        seed = wave_seed(talk.name, 0)
        pcm = expected_pcm(seed, at * size, size, options.answer_frames * size, size)
        text = ""
        if at % options.word_frames == 0:
            word = _WORDS[at // options.word_frames % len(_WORDS)]
            text = word if at == 0 else f" {word}"
        talk.said += 1
        if talk.said == options.answer_frames:
            talk.said = -1
            actions = (*actions, TurnAction.YIELD)
        return AssistantFrame(pcm, text, actions, int(bool(text)))

    def _silence(self, *actions: TurnAction) -> AssistantFrame:
        return AssistantFrame(bytes(2 * self.options.frame_samples), "", actions)

    # -- states

    def save_state(self, slot: int) -> bytes:
        return json.dumps(self._table.of(slot).state()).encode()

    def load_state(self, slot: int, state: bytes) -> None:
        self._table.of(slot)
        try:
            saved = json.loads(state)
            talk = _Talk(DuplexConfig(*saved.pop("config")))
            talk.activity.restore(tuple(saved.pop("activity")))
            for name in ("name", "loud", "quiet", "heard", "answers", "said"):
                setattr(talk, name, saved[name])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a saved state: {type(error).__name__}") from error
        self._table.put(slot, talk)

    def close(self) -> None:
        """From any thread: a tick that hangs ends with a fault."""
        self._closed.set()


def _level(pcm: bytes) -> float:
    wave = np.frombuffer(pcm, "<i2").astype(np.float32) / FULL_SCALE
    return level_dbfs(float(np.mean(wave * wave)))


def create(options: Mapping[str, object], store: ModelStore) -> SimDuplex:
    return SimDuplex(by_type(options, DuplexOptions()))
