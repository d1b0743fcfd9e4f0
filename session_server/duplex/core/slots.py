"""Which session has which slot of a duplex model, who gives one up, and who waits for one. No clock, no engine: values only.

A session is SEATED (it has a slot), RESTING (its state is saved, or is to be; it has none), or WAITING (it has something to say
and no slot). Rules:

* A slot is kept until somebody needs it. It is taken from a seated session that is idle: the model has not the floor, and for
  `rest_after` neither the user nor the model said anything. Of several the one that has been idle longest.
* A newcomer is admitted only where a slot is free or may be taken, never to wait. Waiting sessions come before newcomers.
* A resting session that speaks is seated at once, or waits its turn: first come, first served, and no longer than `wait_limit`;
  then it rests again, and is told.

Without `rest_after` nobody gives up a slot, and there are no more sessions than slots. Instants and spans: nanoseconds.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from session_server.types.audio import Value


class SeatState(enum.Enum):
    SEATED = "seated"
    RESTING = "resting"
    WAITING = "waiting"


class GiveUp(Value, frozen=True):
    """Its state is to be saved, and its slot is another's from then on."""

    session: str


class SitDown(Value, frozen=True):
    """It goes on in this slot. `waited`: for how long it wanted one."""

    session: str
    slot: int
    waited: int


class GivenUpOn(Value, frozen=True):
    """No slot came free in time: it rests again."""

    session: str


Move = GiveUp | SitDown | GivenUpOn
"""To be carried out in their order."""


@dataclass(slots=True)
class _Guest:
    session: str
    slot: int | None
    active: int
    """Since when it has been idle, if it is."""
    speaks: bool = False
    """The model has the floor."""
    waits_since: int | None = None

    @property
    def place(self) -> SeatState:
        if self.slot is not None:
            return SeatState.SEATED
        return SeatState.RESTING if self.waits_since is None else SeatState.WAITING


class DuplexSeating:
    """`slots` may be set later, when the model is known. `rest_after` None: slots are kept."""

    def __init__(self, most: int, rest_after: int | None, wait_limit: int) -> None:
        self.slots = 0
        self._most = most
        self._rest_after = rest_after
        self._wait_limit = wait_limit
        self._guests: dict[str, _Guest] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def slot(self, session: str) -> int | None:
        """Its slot; None: it rests or waits, or is not here."""
        guest = self._guests.get(session)
        return None if guest is None else guest.slot

    def place(self, session: str) -> SeatState:
        return self._guests[session].place

    @property
    def taken(self) -> int:
        """Slots that somebody has."""
        return sum(guest.slot is not None for guest in self._guests.values())

    def places(self) -> Counter[SeatState]:
        return Counter(guest.place for guest in self._guests.values())

    # -- coming and going

    def refusal(self, now: int) -> str | None:
        """Why a newcomer cannot come in now; None: it can."""
        most = self._most if self._rest_after is not None else min(self._most, self.slots)
        if len(self._guests) >= most:
            what = "slots of the duplex model" if most <= self.slots else "places for sessions"
            return f"all {most} {what} are taken"
        if self._free() is not None:
            return None
        if self._next_waiting() is None and self._idlest(now) is not None:
            return None
        return f"all {self.slots} slots of the duplex model are taken, and all are in use"

    def admit(self, session: str, now: int) -> list[Move]:
        """A newcomer gets a slot, which `refusal` has just said there is; the slot's last session may have to give it up."""
        moves, slot = self._room(now)
        assert slot is not None
        self._guests[session] = _Guest(session, slot, now)
        return moves

    def leave(self, session: str, now: int) -> list[Move]:
        """It is gone; its slot may be what another waits for. Idempotent."""
        self._guests.pop(session, None)
        return self.settle(now)

    # -- what happens to them

    def heard(self, session: str, now: int) -> list[Move]:
        """Its user says something."""
        guest = self._guests[session]
        guest.active = now
        if guest.place is not SeatState.RESTING:
            return []
        guest.waits_since = now
        return self.settle(now)

    def spoke(self, session: str, speaks: bool, now: int) -> None:
        """The model has the floor of this conversation, or has it not any more."""
        guest = self._guests[session]
        if speaks or guest.speaks:
            guest.active = now
        guest.speaks = speaks

    def begun_anew(self, session: str, now: int) -> None:
        """Its conversation was lost: it begins afresh, where it is."""
        guest = self._guests[session]
        guest.active, guest.speaks = now, False

    def settle(self, now: int) -> list[Move]:
        """Seat those who wait, as far as there is room; give up on those who waited too long."""
        moves: list[Move] = []
        for guest in self._waiting():
            since = guest.waits_since
            assert since is not None
            found, slot = self._room(now)
            if slot is not None:
                guest.slot, guest.waits_since, guest.active = slot, None, now
                moves += [*found, SitDown(guest.session, slot, now - since)]
            elif now - since >= self._wait_limit:
                guest.waits_since = None
                moves.append(GivenUpOn(guest.session))
        return moves

    # -- slots

    def _waiting(self) -> list[_Guest]:
        waiting = [guest for guest in self._guests.values() if guest.waits_since is not None]
        return sorted(waiting, key=lambda guest: guest.waits_since or 0)

    def _next_waiting(self) -> _Guest | None:
        return next(iter(self._waiting()), None)

    def _room(self, now: int) -> tuple[list[Move], int | None]:
        """A slot, and what has to be done before it is free; None: there is none."""
        free = self._free()
        if free is not None:
            return [], free
        idle = self._idlest(now)
        if idle is None:
            return [], None
        slot, idle.slot = idle.slot, None
        return [GiveUp(idle.session)], slot

    def _free(self) -> int | None:
        taken = {guest.slot for guest in self._guests.values()}
        return next((slot for slot in range(self.slots) if slot not in taken), None)

    def _idlest(self, now: int) -> _Guest | None:
        return min(self._idle(now), key=lambda guest: guest.active, default=None)

    def _idle(self, now: int) -> Iterator[_Guest]:
        if self._rest_after is None:
            return
        for guest in self._guests.values():
            if (
                guest.slot is not None
                and not guest.speaks
                and now - guest.active >= self._rest_after
            ):
                yield guest
