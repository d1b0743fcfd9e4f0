"""A page that stays open does not grow: over hundreds of turns, over many connections, and (soak) over minutes of talk.

The short forms run always. The long one talks for `SESSION_SERVER_SOAK` seconds (300 where it is no number) on each transport:
`SESSION_SERVER_SOAK=300 pytest -m soak tests/integration/web_client`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from tests.integration.web_client.conftest import (
    OPEN,
    TRANSPORTS,
    Opener,
    ServerInAThread,
    serving,
    state,
)
from tests.integration.web_client.growth import BOUNDS, FILL, KEPT, Holdings, holdings

_SOAK = os.environ.get("SESSION_SERVER_SOAK", "")
MINUTES_S = float(_SOAK) if _SOAK.isdigit() else 300.0


@pytest.mark.integration
def test_hundreds_of_turns_do_not_fill_the_page(running: ServerInAThread, open_page: Opener):
    page = open_page(running.url, "websocket")
    page.locator("#log-panel > summary").click()
    page.evaluate(FILL, 220)
    full = holdings(page)
    page.evaluate(FILL, 220)
    later = holdings(page)
    kept = page.evaluate(KEPT)
    assert all(kept[name] <= BOUNDS[name] for name in BOUNDS), kept
    assert (kept["lines"], kept["turns"]) == (400, 200), "it was full"
    assert later.nodes <= full.nodes * 1.02 + 50, (str(full), str(later))
    assert later.listeners <= full.listeners * 1.02 + 20, (str(full), str(later))


@pytest.mark.integration
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_connections_leave_nothing_in_the_page(
    running: ServerInAThread, open_page: Opener, transport: str
):
    page = open_page(running.url, transport)

    def talk_and_leave(times: int, fits: Callable[[Holdings], bool]) -> Holdings:
        """What the page holds in the last of so many connections (contexts at rest let nothing go), once that fits: what
        is let go goes bit by bit."""
        for k in range(times):
            page.click("#connect")
            state(page, *OPEN)
            tries = 60 if k == times - 1 else 0
            while tries:
                last = holdings(page)
                tries = 0 if fits(last) else tries - 1
                page.wait_for_timeout(250)
            page.click("#connect")
            state(page, "idle")
        return last

    seen: list[Holdings] = []
    before = talk_and_leave(2, lambda found: seen.append(found) or len(seen) == 4)
    # Chromium keeps the source node of each stream, the microphone's and the voice's, for as long as its context lives
    most = Holdings(0, 0, before.listeners + 12, before.audio_nodes + 3 * 2, before.peers)

    def fits(found: Holdings) -> bool:
        return (
            found.listeners <= most.listeners
            and found.audio_nodes <= most.audio_nodes
            and found.peers <= most.peers
        )

    after = talk_and_leave(3, fits)
    assert fits(after), (str(before), str(after))


@pytest.mark.soak
@pytest.mark.timeout(2 * MINUTES_S + 300)
@pytest.mark.skipif(not _SOAK, reason="SESSION_SERVER_SOAK is not set")
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_minutes_of_talk_do_not_fill_the_page(open_page: Opener, transport: str):
    with serving(core__max_session_ms=0) as server:
        page = open_page(server.url, transport)
        page.evaluate(FILL, 220)
        page.click("#connect")
        state(page, *OPEN)
        seen = []
        for part in range(7):  # the first is for warming up
            until = time.monotonic() + MINUTES_S / 6
            while part and time.monotonic() < until:
                page.wait_for_timeout(1000)
            seen.append(holdings(page))
            kept = page.evaluate(KEPT)
            print(
                f"{transport} {part * MINUTES_S / 6:.0f} s: {seen[-1]}, lost {kept['lost']} times"
            )
        state(page, *OPEN)
        page.click("#connect")
    first, last = seen[1], seen[-1]
    assert kept["lines"] == BOUNDS["lines"]
    assert last.heap <= first.heap * 1.1 + 1e6
    assert last.nodes <= first.nodes * 1.05 + 100
    assert last.listeners <= first.listeners * 1.05 + 20
    assert last.audio_nodes <= first.audio_nodes + 2 * kept["lost"]
