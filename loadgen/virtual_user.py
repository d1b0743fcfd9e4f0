"""A virtual user: asks, listens, interrupts, says "mhm", and asks again.

Pure: takes `now` and events, returns the messages to send. `tick` is called every 20 ms of the user's own
time, on the exact instants of its microphone, however late the caller really is; `receive` whenever an
event has arrived.

    connecting --session.updated--> pausing --quiet, pause over--> asking --last voiced sample--> waiting
    waiting --first audible sample--> listening --heard to the end--> pausing
    listening --it wants to interrupt--> asking (the old answer is watched until a fence falls)

An interruption is itself the next turn's question, so a user's last turn is never interrupted and the
number of turns is exact. Every state but `done` has a deadline.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.listener import Answer, Listener
from loadgen.microphone import Microphone
from loadgen.records import Backchannel, BargeIn, ResponseIds, Turn, UserRecord
from loadgen.speech import Clip
from loadgen.wire import ServerEvent, session_update
from session_server.media import NS_PER_MS, NS_PER_S

CONNECT_NS = 10 * NS_PER_S
QUIET_NS = 10 * NS_PER_S
OWN_TAIL_NS = 2500 * NS_PER_MS
"""An answer that the server stops this soon after the user's last word fell into a pause of the question."""
FIRST_GUESS_NS = 3 * NS_PER_S


class State(enum.Enum):
    CONNECTING = "connecting"
    PAUSING = "pausing"
    ASKING = "asking"
    WAITING = "waiting"
    LISTENING = "listening"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a user behaves. Probabilities are per answer; `limit_ns` bounds every wait for the server."""

    turns: int
    barge_in: float = 0.0
    backchannel: float = 0.0
    pause_ns: int = NS_PER_S
    limit_ns: int = 30 * NS_PER_S
    turn_detection: dict[str, Any] = field(default_factory=lambda: {"type": "server_vad"})
    playback: bool = False


@dataclass(frozen=True, slots=True)
class Lines:
    """What this user says, in its own order; each list is gone through again and again."""

    questions: Sequence[Clip]
    interruptions: Sequence[Clip]
    backchannels: Sequence[Clip] = ()


@dataclass(slots=True)
class _Overlap:
    """An answer that the user is speaking over."""

    turn: Turn
    answer: Answer
    barge_in: BargeIn


class VirtualUser:
    """One user of one connection."""

    def __init__(
        self,
        index: int,
        plan: Plan,
        lines: Lines,
        room: Sequence[str],
        ids: ResponseIds,
        rng: random.Random,
        now: int,
    ) -> None:
        self.record = UserRecord()
        self.state = State.CONNECTING
        self._index = index
        self._plan = plan
        self._lines = lines
        self._rng = rng
        self._microphone = Microphone(room)
        self._listener = Listener(index, self.record, ids, now, playback=plan.playback)
        self._deadline = now + CONNECT_NS
        self._next = now
        self._said = {"questions": 0, "interruptions": 0, "backchannels": 0}
        self._answer: Answer | None = None
        self._overlap: _Overlap | None = None
        self._overlaps: list[tuple[BargeIn, Answer]] = []
        self._barge_at: int | None = None
        self._nod_at: int | None = None
        self._nod: Backchannel | None = None
        self._turn_of_item: dict[str, Turn] = {}
        self._heard_ns: list[int] = []
        self._steps: dict[State, Callable[[int], None]] = {
            State.PAUSING: self._pausing,
            State.ASKING: self._asking,
            State.WAITING: self._waiting,
            State.LISTENING: self._listening,
        }

    @property
    def done(self) -> bool:
        return self.state is State.DONE

    @property
    def turns_ended(self) -> int:
        return sum(turn.ended != "" for turn in self.record.turns)

    # -- what the driver calls

    def start(self) -> list[str]:
        return [session_update(self._plan.turn_detection)]

    def tick(self, now: int) -> list[str]:
        """What to send with the microphone frame that was complete at `now`."""
        if self.state is State.CONNECTING:
            if now >= self._deadline:
                self._fail("no_session", now)
            return []
        out = self._listener.tick(now)
        if self._overlap is not None:
            self._watch_overlap(self._overlap, now)
        step = self._steps.get(self.state)
        if step is not None:
            step(now)
        out.append(self._microphone.frame())
        return out

    def receive(self, event: ServerEvent, now: int) -> list[str]:
        out = self._listener.handle(event, now)
        match event.type:
            case "session.updated" if self.state is State.CONNECTING:
                self._connected(event, now)
            case "error":
                code = event.error.code if event.error is not None else None
                self.record.errors[f"error:{code}"] += 1
            case "input_audio_buffer.committed":
                self._committed(event.item_id or "", now)
            case "response.created" if event.response is not None:
                self._created(event.response.id, now)
            case "conversation.item.input_audio_transcription.completed":
                turn = self._turn_of_item.get(event.item_id or "")
                if turn is not None:
                    turn.transcripts.append(event.transcript or "")
            case _:
                pass
        return out

    def closed(self, why: str, now: int) -> None:
        """The connection is gone; `why` goes into the errors unless the user had finished."""
        if not self.done:
            self._fail(why, now)

    def finish(self) -> UserRecord:
        """The record, with what is known only at the end."""
        answers = self._listener.answers.values()
        self.record.played_samples = sum(answer.played() for answer in answers)
        for barge_in, answer in self._overlaps:
            barge_in.duck = answer.duck if (answer.duck or 0) >= barge_in.onset else None
            barge_in.last_byte = answer.last_byte
        return self.record

    # -- states

    def _pausing(self, now: int) -> None:
        quiet = self._listener.quiet() or now >= self._deadline
        if now >= self._next and quiet:
            self._ask(self._say("questions"), now)

    def _asking(self, now: int) -> None:
        turn = self.record.turns[-1]
        if now >= turn.u1:
            self.state = State.WAITING
            self._deadline = turn.u1 + self._plan.limit_ns

    def _waiting(self, now: int) -> None:
        turn, answer = self.record.turns[-1], self._answer
        if answer is not None:
            audible = answer.first_audible()
            if audible is not None:
                self._begin_listening(turn, answer, audible, now)
                return
            if answer.over:
                self._without_audio(turn, answer, now)
            if self.state is not State.WAITING:
                return
        if now >= self._deadline:
            self.record.errors["timeout"] += 1
            self._end_turn("timeout", now)

    def _without_audio(self, turn: Turn, answer: Answer, now: int) -> None:
        """An answer is over and nothing of it was audible yet."""
        if answer.status == "failed":
            self.record.errors[f"response_failed:{answer.error}"] += 1
            self._end_turn("failed", now)
        elif answer.fence is None and self._listener.heard_out(answer):
            self.record.errors["no_audio"] += 1
            self._end_turn("empty", now)
        elif answer.fence is not None:
            turn.early_responses += answer.created >= turn.u1
            self._answer = None

    def _listening(self, now: int) -> None:
        turn, answer = self.record.turns[-1], self._answer
        assert answer is not None
        if answer.fence is not None:
            self._stopped_by_server(turn, answer, now)
        elif answer.status == "failed":
            self.record.errors[f"response_failed:{answer.error}"] += 1
            self._end_turn("failed", now)
        elif self._listener.heard_out(answer):
            self._heard_ns.append(now - (turn.first_audible or now))
            self.record.missed_barge_ins += self._barge_at is not None
            self._end_turn("played", now)
        elif self._barge_at is not None and now >= self._barge_at:
            self._interrupt(turn, answer, now)
        elif self._nod_at is not None and now >= self._nod_at:
            self._nod_at = None
            onset, _ = self._microphone.say(self._say("backchannels"), now)
            self._nod = Backchannel(self._index, answer.id, onset)
            self.record.backchannels.append(self._nod)
        elif now >= max(self._deadline, (answer.last_byte or 0) + self._plan.limit_ns):
            self.record.errors["stalled"] += 1
            self._end_turn("timeout", now)

    # -- steps between them

    def _connected(self, event: ServerEvent, now: int) -> None:
        extensions = event.session.extensions if event.session is not None else None
        if extensions is not None and extensions.playback is not None:
            self._listener.set_ack_interval(extensions.playback.ack_interval_ms)
        self._pause(now)
        self._next = now + int(self._rng.uniform(0.2, 1.0) * self._plan.pause_ns)

    def _pause(self, now: int) -> None:
        if len(self.record.turns) >= self._plan.turns:
            self.state = State.DONE
            return
        self.state = State.PAUSING
        self._next = now + int(self._rng.uniform(0.5, 1.5) * self._plan.pause_ns)
        self._deadline = self._next + QUIET_NS

    def _say(self, kind: str) -> Clip:
        clips: Sequence[Clip] = getattr(self._lines, kind)
        clip = clips[self._said[kind] % len(clips)]
        self._said[kind] += 1
        return clip

    def _ask(self, clip: Clip, now: int, *, interrupting: bool = False) -> Turn:
        u0, u1 = self._microphone.say(clip, now)
        turn = Turn(self._index, clip.text, u0, u1, interrupting)
        self.record.turns.append(turn)
        self._answer = None
        self.state = State.ASKING
        return turn

    def _committed(self, item: str, now: int) -> None:
        if self.state in (State.ASKING, State.WAITING):
            turn = self.record.turns[-1]
            turn.committed = now
            turn.commits += 1
            self._turn_of_item[item] = turn

    def _created(self, response: str, now: int) -> None:
        if self.state not in (State.ASKING, State.WAITING):
            return
        turn = self.record.turns[-1]
        if now < turn.u1:
            turn.early_responses += 1
        turn.created = now
        self._answer = self._listener.answers.get(response)

    def _begin_listening(self, turn: Turn, answer: Answer, audible: int, now: int) -> None:
        turn.first_byte = answer.first_byte
        turn.first_audible = audible
        self.state = State.LISTENING
        self._deadline = now + self._plan.limit_ns
        self._barge_at = self._nod_at = self._nod = None
        usual = sum(self._heard_ns) // len(self._heard_ns) if self._heard_ns else FIRST_GUESS_NS
        at = audible + max(300 * NS_PER_MS, int(self._rng.uniform(0.15, 0.85) * usual))
        wish = self._rng.random()
        if wish < self._plan.barge_in:
            if len(self.record.turns) < self._plan.turns:
                self._barge_at = at
        elif wish < self._plan.barge_in + self._plan.backchannel and self._lines.backchannels:
            self._nod_at = at

    def _interrupt(self, turn: Turn, answer: Answer, now: int) -> None:
        self._end_overlap(now)
        asked = self._ask(self._say("interruptions"), now, interrupting=True)
        barge_in = BargeIn(self._index, answer.id, asked.u0)
        self.record.barge_ins.append(barge_in)
        self._overlaps.append((barge_in, answer))
        self._overlap = _Overlap(turn, answer, barge_in)

    def _watch_overlap(self, overlap: _Overlap, now: int) -> None:
        answer, barge_in = overlap.answer, overlap.barge_in
        if answer.fence is not None:
            barge_in.fence, barge_in.fence_event = answer.fence, answer.fence_event
            barge_in.silent = answer.last_audible()
            self._close(overlap.turn, answer, "interrupted", now)
        elif self._listener.heard_out(answer):
            barge_in.answer_ended = True
            self._close(overlap.turn, answer, "played", now)
        else:
            return
        self._overlap = None

    def _stopped_by_server(self, turn: Turn, answer: Answer, now: int) -> None:
        assert answer.fence is not None
        if self._nod is not None and answer.fence >= self._nod.onset:
            self._nod.cut = True
        elif answer.fence - turn.u1 < OWN_TAIL_NS:
            turn.early_responses += answer.created >= turn.u1
            turn.first_audible = None
            self._answer = None
            self.state = State.WAITING
            return
        self._end_turn("cut", now)

    def _end_turn(self, ended: str, now: int) -> None:
        self._end_overlap(now)
        if self._nod is not None and self._answer is not None:
            self._nod.ducked = (self._answer.duck or 0) >= self._nod.onset
        self._close(self.record.turns[-1], self._answer, ended, now)
        self._pause(now)

    def _end_overlap(self, now: int) -> None:
        """Give up on an interrupted answer that went on all the same."""
        if self._overlap is not None:
            self._close(self._overlap.turn, self._overlap.answer, "ignored", now)
            self._overlap = None

    def _close(self, turn: Turn, answer: Answer | None, ended: str, now: int) -> None:
        turn.ended = ended
        turn.end = now
        if answer is not None:
            turn.gaps = answer.gaps()
            turn.received = answer.received()
            turn.played = answer.played()

    def _fail(self, why: str, now: int) -> None:
        self.record.errors[why] += 1
        self._end_overlap(now)
        if self.record.turns and not self.record.turns[-1].ended:
            self._close(self.record.turns[-1], self._answer, "closed", now)
        self.state = State.DONE
