"""A virtual user: asks, listens, interrupts, says "mhm", thinks, asks again, hangs up.

Pure and event-driven: `handle(event, now)` takes what the server said, `on_time(now)` is due at `next_at()`; both return
what the user wants done. A driver whose microphone has frames calls `on_time` on the instants of its frames, however
late it really is; the user begins to speak only there.

    connecting --session ready--> pausing --quiet, pause over--> asking --last voiced sample--> waiting
    waiting --first audible sample--> listening --heard to the end--> pausing
    listening --it wants to interrupt--> asking (the old answer is watched until a fence falls)

An interruption is itself the next turn's question, so with an exact number of turns the last is never interrupted. Every state
but `done` has a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from loadgen.records import ResponseIds, Turn, UserRecord
from loadgen.users import events
from loadgen.users.intents import Drop, HangUp, Intent, Kind, Say, ScriptedUtterance
from loadgen.users.listener import Answer, ClientTiming, Listener
from loadgen.users.notes import Notes
from loadgen.users.player import QUANTUM_NS
from loadgen.users.script import (
    CONNECT_NS,
    FIRST_GUESS_NS,
    NEVER,
    OWN_TAIL_NS,
    QUIET_NS,
    AnswerPlan,
    Script,
    State,
    Wishes,
)
from session_server.types.audio import NS_PER_MS

_PAUSING, _ASKING, _WAITING = State.PAUSING, State.ASKING, State.WAITING
_LISTENING, _DONE = State.LISTENING, State.DONE


class VirtualUser:
    """One user of one connection. `ids` are shared by all users of a server."""

    __slots__ = (
        "_answer", "_answer_ns", "_cap_at", "_deadline", "_due", "_ended_at", "_listener", "_next", "_noise_at",
        "_notes", "_out", "_plan", "_reactions", "_script", "_voice_ends", "record", "state",
    )  # fmt: skip

    def __init__(
        self, index: int, script: Script, client: ClientTiming, ids: ResponseIds, now: int
    ) -> None:
        self.record = UserRecord()
        self.state = State.CONNECTING
        self._script = script
        self._listener = Listener(index, self.record, ids, client)
        self._notes = Notes(index, self.record, self._listener)
        self._deadline = self._due = now + CONNECT_NS
        self._next = self._voice_ends = now
        self._cap_at = self._noise_at = self._ended_at = NEVER
        self._answer: Answer | None = None
        self._answer_ns: int | None = None
        self._plan = AnswerPlan(Wishes(), now, asks=False)
        self._out: list[Intent] = []
        self._reactions = self._all_reactions()

    @property
    def done(self) -> bool:
        return self.state is _DONE

    @property
    def turns_ended(self) -> int:
        return sum(turn.ended != "" for turn in self.record.turns)

    # -- what the driver calls

    def next_at(self) -> int:
        """When `on_time` is due; NEVER once the user is done."""
        return min(self._due, self._listener.next_at())

    def on_time(self, now: int) -> Sequence[Intent]:
        """The time has come, or is a little past."""
        if self.state is _DONE:
            return ()
        out = self._listener.report(now)
        if now >= self._due:
            self._review(now)
            self._act(now)
            self._reckon(now)
            if self._out:
                out += self._out
                self._out = []
        return out

    def handle(self, event: events.UserEvent, now: int) -> Sequence[Intent]:
        if self.state is _DONE:
            return ()
        if type(event) is events.Audio:
            answer = self._listener.audio(event, now)
            if answer is not None and answer is self._answer and self.state is _WAITING:
                self._due = min(self._due, self._listener.sounds_at(answer))
            return ()
        out = self._reactions[type(event)](event, now) or ()
        self._review(now)
        self._reckon(now)
        if self._out:
            out = [*out, *self._out]
            self._out = []
        return out

    def finish(self, now: int) -> UserRecord:
        """The record, with what is known only at the end."""
        return self._notes.finish(self._answer, min(now, self._ended_at))

    def played(self, response: str, now: int) -> int | None:
        """Samples of it that the sound card has taken; None for an answer that was never begun here."""
        answer = self._listener.answers.get(response)
        return None if answer is None else self._listener.played(answer, min(now, self._ended_at))

    def goes_on(self, response: str, now: int) -> bool:
        """Some of it may yet be played."""
        answer = self._listener.answers.get(response)
        if answer is None or self.done or answer.fence is not None or answer.status == "failed":
            return False
        return not self._listener.heard_out(answer, now)

    # -- what the server said

    def _all_reactions(self) -> dict[type, Callable[[Any, int], Sequence[Intent] | None]]:
        listener, notes = self._listener, self._notes
        return {
            events.SessionReady: self._ready,
            events.Refused: self._refused,
            events.Committed: self._committed,
            events.ResponseCreated: self._created,
            events.AudioComplete: listener.audio_complete,
            events.ResponseDone: listener.done,
            events.ResponseNamed: listener.named,
            events.Muted: listener.muted,
            events.Unmuted: listener.unmuted,
            events.Cleared: listener.cleared,
            events.SpeechStarted: listener.speech_started,
            events.Transcribed: notes.transcribed,
            events.Failed: self._failed,
            events.Closed: lambda event, now: self._fail(event.why, now),
        }

    def _ready(self, event: events.SessionReady, now: int) -> None:
        if self.state is not State.CONNECTING:
            return
        self.record.sessions_opened += 1
        if event.ack_interval_ms is not None:
            self._listener.set_ack_interval(event.ack_interval_ms * NS_PER_MS)
        if self._script.call_ns:
            self._cap_at = now + self._script.call_ns
        self._noise_at = now + self._script.noise_apart_ns()
        self._pause(now, self._script.opening_ns())

    def _refused(self, event: events.Refused, now: int) -> None:
        self.record.sessions_refused += 1
        self._finish(now)

    def _committed(self, event: events.Committed, now: int) -> None:
        if self.state in (_ASKING, _WAITING):
            self._notes.committed(event, now)

    def _created(self, event: events.ResponseCreated, now: int) -> None:
        self._listener.created(event, now)
        if self.state is _PAUSING:
            self._notes.noise_answered()
        if self.state not in (_ASKING, _WAITING):
            return
        turn = self._notes.turn
        if now < turn.u1:
            turn.early_responses += 1
        turn.created = now
        self._answer = self._listener.answers[event.response]

    def _failed(self, event: events.Failed, now: int) -> None:
        self.record.errors[f"error:{event.code}"] += 1

    # -- what that means

    def _review(self, now: int) -> None:
        """See what has become of the answers."""
        self._notes.watch(now)
        if self.state is _WAITING:
            self._waiting(now)
        elif self.state is _LISTENING:
            self._listening(now)

    def _waiting(self, now: int) -> None:
        answer = self._answer
        if answer is None:
            return
        turn = self._notes.turn
        audible = self._listener.first_audible(answer, now)
        if audible is not None:
            self._begin_listening(turn, answer, audible, now)
        elif answer.status == "failed":
            self._answer_failed(answer, now)
        elif answer.fence is not None:
            turn.early_responses += answer.created >= turn.u1
            self._answer = None
        elif self._listener.heard_out(answer, now):
            self.record.errors["no_audio"] += 1
            self._end_turn("empty", now)

    def _begin_listening(self, turn: Turn, answer: Answer, audible: int, now: int) -> None:
        turn.first_byte = answer.first_byte
        turn.first_audible = audible
        self.state = State.LISTENING
        self._deadline = now + self._script.limit_ns
        length = self._answer_ns
        if length is None:
            length = self._notes.usual_answer_ns(FIRST_GUESS_NS)
        wishes = self._script.wishes(length)
        self._plan = AnswerPlan(wishes, audible, asks=self._may_ask())

    def _listening(self, now: int) -> None:
        answer = self._answer
        assert answer is not None
        if answer.fence is not None:
            self._stopped_by_server(answer, answer.fence, now)
        elif answer.status == "failed":
            self._answer_failed(answer, now)
        elif self._listener.heard_out(answer, now):
            self._notes.heard_to_the_end(now)
            self.record.missed_barge_ins += self._plan.interrupt_at < NEVER
            self._end_turn("played", now)

    def _answer_failed(self, answer: Answer, now: int) -> None:
        self.record.errors[f"response_failed:{answer.error}"] += 1
        self._end_turn("failed", now)

    def _stopped_by_server(self, answer: Answer, fence: int, now: int) -> None:
        turn = self._notes.turn
        if not self._notes.blame(answer) and fence - turn.u1 < OWN_TAIL_NS:
            turn.early_responses += answer.created >= turn.u1
            turn.first_audible = None
            self._answer = None
            self.state = State.WAITING
            self._deadline = now + self._script.limit_ns
            return
        self._end_turn("cut", now)

    # -- what the user does of itself; only in `on_time`

    def _act(self, now: int) -> None:
        if now >= self._cap_at:
            self._go(now, lost=False)
            return
        if now >= self._noise_at:
            self._make_noise(now)
        match self.state:
            case State.CONNECTING if now >= self._deadline:
                self._fail("no_session", now)
            case State.PAUSING if now >= max(self._next, self._voice_ends):
                if self._listener.quiet(now) or now >= self._deadline:
                    self._ask(Kind.QUESTION, now)
            case State.ASKING if now >= self._notes.turn.u1:
                self.state = State.WAITING
                self._deadline = self._notes.turn.u1 + self._script.limit_ns
                self._waiting(now)
            case State.WAITING if now >= self._deadline:
                self.record.errors["timeout"] += 1
                self._end_turn("timeout", now)
            case State.LISTENING:
                self._while_listening(now)
            case _:
                pass

    def _while_listening(self, now: int) -> None:
        answer, plan = self._answer, self._plan
        assert answer is not None
        if now >= plan.leave_at:
            self._go(now, lost=plan.lost)
        elif now >= plan.interrupt_at:
            plan.interrupt_at = NEVER
            self._speak_over(answer, Kind.INTERRUPTION, now)
        elif now >= self._early_at(answer):
            plan.early_ns = 0
            self._speak_over(answer, Kind.QUESTION, now)
        elif plan.nods and now >= plan.nods[0][0]:
            self._say_mhm(answer, now)
        elif now >= self._stalled_at(answer):
            self.record.errors["stalled"] += 1
            self._end_turn("timeout", now)

    def _early_at(self, answer: Answer) -> int:
        """A little before the answer's end, once that is known."""
        early_ns = self._plan.early_ns
        return self._listener.heard_out_at(answer) - early_ns if early_ns else NEVER

    def _stalled_at(self, answer: Answer) -> int:
        return max(self._deadline, (answer.last_byte or 0) + self._script.limit_ns)

    def _speak_over(self, answer: Answer, kind: Kind, now: int) -> None:
        turn = self._notes.turn
        self._notes.give_up(now)
        asked = self._ask(kind, now)
        if asked is not None:
            over = kind is Kind.INTERRUPTION
            self._notes.speaks_over(turn, answer, asked.u0, interrupting=over)

    def _ask(self, kind: Kind, now: int) -> Turn | None:
        utterance = self._say(kind, now)
        if utterance is None:
            return None
        self._answer = None
        self._answer_ns = utterance.answer_ns
        self.state = State.ASKING
        onset, interrupting = now + utterance.onset_ns, kind is Kind.INTERRUPTION
        return self._notes.asked(utterance.text, onset, self._voice_ends, interrupting)

    def _say(self, kind: Kind, now: int, length_ns: int | None = None) -> ScriptedUtterance | None:
        utterance = self._script.utterance(kind, length_ns)
        if utterance is not None:
            self._voice_ends = now + utterance.end_ns
            self._out.append(Say(utterance, now))
        return utterance

    def _say_mhm(self, answer: Answer, now: int) -> None:
        _, length_ns = self._plan.nods.popleft()
        if now < self._voice_ends:
            return
        utterance = self._say(Kind.BACKCHANNEL, now, length_ns)
        if utterance is not None:
            self._notes.said_mhm(answer, now + utterance.onset_ns)

    def _make_noise(self, now: int) -> None:
        self._noise_at = now + self._script.noise_apart_ns()
        silent = self.state in (_PAUSING, _WAITING, _LISTENING)
        utterance = self._say(Kind.FALSE_START, now) if silent and now >= self._voice_ends else None
        if utterance is not None:
            heard = self._answer if self.state is _LISTENING else None
            self._notes.made_noise(heard, now + utterance.onset_ns)

    # -- how turns and sessions end

    def _end_turn(self, ended: str, now: int) -> None:
        self._notes.give_up(now)
        self._notes.close(self._answer, ended, now)
        pause_ns = self._script.pause_ns() if self._may_ask() else None
        if pause_ns is not None:
            self._pause(now, pause_ns)
            return
        self._out += self._listener.report(now)
        self._go(now, lost=False)

    def _may_ask(self) -> bool:
        return not self._script.turns or len(self.record.turns) < self._script.turns

    def _pause(self, now: int, pause_ns: int) -> None:
        self.state = State.PAUSING
        self._next = now + pause_ns
        self._deadline = self._next + QUIET_NS

    def _go(self, now: int, *, lost: bool) -> None:
        self._out.append(Drop() if lost else HangUp())
        self._notes.leave(self._answer, "left", now)
        self._finish(now)

    def _fail(self, why: str, now: int) -> None:
        self.record.errors[why] += 1
        self._notes.leave(self._answer, "closed", now)
        self._finish(now)

    def _finish(self, now: int) -> None:
        self.state = State.DONE
        self._ended_at = now
        self._listener.stop()

    # -- time

    def _reckon(self, now: int) -> None:
        """When something is to be done next."""
        state, answer, listener = self.state, self._answer, self._listener
        due = self._deadline
        if state is _DONE:
            self._due = NEVER
            return
        if state is _PAUSING:
            due = max(self._next, self._voice_ends)
            if due <= now and not listener.quiet(now):
                due = min(now + QUANTUM_NS, self._deadline)
        elif state is _ASKING:
            due = self._notes.turn.u1
        elif answer is not None:
            ends = listener.heard_out_at(answer)
            if state is _WAITING:
                due = min(ends, self._deadline, listener.sounds_at(answer))
            else:
                due = min(self._plan.next_at(ends), self._stalled_at(answer))
        self._due = min(due, self._noise_at, self._cap_at, self._notes.overlap_ends_at())
