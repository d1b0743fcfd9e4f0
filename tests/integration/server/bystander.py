"""The session beside it: it talks while something bad happens to another one, and must not notice.

Its answer's audio is compared sample by sample with what the simulated vocoder says for its response, and a listener that
plays from the first delta on must never have run dry. The listener's clock is the process's own time (`patient_loop`):
work for another session that keeps the loop too long is a gap, a busy machine is not.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from engines.sim.wave import verify
from session_server.http.server import Server
from tests.integration.server.caller import RATE, Caller, calling
from tests.integration.server.conftest import OpenServer

AHEAD_S = 0.9
"""It has about its whole lead before anything happens."""
LONGEST_WAIT_S = 0.8
"""A piece of its audio is due each tenth of a second."""
LONGEST_GAP_S = 0.25
"""The lead is 1 s, so a gap means that more than a second of work was done without looking at this session."""
AFTERWARDS_S = 0.2


class Bystander:
    """A session in the middle of a long answer."""

    def __init__(self, caller: Caller, response_id: str) -> None:
        self.caller = caller
        self.response_id = response_id

    async def assert_undisturbed(self) -> None:
        """It goes on talking, without fault or gap; then it can be stopped, and asked again."""
        caller, name = self.caller, self.response_id
        await caller.hear(name, AFTERWARDS_S)
        assert caller.of("error") == []
        await caller.send({"type": "response.cancel"})
        assert (await caller.ended(name))["status"] == "cancelled"
        assert_unbroken(caller, name)
        await assert_answers(caller, "And now")
        assert caller.of("error") == []
        caller.assert_lawful()


def assert_unbroken(caller: Caller, name: str) -> None:
    """What came of this response is right to the last sample, and came in time."""
    report = verify(caller.pcm(name), name)
    assert report.faults == (), f"{name}: {report}"
    assert report.samples > 0
    stream = caller.streams[name]
    gap_s, wait_s = stream.longest_gap_s(), stream.longest_wait_s()
    arrived = [(round(at, 3), round(total / RATE, 3)) for at, total in stream.arrivals]
    assert gap_s <= LONGEST_GAP_S, (
        f"{name} ran dry for {gap_s:.3f} s of the process's own time (load {os.getloadavg()[0]:.1f});"
        f" seconds of arrival and of audio: {arrived}"
    )
    assert wait_s <= LONGEST_WAIT_S, (
        f"{name} was forgotten for {wait_s:.3f} s of the process's own time; arrivals: {arrived}"
    )


async def assert_answers(caller: Caller, text: str) -> None:
    """A short question gets its whole answer, in words and in sound."""
    name = await caller.ask(text)
    response = await caller.ended(name)
    assert response["status"] == "completed", response["status_details"]
    assert response["output"][-1]["content"][0]["transcript"].startswith(f"You said: {text}.")
    report = verify(caller.pcm(name), name)
    assert report.complete, report


@asynccontextmanager
async def bystander(url: str, *, key: str | None = None) -> AsyncIterator[Bystander]:
    """A bystander that is already talking; it is checked at the end of the block."""
    async with calling(url, key=key) as caller:
        name = await caller.ask("Something long from the bystander")
        await caller.hear(name, AHEAD_S)
        beside = Bystander(caller, name)
        yield beside
        await beside.assert_undisturbed()


@asynccontextmanager
async def calling_beside(
    serve: OpenServer,
    options: Mapping[str, Mapping[str, object]] | None = None,
    *,
    url: Callable[[Server], str] = lambda server: server.address.ws,
    strict: bool = True,
    expect: str | None = None,
    **flags: object,
) -> AsyncIterator[tuple[Server, Caller]]:
    """A server, as `serve` opens it, and a session on it with a bystander beside. `url`: where the session calls."""
    async with (
        serve(options, expect=expect, **flags) as server,
        bystander(server.address.ws),
        calling(url(server), strict=strict) as caller,
    ):
        yield server, caller
