"""Pacing inside vLLM's scheduler: how far each answer may go, and which take part in a step.

Runs in an engine's process. `Paced` is a mixin, before the scheduler of vLLM's kind; it owns the
answers by name, their grants, and which are held. A pace is a name, a grant and a third word, whose
meaning each scheduler of ours says itself.

`Selection` is a rule of numbers alone. `slots` answers take part at most. Those at their grant are
held and do not. When more want to run than there are slots, the most urgent do: one that waits
takes the place of the least urgent that runs, which is parked (its state kept) until it is among
the most urgent again.

Invariants: names of ours begin with `paced`, so that none hides one of vLLM's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from engines.vllm.internals import Core, Request, Whatever

_Scheduler: Any = object
"""What comes behind it is vLLM's, and known only there."""


class Paced(_Scheduler):  # type: ignore[misc]
    """Keeps a grant per paced answer."""

    running: list[Request]

    def __init__(self, *args: Whatever, **kwargs: Whatever) -> None:
        super().__init__(*args, **kwargs)
        self._paced_named: dict[str, Request] = {}
        self._paced_granted: dict[str, int | None] = {}
        self.paced_steps = 0

    # -- what vLLM calls

    def add_request(self, request: Request) -> None:
        pace = _pace_of(request)
        if pace is not None and request.request_id not in self.requests:
            name, granted, third = pace
            self._paced_named[name] = request
            self._paced_granted[request.request_id] = granted
            self._paced_comes(request, granted, third)
        super().add_request(request)

    def get_num_unfinished_requests(self) -> int:
        """Without the held ones, so that the engine sleeps when there are no others."""
        count: int = super().get_num_unfinished_requests()
        return max(0, count - self._paced_held_count()) if count else 0

    def _free_request(self, request: Request, *args: Whatever, **kwargs: Whatever) -> Whatever:
        self._paced_granted.pop(request.request_id, None)
        self._paced_goes(request)
        pace = _pace_of(request)
        if pace is not None and self._paced_named.get(pace[0]) is request:
            del self._paced_named[pace[0]]
        return super()._free_request(request, *args, **kwargs)

    # -- what we tell

    def paced_pace(self, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """`changes`: (name, granted, third word) each. Answers with the state, and with names that are not here (yet)."""
        unknown = []
        for name, granted, third in changes:
            request = self._paced_named.get(name)
            if request is None:
                unknown.append(name)
                continue
            self._paced_granted[request.request_id] = granted
            self._paced_told(request, granted, third)
        return {"unknown": unknown, **self.paced_state()}

    # -- what a scheduler of ours says

    @abstractmethod
    def paced_state(self) -> dict[str, Any]:
        """What it counts."""

    @abstractmethod
    def _paced_comes(self, request: Request, granted: int | None, third: int) -> None:
        """A paced answer is about to be added."""

    @abstractmethod
    def _paced_told(self, request: Request, granted: int | None, third: int) -> None:
        """Its pace has changed; the grant is noted already."""

    @abstractmethod
    def _paced_goes(self, request: Request) -> None:
        """It is over, paced or not."""

    # -- within

    def _paced_is_held(self, request: Request) -> bool:
        granted = self._paced_granted.get(request.request_id)
        made = request.num_output_tokens + request.num_output_placeholders
        return granted is not None and made >= granted

    def _paced_held_count(self) -> int:
        return sum(map(self._paced_is_held, self.running)) + sum(
            map(self._paced_is_held, self.waiting)
        )


def _pace_of(request: Request) -> Sequence[Any] | None:
    """The pace that the answer came with, its name first; None: it is none of ours."""
    extra = getattr(request.sampling_params, "extra_args", None) or {}
    pace: Sequence[Any] | None = extra.get("pace")
    return pace


def session_pace(core: Core, changes: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The control channel's one word, as a method of the core: paces, and the scheduler's state in return."""
    answer: dict[str, Any] = core.scheduler.paced_pace(changes)
    return answer


class RankedRequest(NamedTuple):
    """An answer; a smaller `urgency` is sooner."""

    name: str
    urgency: int
    held: bool


class Selection(NamedTuple):
    """`active`: running answers that take part; the other places are for those that wait. `parked`: how many could run and
    are left out."""

    active: frozenset[str]
    parked: int


def select(
    running: Sequence[RankedRequest], waiting: Sequence[RankedRequest], slots: int
) -> Selection:
    """Ties go to the one that runs already: nobody is parked for one that is not more urgent."""
    ready = [c for c in running if not c.held]
    queue = [c for c in waiting if not c.held]
    first = sorted(ready + queue, key=lambda c: c.urgency)[:slots]  # a stable sort keeps the ties
    active = frozenset(c.name for c in ready) & {c.name for c in first}
    return Selection(active, len(ready) - len(active))
