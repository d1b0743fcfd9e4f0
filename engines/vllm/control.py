"""The control channel to our scheduler in the engine's process: newest pace per answer, one call under way at a time.

Paces that come while a call is under way go together with the next, so there are never more calls than the engine takes in, and
never more words kept than there are answers. An answer that the engine does not know yet is told again a little later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

_AGAIN_S = 0.005

Call = Callable[[str, list[Any]], Awaitable[Mapping[str, Any]]]
"""(`session_pace`, changes) -> the scheduler's state."""


class ControlChannel:
    """`state` is what the scheduler said last."""

    def __init__(
        self, call: Call, is_open: Callable[[str], bool], failed: Callable[[Exception], None]
    ) -> None:
        self._call = call
        self._is_open = is_open
        self._failed = failed
        self._changes = self._known_changes = 0
        self._paces: dict[str, tuple[int | None, int]] = {}
        self._asked = False
        self._task: asyncio.Task[None] | None = None
        self.state: Mapping[str, Any] = {}

    def set_pace(self, name: str, granted: int | None, urgency_ns: int) -> None:
        self._paces[name] = (granted, urgency_ns)
        self._go()

    def drop(self, name: str) -> None:
        """The answer is over."""
        self._paces.pop(name, None)
        self.changed()

    def changed(self) -> None:
        """Something was begun or ended: `state` is old."""
        self._changes += 1

    @property
    def up_to_date(self) -> bool:
        """Whether `state` was asked for after the last change."""
        return self._known_changes == self._changes

    def ask(self) -> None:
        """Bring `state` up to date."""
        self._asked = True
        self._go()

    async def settled(self) -> None:
        """All that was to be told was told."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._paces.clear()

    def _go(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._paces or self._asked:
            sent, self._paces, self._asked = self._paces, {}, False
            changes = [[name, granted, urgency] for name, (granted, urgency) in sent.items()]
            changed = self._changes
            try:
                self.state = await self._call("session_pace", changes)
            except Exception as error:  # the engine is gone: whoever waits for it is told
                self._failed(error)
                return
            self._known_changes = changed
            unknown = [name for name in self.state.get("unknown", ()) if name in sent]
            if unknown:
                await asyncio.sleep(_AGAIN_S)
                for name in unknown:
                    if self._is_open(name):
                        self._paces.setdefault(name, sent[name])
