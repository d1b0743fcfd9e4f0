"""The page in Chromium against a server on simulated engines: talk, interrupt, get lost and come back."""

from __future__ import annotations

import pytest

from session_server.http.server import Server
from tests.integration.web_client.conftest import (
    OPEN,
    SENTENCE,
    TRANSPORTS,
    Opener,
    ServerInAThread,
    metric,
    of_client,
    state,
)

pytestmark = pytest.mark.integration

UNTIL_CUT_OFF = """async () => {
  const { client } = await import('/main.js');
  const cut = () => client.conversation.timeline.marks.filter((mark) => mark.kind === 'barge_in').length;
  const before = cut();
  const { context, meter } = client.connection; // the meter is where the loudspeaker is
  let cutAt = null;
  let loudest = 0;
  return new Promise((done) => meter.port.addEventListener('message', ({ data }) => {
    loudest = Math.max(loudest, data.level);
    if (cutAt === null && cut() !== before) cutAt = context.currentTime;
    if (cutAt !== null && data.at - data.lastLoud > 0.2) done({ loudest, wentOnFor: data.lastLoud - cutAt });
  }));
}"""
TIMES = """async () => {
  const { client } = await import('/main.js');
  const { timeline, turns } = client.conversation;
  return {
    lanes: [...new Set(timeline.spans.map((span) => span.lane))],
    totals: turns.turns.filter((turn) => turn.arrived !== null).map((turn) => turn.arrived - turn.start),
    samples: timeline.samples,
    connectMs: client.connectMs,
  };
}"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_talk_hear_interrupt_and_see_what_was_not_heard(
    running: ServerInAThread, open_page: Opener, transport: str
):
    page = open_page(running.url, transport)
    page.click("#connect")
    page.wait_for_selector(f".line.user .heard:text-is('{SENTENCE}')")
    state(page, "speaking")
    heard = page.evaluate(UNTIL_CUT_OFF)
    assert heard["loudest"] > 0.01, "the answer sounds"
    # a second of it is here already: uncut, it would go on for that long
    assert heard["wentOnFor"] < 0.5, "and is silent once it was interrupted"
    page.wait_for_selector(".line.agent s")
    cut = page.locator(".line.agent", has=page.locator("s")).first
    assert len(cut.locator("s").inner_text()) > 10
    assert cut.locator(".note").inner_text() == "interrupted"
    state(page, "speaking")
    times = page.evaluate(TIMES)
    open_page.shoot(f"talk-{transport}")
    page.click("#connect")
    state(page, "idle")
    assert {"user", "think", "reply"} <= set(times["lanes"])
    assert times["totals"]
    assert all(s["played"] <= s["sent"] <= s["generated"] for s in times["samples"])
    assert running.call(lambda s: metric(s, 'session_server_interruptions_total{kind="true"}'))
    acks = 'session_server_playback_acks_total{outcome="%s"}'
    assert running.call(lambda s: metric(s, acks % "accepted")) > 5
    assert running.call(lambda s: metric(s, acks % "unknown")) == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_lost_connection_comes_back_and_remembers(
    running: ServerInAThread, open_page: Opener, transport: str
):
    page = open_page(running.url, transport)
    page.click("#connect")
    page.wait_for_selector(f".line.user .heard:text-is('{SENTENCE}')")
    state(page, "speaking")
    running.call(_drop_all)
    page.wait_for_selector(".line.system .note")
    state(page, *OPEN)
    assert page.locator("#fault").is_hidden()
    said = of_client(page, "client.log.matching('out conversation.item.create again_')")
    assert said[0]["event"]["item"]["content"] == [{"type": "input_text", "text": SENTENCE}]
    page.click("#connect")


def _drop_all(server: Server) -> None:
    for connection in list(server.registry.connections()):
        assert connection.outbox is not None
        connection.outbox.close(1011, "dropped by the test")
