"""Virtual users in a simulation: each sits in a seat of a replica, on the virtual clock.

The counterpart of `driver_ws`: what arrives at a seat becomes an event of the user, what the user wants is done by the
seat; one alarm a user. Owns the users' records of one replica.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from engines.sim.cost_profile import Profile
from loadgen.drivers.utterances import Spelled, TokenPace
from loadgen.records import ResponseIds, UserRecord
from loadgen.users import events
from loadgen.users.intents import Acknowledge, Drop, HangUp, Intent, Say, Truncate
from loadgen.users.listener import ClientTiming
from loadgen.users.script import NEVER, DrawnScript, Script, TracedScript
from loadgen.users.user import VirtualUser
from session_server.simulation.seat import Occupant, SimulatedSeat
from session_server.simulation.spec import SimulationSpec, Workload
from session_server.simulation.virtual_loop import Alarm
from session_server.types.audio import NS_PER_MS

_AGAIN_S = 1.0
"""A user whose connection broke comes back so much later."""


class SimulatedUser:
    """One user in one seat; an `Occupant`."""

    __slots__ = ("_alarm", "_seat", "user")

    def __init__(self, seat: SimulatedSeat, user: VirtualUser) -> None:
        self.user = user
        self._seat = seat
        self._alarm: Alarm | None = None
        self._arm()

    # -- what arrives

    def opened(self, now: int) -> None:
        self._tell(events.SessionReady(), now)

    def refused(self, retry_after_s: int, now: int) -> None:
        self._tell(events.Refused(retry_after_s), now)

    def committed(self, item: str, decided: int | None, now: int) -> None:
        self._tell(events.Committed(item, decided), now)

    def speech_started(self, now: int) -> None:
        self._tell(events.SpeechStarted(), now)

    def response_created(self, response: str, now: int) -> None:
        self._tell(events.ResponseCreated(response), now)

    def audio(self, response: str, item: str, content_index: int, samples: int, now: int) -> None:
        self._tell(events.Audio(response, item, content_index, samples), now)

    def audio_done(self, item: str, now: int) -> None:
        self._tell(events.AudioComplete(item), now)

    def response_done(self, response: str, status: str, error: str | None, now: int) -> None:
        self._tell(events.ResponseDone(response, status, error), now)

    def muted(self, response: str, reversible: bool, now: int) -> None:
        self._tell(events.Muted(response, reversible), now)

    def unmuted(self, response: str, now: int) -> None:
        self._tell(events.Unmuted(response), now)

    # -- what is looked at

    def played(self, response: str, now: int) -> int | None:
        return self.user.played(response, now)

    def goes_on(self, response: str, now: int) -> bool:
        return self.user.goes_on(response, now)

    # -- between the two

    def _tell(self, event: events.UserEvent, now: int) -> None:
        intents = self.user.handle(event, now)
        if intents:
            self._do(intents)
        self._arm()

    def _ring(self) -> None:
        self._alarm = None
        now = self._seat.now
        if self.user.next_at() <= now:
            self._do(self.user.on_time(now))
        self._arm()

    def _arm(self) -> None:
        """One alarm; one that is too early is moved when it rings."""
        at, alarm = self.user.next_at(), self._alarm
        if alarm is not None:
            if alarm.at <= at:
                return
            alarm.cancel()
        self._alarm = self._seat.wake(at, self._ring) if at < NEVER else None

    def _do(self, intents: Sequence[Intent]) -> None:
        seat = self._seat
        for intent in intents:
            match intent:
                case Acknowledge():
                    seat.acknowledge(
                        intent.response,
                        intent.item,
                        intent.content_index,
                        intent.played_samples,
                        intent.buffered_ms,
                        intent.final,
                    )
                case Say(said, at):
                    seat.say(at + said.onset_ns, at + said.end_ns, str(said.clip))
                case Truncate():
                    seat.truncate(intent.item, intent.content_index, intent.audio_end_ms)
                case HangUp():
                    seat.leave(0.0)
                case Drop():
                    seat.leave(_AGAIN_S)


class SimulatedUsers:
    """Fills the seats of one replica: pass it to `Replica` as `new_occupant`."""

    def __init__(self, spec: SimulationSpec, profile: Profile) -> None:
        self.workload = workload_of(spec)
        self._pace = TokenPace(
            profile.frames_per_token * profile.unit_samples / profile.rate,
            profile.kv.input_tokens_per_s,
        )
        self._network = spec.network
        self._ids = ResponseIds()
        self._users: list[VirtualUser] = []

    def __call__(self, seat: SimulatedSeat, rng: random.Random) -> Occupant:
        network = self._network
        origin_ns = (seat.index * 7 % 20) * NS_PER_MS  # each sound card has a grid of its own
        preroll_ns = int(network.preroll_ms * NS_PER_MS)
        client = ClientTiming(origin_ns, preroll_ns, network.ack_interval_ms * NS_PER_MS)
        user = VirtualUser(seat.index, self._script(seat, rng), client, self._ids, seat.now)
        camera = self.workload.camera
        user.record.camera = camera is not None and camera.belongs_to(seat.index)
        self._users.append(user)
        return SimulatedUser(seat, user)

    def records(self) -> list[UserRecord]:
        """As they are now."""
        return [user.record for user in self._users]

    def finish(self, now: int) -> list[UserRecord]:
        return [user.finish(now) for user in self._users]

    def _script(self, seat: SimulatedSeat, rng: random.Random) -> Script:
        lines = Spelled(self.workload, self._pace, rng)
        if seat.traced is not None:
            return TracedScript(seat.traced, lines.turn, lines.nod)
        return DrawnScript(self.workload, lines, rng)


def workload_of(spec: SimulationSpec) -> Workload:
    """The workload with the spec's own barge-in, if it has one."""
    if spec.barge_in is None:
        return spec.workload
    return replace(spec.workload, barge_in=spec.barge_in)
