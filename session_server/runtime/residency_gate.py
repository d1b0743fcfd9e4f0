"""What stands between a stage's jobs and their engine state: a job starts once its session's state is in the engine.

`OpenGate` lets everything through: for stages whose engine keeps nothing between jobs, or cannot move it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from engines.base import Capabilities, JobKey
from session_server.runtime.state_calls import MovedState
from session_server.scheduler.work import WorkItem


class StateGate(Protocol):
    """Told by a stage's runner what happens to its jobs. All calls are on the event loop's thread."""

    @property
    def waiting(self) -> bool:
        """Jobs wait for room in the engine, or soon will: whoever holds some should be done with it."""
        ...

    def may_start(self, item: WorkItem, job: object) -> bool:
        """Whether this job, which has no engine state yet, may start. If not, the runner hears of it by `ready`."""
        ...

    def granted(self, key: JobKey) -> bool:
        """Whether the job has its room."""
        ...

    def hold(self, key: JobKey) -> None:
        """The job shall not start for now."""
        ...

    def over(self, key: JobKey) -> None:
        """The job is gone."""
        ...

    def moved(self, moves: Sequence[MovedState], sizes: Mapping[str, int]) -> None:
        """What the engine's thread did."""
        ...

    def engine_loaded(self, capabilities: Capabilities) -> None: ...

    def engine_lost(self) -> None:
        """All that the engine held is gone."""
        ...


class OpenGate:
    """Nothing waits for state."""

    waiting = False

    def may_start(self, item: WorkItem, job: object) -> bool:
        return True

    def granted(self, key: JobKey) -> bool:
        return False

    def hold(self, key: JobKey) -> None:
        pass

    def over(self, key: JobKey) -> None:
        pass

    def moved(self, moves: Sequence[MovedState], sizes: Mapping[str, int]) -> None:
        pass

    def engine_loaded(self, capabilities: Capabilities) -> None:
        pass

    def engine_lost(self) -> None:
        pass
