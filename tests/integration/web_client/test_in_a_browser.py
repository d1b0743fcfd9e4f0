"""The page in Chromium against a server on simulated engines: talk, interrupt, get lost, be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from session_server.runtime.server import Server
from tests.integration.web_client.conftest import SENTENCE, ServerInAThread, serving

pytestmark = pytest.mark.integration

OpenPage = Callable[..., Any]
TRANSPORTS = ("webrtc", "websocket")

AFTER_AN_INTERRUPTION = """async () => {
  const { client } = await import('/main.js');
  const cut = () => client.conversation.timeline.marks.filter((mark) => mark.kind === 'barge_in').length;
  const before = cut();
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const { context, meter } = client.connection;
  const ear = context.createAnalyser(); // where the loudspeaker is
  meter.connect(ear);
  const samples = new Float32Array(ear.fftSize);
  const loudness = () => {
    ear.getFloatTimeDomainData(samples);
    return Math.max(...samples.map(Math.abs));
  };
  let loudest = 0;
  while (cut() === before) {
    loudest = Math.max(loudest, loudness());
    await pause(10);
  }
  await pause(200);
  return { loudest, after: loudness() };
}"""
CONNECT_IN_VAIN = """async () => {
  const { client } = await import('/main.js');
  client.fault = null;
  document.querySelector('#connect').click();
  while (client.fault === null) await new Promise((done) => setTimeout(done, 20));
  return client.fault.kind;
}"""
UNNAMED = """() => [...document.querySelectorAll('button, input, select, textarea, canvas, meter, video, [tabindex]')]
  .filter((e) => !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
  .map((e) => e.outerHTML)"""
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


def state(page: Any, *names: str) -> None:
    page.wait_for_selector(", ".join(f"#state[data-state={name}]" for name in names))


def metric(server: Server, line: str) -> float:
    page = server.metrics.render().decode()
    return float(next(row.rpartition(" ")[2] for row in page.splitlines() if row.startswith(line)))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_talk_hear_interrupt_and_see_what_was_not_heard(
    running: ServerInAThread, open_page: OpenPage, transport: str
):
    page = open_page(running.url, transport)
    page.click("#connect")
    page.wait_for_selector(f".line.user .heard:text-is('{SENTENCE}')")
    state(page, "speaking")
    heard = page.evaluate(AFTER_AN_INTERRUPTION)
    assert heard["loudest"] > 0.02, "the answer sounds"
    assert heard["after"] < 0.002, "and is silent once it was interrupted"
    page.wait_for_selector(".line.agent s")
    cut = page.locator(".line.agent", has=page.locator("s")).first
    assert len(cut.locator("s").inner_text()) > 10
    assert cut.locator(".note").inner_text() == "interrupted"
    state(page, "speaking")
    times = page.evaluate(TIMES)
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
    running: ServerInAThread, open_page: OpenPage, transport: str
):
    page = open_page(running.url, transport)
    page.click("#connect")
    page.wait_for_selector(f".line.user .heard:text-is('{SENTENCE}')")
    state(page, "speaking")
    running.call(_drop_all)
    page.wait_for_selector(".line.system .note")
    state(page, "listening", "hearing", "thinking", "speaking")
    assert page.locator("#fault").is_hidden()
    said = page.evaluate(
        "import('/main.js').then(({ client }) => client.log.matching('out conversation.item.create again_'))"
    )
    assert said[0]["event"]["item"]["content"] == [{"type": "input_text", "text": SENTENCE}]
    page.click("#connect")


def _drop_all(server: Server) -> None:
    for connection in list(server.registry.connections()):
        assert connection.outbox is not None
        connection.outbox.close(1011, "dropped by the test")


def test_a_full_server_says_so(open_page: OpenPage):
    with serving(scheduler__max_sessions=1) as running:
        first = open_page(running.url, "websocket")
        first.click("#connect")
        state(first, "listening", "hearing", "thinking", "speaking")
        second = open_page(running.url)
        for transport in TRANSPORTS:
            second.select_option("select[name=transport]", transport)
            assert second.evaluate(CONNECT_IN_VAIN) == "full"
            second.wait_for_selector("#fault-title:text-is('The server is full.')")
        first.click("#connect")
        state(first, "idle")


def test_a_forbidden_microphone_says_so(running: ServerInAThread, open_page: OpenPage):
    page = open_page(running.url)
    before = running.call(lambda server: len(server.registry))
    page.evaluate(
        "() => { navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('no', 'NotAllowedError')); }"
    )
    page.click("#connect")
    page.wait_for_selector("#fault:not([hidden])")
    assert page.inner_text("#fault-title") == "The microphone is blocked."
    assert running.call(lambda server: len(server.registry)) <= before


def test_a_server_that_is_gone_says_so(open_page: OpenPage):
    with serving() as running:
        page = open_page(running.url, "websocket")
    page.click("#connect")
    page.wait_for_selector("#fault:not([hidden])")
    assert page.inner_text("#fault-title") == "The server cannot be reached."


def test_a_key_that_is_missing_is_asked_for_and_used(open_page: OpenPage):
    with serving(auth__keys=("sk-page",)) as running:
        page = open_page(running.url)
        page.click("#connect")
        page.wait_for_selector("#fault:not([hidden])")
        assert page.inner_text("#fault-title") == "The server wants a key."
        page.fill("input[name=key]", "sk-page")
        page.click("#connect")
        state(page, "listening", "hearing", "thinking", "speaking")
        page.click("#connect")


def test_typing_and_settings_reach_the_server_on_a_phone(
    running: ServerInAThread, open_page: OpenPage
):
    page = open_page(
        running.url, viewport={"width": 390, "height": 800}, color_scheme="dark", has_touch=True
    )
    wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert wide, "nothing sticks out to the side"
    page.select_option("select[name=detection]", "manual")
    page.fill("textarea[name=instructions]", "Answer in Latin.")
    page.click("#connect")
    state(page, "listening")
    session = "import('/main.js').then(({ client }) => client.conversation.session)"
    assert page.evaluate(session)["audio"]["input"]["turn_detection"] is None
    assert page.evaluate(session)["instructions"] == "Answer in Latin."
    page.fill("#typed-text", "Hello there")
    page.press("#typed-text", "Enter")
    page.wait_for_selector(".line.user .heard:text-is('Hello there')")
    state(page, "speaking")
    page.keyboard.press("Escape")
    state(page, "listening")
    page.click("#connect")


def test_the_page_works_by_keyboard_and_every_control_has_a_name(
    running: ServerInAThread, open_page: OpenPage
):
    page = open_page(running.url)
    assert page.evaluate(UNNAMED) == []
    page.keyboard.press("Escape")
    page.focus("#timeline")
    for key in ("ArrowLeft", "ArrowLeft", "+"):
        page.keyboard.press(key)
    assert page.inner_text("#timeline-pause") == "Go on"
    assert page.inner_text("#readout").endswith(" s")
    page.keyboard.press("End")
    assert page.inner_text("#timeline-pause") == "Pause"
    page.focus("#connect")
    page.keyboard.press("Enter")
    state(page, "listening", "hearing")
    page.keyboard.press("Alt+M")
    assert page.get_attribute("#mute", "aria-pressed") == "true"
    page.focus("#connect")
    page.keyboard.press("Enter")
    state(page, "idle")
