"""What one user writes down of its session: turns, interruptions, noises, and what became of each.

Owns the record. The state machine says what happens; nothing here decides. Instants are nanoseconds of the driver.
"""

from __future__ import annotations

from loadgen.records import Backchannel, BargeIn, FalseStart, Turn, UserRecord
from loadgen.users.events import Committed, Transcribed
from loadgen.users.listener import Answer, Listener
from loadgen.users.script import NEVER


class _Overlap:
    """An answer that the user speaks over. `barge_in` None: it only begins a little before the end."""

    __slots__ = ("answer", "barge_in", "turn")

    def __init__(self, turn: Turn, answer: Answer, barge_in: BargeIn | None) -> None:
        self.turn = turn
        self.answer = answer
        self.barge_in = barge_in


class Notes:
    """One session's record in the making."""

    __slots__ = (
        "_heard_ns", "_heard_turns", "_index", "_listener", "_nod", "_noise", "_overlap", "_overlaps", "_turn_of_item",
        "record",
    )  # fmt: skip

    def __init__(self, index: int, record: UserRecord, listener: Listener) -> None:
        self.record = record
        self._index = index
        self._listener = listener
        self._nod: Backchannel | None = None
        self._noise: FalseStart | None = None
        self._overlap: _Overlap | None = None
        self._overlaps: list[tuple[BargeIn, Answer]] = []
        self._turn_of_item: dict[str, Turn] = {}
        self._heard_ns = self._heard_turns = 0

    @property
    def turn(self) -> Turn:
        return self.record.turns[-1]

    # -- turns

    def asked(self, text: str | None, u0: int, u1: int, interrupting: bool) -> Turn:
        turn = Turn(self._index, text, u0, u1, interrupting)
        self.record.turns.append(turn)
        self._nod = self._noise = None
        return turn

    def committed(self, event: Committed, now: int) -> None:
        turn = self.turn
        turn.decided = now if event.decided is None else event.decided
        turn.commits += 1
        self._turn_of_item[event.item] = turn

    def transcribed(self, event: Transcribed, now: int) -> None:
        turn = self._turn_of_item.get(event.item)
        if turn is not None:
            turn.transcripts.append(event.text)

    def heard_to_the_end(self, now: int) -> None:
        self._heard_ns += now - (self.turn.first_audible or now)
        self._heard_turns += 1

    def usual_answer_ns(self, guess_ns: int) -> int:
        """How long answers have been so far."""
        return self._heard_ns // self._heard_turns if self._heard_turns else guess_ns

    def close(self, answer: Answer | None, ended: str, now: int) -> None:
        """The latest turn is over."""
        self._close(self.turn, answer, ended, now)

    def leave(self, answer: Answer | None, ended: str, now: int) -> None:
        """The session is over, in whatever turn it is."""
        self.give_up(now)
        if self.record.turns and not self.turn.ended:
            self._close(self.turn, answer, ended, now)

    def finish(self, answer: Answer | None, now: int) -> UserRecord:
        """The record, with what is known only at the end. `answer`: that the user waits for or hears; its turn stays open, and
        counts with what was heard of it."""
        listener = self._listener
        if answer is not None and self.record.turns and not self.turn.ended:
            self._heard(self.turn, answer, now)
        if self._overlap is not None:
            self._heard(self._overlap.turn, self._overlap.answer, now)
        answers = listener.answers.values()
        self.record.played_samples = sum(listener.played(answer, now) for answer in answers)
        for barge_in, answer in self._overlaps:
            barge_in.duck = answer.duck if (answer.duck or 0) >= barge_in.onset else None
            barge_in.last_byte = answer.last_byte
        return self.record

    def _close(self, turn: Turn, answer: Answer | None, ended: str, now: int) -> None:
        turn.ended = ended
        turn.end = now
        if answer is not None:
            self._heard(turn, answer, now)

    def _heard(self, turn: Turn, answer: Answer, now: int) -> None:
        self._note_duck(answer)
        turn.gaps = answer.gaps()
        turn.received = answer.received()
        turn.played = self._listener.played(answer, now)

    # -- sounds that mean nothing

    def said_mhm(self, answer: Answer, onset: int) -> None:
        self._note_duck(answer)
        self._nod = Backchannel(self._index, answer.id, onset)
        self.record.backchannels.append(self._nod)

    def made_noise(self, answer: Answer | None, onset: int) -> None:
        self._noise = FalseStart(self._index, onset, answer.id if answer is not None else None)
        self.record.false_starts.append(self._noise)

    def noise_answered(self) -> None:
        if self._noise is not None:
            self._noise.answered = True

    def blame(self, answer: Answer) -> bool:
        """The server has stopped this answer: because of such a sound?"""
        fence, nod, noise = answer.fence or 0, self._nod, self._noise
        if nod is not None and fence >= nod.onset:
            nod.cut = True
            return True
        if noise is not None and noise.response == answer.id and fence >= noise.onset:
            noise.cut = True
            return True
        return False

    def _note_duck(self, answer: Answer) -> None:
        if self._nod is not None and self._nod.response == answer.id:
            self._nod.ducked = (answer.duck or 0) >= self._nod.onset

    # -- answers that the user speaks over

    def speaks_over(self, turn: Turn, answer: Answer, onset: int, *, interrupting: bool) -> None:
        barge_in = BargeIn(self._index, answer.id, onset) if interrupting else None
        if barge_in is not None:
            self.record.barge_ins.append(barge_in)
            self._overlaps.append((barge_in, answer))
        self._overlap = _Overlap(turn, answer, barge_in)

    def watch(self, now: int) -> None:
        """Has the answer that the user speaks over come to an end?"""
        overlap = self._overlap
        if overlap is None:
            return
        answer, barge_in = overlap.answer, overlap.barge_in
        if answer.fence is not None:
            if barge_in is not None:
                barge_in.fence, barge_in.fence_event = answer.fence, answer.fence_event
                barge_in.silent = self._listener.last_audible(answer, now)
            self._close(overlap.turn, answer, "interrupted", now)
        elif self._listener.heard_out(answer, now):
            if barge_in is not None:
                barge_in.answer_ended = True
            self._close(overlap.turn, answer, "played", now)
        else:
            return
        self._overlap = None

    def give_up(self, now: int) -> None:
        """It went on all the same."""
        if self._overlap is not None:
            self._close(self._overlap.turn, self._overlap.answer, "ignored", now)
            self._overlap = None

    def overlap_ends_at(self) -> int:
        return (
            self._listener.heard_out_at(self._overlap.answer)
            if self._overlap is not None
            else NEVER
        )
