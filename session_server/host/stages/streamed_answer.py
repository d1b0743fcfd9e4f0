"""One answer of an engine that schedules itself, as its runner keeps it; and what such answers tell about the engine's steps.

The steps themselves are not seen, only when tokens come. An engine that batches gives each running answer one token a step, so
the time between two tokens of one answer that may go on is a step's, at a batch of as many as may go on; and the time to the
first token is that of reading what is new of the prompt. Times are nanoseconds.
"""

from __future__ import annotations

import asyncio

from engines.base import JobKey, ThinkJob, TokenOutput
from session_server.host.stages.runner import JobOwner
from session_server.observability.host_metrics import HostMetrics
from session_server.scheduler.cost_model import CostModel
from session_server.scheduler.flow_control import Lease
from session_server.scheduler.work import WorkItem
from session_server.types.audio import NS_PER_S


class StreamedAnswer:
    """`item`: what was said last of how urgent it is, None: it may not begin. `held`: no more of it is read for now.
    `over`: nothing of it may reach its owner."""

    __slots__ = (
        "_go",
        "begun_ns",
        "held",
        "hindered",
        "item",
        "job",
        "key",
        "last_ns",
        "lease",
        "over",
        "owner",
        "stood_still",
        "task",
    )  # fmt: skip

    def __init__(self, key: JobKey, job: ThinkJob, owner: JobOwner, lease: Lease) -> None:
        self.key = key
        self.job = job
        self.owner = owner
        self.lease = lease
        self.item: WorkItem | None = None
        self.task: asyncio.Task[None] | None = None
        self.held = False
        self.over = False
        self.begun_ns: int | None = None
        self.last_ns: int | None = None
        self.hindered = False
        """It may have had to wait for others before it was read."""
        self.stood_still = False
        """Since its last token it was not free to go on."""
        self._go = asyncio.Event()

    @property
    def begun(self) -> bool:
        """The engine knows it."""
        return self.begun_ns is not None

    @property
    def opening(self) -> bool:
        """Nothing of it has come yet."""
        return self.last_ns is None

    @property
    def under_way(self) -> bool:
        """The engine owes it a token."""
        return self.begun and not self.held and (self.opening or not self.lease.used_up)

    def hold(self) -> None:
        self.held = self.stood_still = True
        self._go.clear()

    def go_on(self) -> None:
        self.held = False
        self._go.set()

    async def free(self) -> None:
        """Wait until more of it may be read."""
        while self.held and not self.over:
            self._go.clear()
            await self._go.wait()


class TokenTimes:
    """Learns what the engine's steps cost. One sample for a step, whichever answer shows it."""

    def __init__(
        self, name: str, costs: CostModel, metrics: HostMetrics, prefill_tokens: int
    ) -> None:
        self._name = name
        self._costs = costs
        self._metrics = metrics
        self._prefill_tokens = prefill_tokens
        self._observed_ns = 0

    def came(
        self, answer: StreamedAnswer, output: TokenOutput, units: int, batch: int, now: int
    ) -> None:
        """`units` tokens of text came, while so many answers were under way."""
        last, still = answer.last_ns, answer.stood_still
        answer.last_ns, answer.stood_still = now, False
        if last is None:
            self._read(answer, output, batch, now)
        elif units and not still:
            self._step((now - last) // units, batch, now)

    def _read(self, answer: StreamedAnswer, output: TokenOutput, batch: int, now: int) -> None:
        read = output.prompt_tokens - output.cached_tokens
        if read <= 0 or answer.hindered or answer.begun_ns is None:
            return
        units = min(self._prefill_tokens, read)
        self._costs.observe(self._name, batch, units, (now - answer.begun_ns) * units // read)

    def _step(self, took_ns: int, batch: int, now: int) -> None:
        if now - self._observed_ns < took_ns // 2:  # another answer has shown this step
            return
        self._observed_ns = now
        self._costs.observe(self._name, batch, 1, took_ns)
        self._metrics.stage_step(self._name, took_ns / NS_PER_S, batch)
