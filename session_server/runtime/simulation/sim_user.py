"""A simulated user with its client: asks, listens, interrupts, says "mhm", thinks, and asks again.

Event-driven: nothing happens between two instants that matter. The sound card is `player`, the acknowledgements are
those of the playback extension; a client without it drops what it has at `speech_started` and truncates. Figures that
a load run takes on the client's clock are taken here at the same instants.

    asking --last voiced sample--> waiting --first audible sample--> listening --played out--> thinking --> asking
    listening --it interrupts--> asking (the old answer is watched until it is silent)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from session_server.core import actions, events
from session_server.media import NS_PER_MS, NS_PER_S, OUTPUT_RATE, samples_to_ms
from session_server.runtime.simulation.draws import draw
from session_server.runtime.simulation.network import Path
from session_server.runtime.simulation.player import QUANTUM_NS, Heard
from session_server.runtime.simulation.records import BargeIn, Records, Turn
from session_server.runtime.simulation.sim_session import SimSession
from session_server.runtime.simulation.spec import NetworkModel, Workload
from session_server.runtime.simulation.virtual_loop import Alarm, VirtualLoop


class SimUser:
    """One user for one session; `over` is told when it has left, with the seconds until somebody takes its place."""

    def __init__(
        self,
        index: int,
        loop: VirtualLoop,
        workload: Workload,
        barge_in: float,
        network: NetworkModel,
        rng: random.Random,
        records: Records,
        seconds_per_token: float,
        input_tokens_per_s: float,
        over: Callable[[SimUser, float], None],
    ) -> None:
        self.index = index
        self.session: SimSession | None = None
        self.turn: Turn | None = None
        self.left = False
        self._loop = loop
        self._workload = workload
        self._barge_in = barge_in
        self._network = network
        self._rng = rng
        self._records = records
        self._seconds_per_token = seconds_per_token
        self._input_tokens_per_s = input_tokens_per_s
        self._over = over
        self._up = Path(network, rng)
        self._turns = 0
        self._answer_s = 0.0
        self._answers: dict[str, Heard] = {}
        self._items: dict[str, str] = {}
        self._over_ids: set[str] = set()
        self._overlapped: dict[str, tuple[Turn, BargeIn]] = {}
        self._plans: list[Alarm] = []

    @property
    def uplink(self) -> Path:
        return self._up

    # -- the user

    def on_opened(self) -> None:
        self._records.sessions_opened += 1
        self._loop.at(self._loop.time + int(self._rng.uniform(0, 1.0) * NS_PER_S), self._ask)

    def on_refused(self, retry_after_s: int) -> None:
        self._records.sessions_refused += 1
        self.left = True
        self._over(self, float(retry_after_s))

    def _ask(self, interrupting: bool = False) -> None:
        session, workload, rng = self.session, self._workload, self._rng
        if self.left or session is None:
            return
        self._forget_plans()
        now = self._loop.time
        length = draw(workload.barge_speech_s if interrupting else workload.speech_s, rng)
        answer = max(1, int(draw(workload.answer_tokens, rng)))
        prompt = workload.prompt_tokens_least + int(draw(workload.prompt_tokens, rng))
        prompt += int(length * self._input_tokens_per_s)
        self._turns += 1
        self._answer_s = answer * self._seconds_per_token
        turn = Turn(self.index, now, now + int(length * NS_PER_S), interrupting)
        self.turn = turn
        self._records.turns.append(turn)
        self._say(turn.u0, turn.u1, f"turn {self._turns} prompt {prompt} answer {answer}")

    def _say(self, begin: int, end: int, text: str) -> None:
        session = self.session
        assert session is not None
        ears = session.ears
        session.words.say(ears.position(begin), ears.position(end), text)
        ears.speak(begin, end)

    def _begin_listening(self, turn: Turn, response: str, heard: Heard) -> None:
        """The first audible sample leaves the player."""
        now = self._loop.time
        if self.turn is not turn or turn.ended or self.left or heard.first_ns != now:
            return
        turn.first_audible = now
        workload, rng = self._workload, self._rng
        length = int(self._answer_s * NS_PER_S)
        wish, where = rng.random(), rng.random()
        if wish < self._barge_in:
            self._plan(now + int(where * length), self._interrupt, turn, response)
        elif wish < self._barge_in + workload.backchannel:
            self._plan(now + int(where * length), self._nod, turn)
        leave = rng.random()
        if leave < workload.hang_up + workload.drop:
            lost = leave >= workload.hang_up
            self._plan(now + int(rng.random() * length), self._leave, 1.0 if lost else 0.0)

    def _interrupt(self, turn: Turn, response: str) -> None:
        if self.turn is not turn or turn.ended or self.left:
            return
        barge_in = BargeIn(self._loop.time)
        self._records.barge_ins.append(barge_in)
        self._overlapped[response] = (turn, barge_in)
        self._ask(interrupting=True)

    def _nod(self, turn: Turn) -> None:
        if self.turn is turn and not turn.ended and not self.left:
            self._records.backchannels += 1
            length = int(draw(self._workload.backchannel_s, self._rng) * NS_PER_S)
            self._say(self._loop.time, self._loop.time + length, "mhm")

    def _end_turn(self, turn: Turn, how: str) -> None:
        if turn.ended:
            return
        turn.ended, turn.end = how, self._loop.time
        self._forget_plans()
        if self.turn is not turn:
            return
        if self._rng.random() * self._workload.turns < 1.0 and self._workload.turns:
            self._leave(0.0)
            return
        rest = draw(self._workload.think_least_s, self._rng) + draw(
            self._workload.think_s, self._rng
        )
        self._loop.at(self._loop.time + int(rest * NS_PER_S), self._ask_after, turn)

    def _ask_after(self, turn: Turn) -> None:
        if self.turn is turn:
            self._ask()

    def _leave(self, again_s: float) -> None:
        if self.left:
            return
        self.left = True
        self._forget_plans()
        now = self._loop.time
        if self.turn is not None and not self.turn.ended:
            self.turn.ended, self.turn.end = "left", now
        for heard in self._answers.values():
            self._settle(heard, now)
        if self.session is not None:
            self._loop.at(self._up.arrives(now), self.session.close)
        self._over(self, again_s)

    def _plan(self, at: int, what: Callable[..., None], *args: object) -> None:
        self._plans.append(self._loop.at(at, what, *args))

    def _forget_plans(self) -> None:
        for plan in self._plans:
            plan.cancel()
        self._plans.clear()

    # -- what is looked at

    def lead_s(self, generated: Mapping[str, int]) -> float:
        """Audio made and not yet played of the answer under way, in seconds."""
        for response, heard in reversed(self._answers.items()):
            if not heard.flushed:
                return (generated.get(response, 0) - heard.taken(self._loop.time)) / OUTPUT_RATE
        return 0.0

    def unsettled(self) -> int:
        """Samples made for answers that are not over yet."""
        session = self.session
        if session is None:
            return 0
        return sum(made for name, made in session.generated.items() if name not in self._over_ids)

    # -- the client

    def on_audio(self, part: actions.PartAddress, samples: int) -> None:
        if self.left:
            return
        now, response = self._loop.time, part.response_id
        self._records.received_samples += samples
        heard = self._answers.get(response)
        if heard is None:
            heard = Heard(self._origin, int(self._network.preroll_ms * NS_PER_MS))
            self._answers[response] = heard
            self._items[response] = part.item_id
        if heard.flushed:
            self._records.stale_samples += samples
            return
        fresh = heard.first_ns is None
        heard.receive(samples, now)
        if fresh and heard.first_ns is not None:
            self._first_sound(part, heard)

    @property
    def _origin(self) -> int:
        """The sound card's grid: each user's own, fixed."""
        return (self.index * 7 % 20) * NS_PER_MS

    def _first_sound(self, part: actions.PartAddress, heard: Heard) -> None:
        assert heard.first_ns is not None
        turn = self.turn
        if turn is not None and not turn.ended and turn.response == part.response_id:
            self._loop.at(heard.first_ns, self._begin_listening, turn, part.response_id, heard)
        if self._network.ack_interval_ms:
            self._loop.at(heard.first_ns + QUANTUM_NS, self._acknowledge, part, heard)

    def _acknowledge(self, part: actions.PartAddress, heard: Heard) -> None:
        """One report each interval; the final one when nothing more will be played."""
        session, now = self.session, self._loop.time
        if self.left or session is None or session.closed:
            return
        played = heard.played(now)
        final = heard.complete and played >= heard.received
        ack = events.PlaybackAcked(
            part.response_id, part.item_id, part.content_index, played, heard.buffered_ms(now),
            final=final,
        )  # fmt: skip
        self._loop.at(self._up.arrives(now), session.feed, ack)
        if final:
            return
        after = self._network.ack_interval_ms * NS_PER_MS
        ends = heard.ends_ns()
        if heard.complete and ends is not None and now < ends < now + after:
            after = ends - now
        self._loop.at(now + after, self._acknowledge, part, heard)

    def on_announcement(self, action: actions.Announcement) -> None:
        if self.left:
            return
        now = self._loop.time
        match action:
            case actions.AnnounceCommitted():
                self._committed()
            case actions.AnnounceResponseCreated(response):
                self._created(response.id, now)
            case actions.AnnounceAudioDone(part):
                self._complete(part.response_id, now)
            case actions.AnnounceResponseDone(response):
                self._done(response, now)
            case actions.AnnounceSpeechStarted():
                if not self._network.ack_interval_ms:
                    for response_id in list(self._answers):
                        self._fence(response_id, now)
            case actions.AnnounceMute(response_id, _, reversible):
                if reversible:
                    self._records.ducked += 1
                    self._pause(response_id, now)
                else:
                    self._fence(response_id, now)
            case actions.AnnouncePlay(response_id):
                self._resume(response_id, now)
            case _:
                pass

    def _committed(self) -> None:
        turn, session = self.turn, self.session
        if turn is not None and session is not None and not turn.ended and turn.response is None:
            turn.decided = session.decided

    def _created(self, response: str, now: int) -> None:
        turn = self.turn
        if turn is not None and not turn.ended and turn.response is None and now >= turn.u1:
            turn.created = now
            turn.response = response

    def _complete(self, response: str, now: int) -> None:
        heard = self._answers.get(response)
        if heard is None or heard.complete:
            return
        heard.complete = True
        ends = heard.ends_ns()
        if ends is not None:
            self._loop.at(max(now, ends), self._played_out, response, heard)

    def _played_out(self, response: str, heard: Heard) -> None:
        if heard.flushed or self.left or self._answers.get(response) is not heard:
            return
        now = self._loop.time
        ends = heard.ends_ns()
        if heard.paused or (ends is not None and ends > now):
            return  # a pause moved the end; `_resume` asks again
        self._settle(heard, now)
        self._over_ids.add(response)
        turn = self._turn_of(response)
        overlap = self._overlapped.pop(response, None)
        if overlap is not None:
            overlap[1].silent = now
        del self._answers[response]
        if turn is not None:
            turn.gaps, turn.played = heard.gaps, heard.received
            self._end_turn(turn, "played")

    def _turn_of(self, response: str) -> Turn | None:
        overlap = self._overlapped.get(response)
        if overlap is not None:
            return overlap[0]
        turn = self.turn
        return turn if turn is not None and turn.response == response else None

    def _done(self, view: actions.ResponseView, now: int) -> None:
        if view.status == "cancelled":
            self._fence(view.id, now)
        elif view.status == "failed":
            self._records.failures[view.error_code or "unknown"] += 1
            self._over_ids.add(view.id)
            turn = self._turn_of(view.id)
            if turn is not None and turn.first_audible is None:
                self._end_turn(turn, "failed")
            elif turn is not None:
                self._complete(view.id, now)
        else:
            self._complete(view.id, now)
            turn = self._turn_of(view.id)
            if turn is not None and view.id not in self._answers and not turn.ended:
                self._end_turn(turn, "empty")

    def _fence(self, response: str, now: int) -> None:
        """The answer is over: drop what was not played."""
        self._over_ids.add(response)
        heard = self._answers.get(response)
        turn, overlap = self._turn_of(response), self._overlapped.pop(response, None)
        if heard is not None and not heard.flushed:
            dropped = heard.received - heard.taken(now)
            heard.flush(now)
            self._settle(heard, now)
            if not self._network.ack_interval_ms and dropped:
                self._truncate(response, heard)
        if overlap is not None:
            overlap[1].fence = now
            overlap[1].silent = now + QUANTUM_NS if heard is not None else now
        if turn is None:
            return
        if heard is not None:
            turn.gaps, turn.played = heard.gaps, heard.received
        if overlap is None and turn.first_audible is not None:
            self._records.backchannels_cut += 1
        self._end_turn(turn, "interrupted" if overlap is not None else "cut")

    def _truncate(self, response: str, heard: Heard) -> None:
        session = self.session
        if session is None or session.closed:
            return
        item = self._items.get(response)
        if item is not None:
            cut = events.ItemTruncated(item, 0, samples_to_ms(heard.received, OUTPUT_RATE))
            self._loop.at(self._up.arrives(self._loop.time), session.feed, cut)

    def _settle(self, heard: Heard, now: int) -> None:
        self._records.played_samples += heard.taken(now)

    def _pause(self, response: str, now: int) -> None:
        heard = self._answers.get(response)
        if heard is not None:
            heard.pause(now)

    def _resume(self, response: str, now: int) -> None:
        heard = self._answers.get(response)
        if heard is None or not heard.paused:
            return
        unheard = heard.first_ns is None
        heard.resume(now)
        turn = self._turn_of(response)
        if unheard and heard.first_ns is not None and turn is not None:
            self._loop.at(heard.first_ns, self._begin_listening, turn, response, heard)
        ends = heard.ends_ns()
        if heard.complete and ends is not None:
            self._loop.at(ends, self._played_out, response, heard)
