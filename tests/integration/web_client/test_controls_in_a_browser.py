"""The page's controls: by keyboard, on phones, in the dark, for screen readers; settings, log and camera; what it may load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.web_client.conftest import (
    Opener,
    ServerInAThread,
    of_client,
    serving,
    state,
    until,
)

pytestmark = pytest.mark.integration

ACCESS = (Path(__file__).parent / "access.js").read_text()
PHONE: dict[str, object] = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
SAID = """() => import('/main.js').then(({ client }) => {
  client.conversation.captions.set('a', 'user', 'What is the time?');
  client.conversation.captions.set('b', 'agent', 'It is late, and I could go on for long.');
  client.conversation.captions.cut('b', 700);
  client.fault = Object.assign(new Error('Something went wrong.'), { message: 'Something', advice: 'went wrong.', detail: 'here' });
  client.changed();
})"""


def open_all(page: Any) -> None:
    """Everything that can be unfolded, and a conversation with a fault."""
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    page.evaluate(SAID)
    page.wait_for_selector(".line.agent s")


def test_typing_and_settings_reach_the_server_on_a_phone(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, color_scheme="dark", **PHONE)
    page.select_option("select[name=detection]", "manual")
    page.fill("textarea[name=instructions]", "Answer in Latin.")
    page.click("#connect")
    state(page, "listening")
    session = of_client(page, "client.conversation.session")
    assert session["audio"]["input"]["turn_detection"] is None
    assert session["instructions"] == "Answer in Latin."
    page.fill("#typed-text", "Hello there")
    page.press("#typed-text", "Enter")
    page.wait_for_selector(".line.user .heard:text-is('Hello there')")
    state(page, "speaking")
    open_page.shoot("phone-dark")
    page.keyboard.press("Escape")
    state(page, "listening")
    page.click("#connect")


def test_sensitivity_and_eagerness_change_in_mid_conversation(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url)
    page.locator("input[name=threshold]").fill("0.8")
    page.click("#connect")
    detects(page, "({ type, threshold }) => type === 'server_vad' && threshold === 0.8")
    page.locator("input[name=threshold]").fill("0.3")
    page.locator("input[name=silenceMs]").fill("900")
    page.locator("input[name=speed]").fill("1.25")
    detects(page, "(turn) => turn.threshold === 0.3 && turn.silence_duration_ms === 900")
    page.select_option("select[name=detection]", "semantic_vad")
    page.select_option("select[name=eagerness]", "high")
    detects(page, "({ type, eagerness }) => type === 'semantic_vad' && eagerness === 'high'")
    page.uncheck("input[name=interruptible]")
    detects(page, "(turn) => turn.interrupt_response === false")
    assert of_client(page, "client.conversation.session.audio.output.speed") == 1.25
    page.click("#connect")
    state(page, "idle")
    page.reload()
    assert page.input_value("select[name=eagerness]") == "high", "settings are remembered"


def detects(page: Any, test: str) -> None:
    """Wait until the server's own word about turn detection passes `test`."""
    page.evaluate("import('/main.js').then(({ client }) => { window.client = client; })")
    until(page, "window.client.conversation.session?.audio.input.turn_detection")
    until(page, f"({test})(window.client.conversation.session.audio.input.turn_detection)")


def look(page: Any, question: str) -> Any:
    """The answer of a function of `access.js`."""
    return page.evaluate(f"() => {{ {ACCESS}; return {question}; }}")


def test_events_can_be_filtered_and_exported(running: ServerInAThread, open_page: Opener):
    page = open_page(running.url, "websocket")
    page.select_option("select[name=detection]", "manual")
    page.locator("#log-panel > summary").click()
    page.click("#connect")
    state(page, "listening")
    page.fill("#typed-text", "Hello there")
    page.press("#typed-text", "Enter")
    state(page, "speaking")
    page.fill("#log-filter", "out response -playback -cancel")
    until(page, "document.querySelectorAll('#log > li').length === 1")
    page.locator("#log summary").click()
    assert '"type": "response.create"' in page.inner_text("#log pre")
    page.keyboard.press("Escape")
    state(page, "listening")
    with page.expect_download() as started:
        page.click("#log-export")
    assert started.value.suggested_filename.endswith(".jsonl")
    lines = [json.loads(line) for line in Path(started.value.path()).read_text().splitlines()]
    types = [line["event"]["type"] for line in lines]
    assert {
        "session.created",
        "response.create",
        "response.done",
        "input_audio_buffer.append",
    } <= set(types)
    heard = [line["event"] for line in lines if line["event"]["type"].endswith("audio.delta")]
    assert heard
    assert all(event["delta"].endswith(" characters)") for event in heard), "no sound in it"
    page.click("#log-clear")
    page.fill("#log-filter", "session.created")
    until(page, "document.querySelectorAll('#log > li').length === 0")
    page.click("#connect")


def test_the_page_works_by_keyboard(running: ServerInAThread, open_page: Opener):
    page = open_page(running.url)
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
    page.wait_for_selector("#state:has-text('you are muted')")
    page.focus("#connect")
    page.keyboard.press("Enter")
    state(page, "idle")


def test_every_control_can_be_reached_by_the_tab_key_and_shows_that_it_has_the_focus(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url)
    open_all(page)
    wanted = look(page, "reachable()")
    assert len(wanted) > 25
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    seen: list[str] = []
    for _ in range(len(wanted) + 8):
        page.keyboard.press("Tab")
        name, shown = look(page, "focused()")
        assert shown or name == "body", f"{name} does not show the focus"
        seen.append(name)
    assert set(wanted) <= set(seen)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_control_has_a_name_and_every_text_can_be_read(
    running: ServerInAThread, open_page: Opener, scheme: str
):
    page = open_page(running.url, color_scheme=scheme)
    open_all(page)
    assert look(page, "faultsOfNames()") == []
    assert look(page, "faintTexts(4.5)") == []
    open_page.shoot(f"all-open-{scheme}")


def test_nothing_sticks_out_on_a_small_screen_and_buttons_are_large_enough_for_a_thumb(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, viewport={"width": 320, "height": 700}, has_touch=True)
    open_all(page)
    for width in (320, 390, 820):
        page.set_viewport_size({"width": width, "height": 700})
        assert look(page, "sticksOut()") == [], width
        for name in ("#connect", "#mute", "#stop"):
            assert page.locator(name).bounding_box()["height"] >= 40


def test_the_policy_stops_whatever_is_not_the_pages_own(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url)
    page.evaluate("""() => {
      document.body.append(Object.assign(document.createElement('script'), { textContent: 'window.evil = true' }));
      document.body.append(Object.assign(document.createElement('img'), { src: 'http://192.0.2.1/x.png' }));
      return fetch('http://192.0.2.1/').catch(() => {});
    }""")
    assert page.evaluate("window.evil") is None
    until(page, "document.images[document.images.length - 1].complete")
    stopped = [fault for fault in open_page.faults if "Content Security Policy" in fault]
    assert len(stopped) >= 3
    open_page.faults.clear()


def test_the_page_of_another_site_cannot_frame_it(running: ServerInAThread, open_page: Opener):
    with serving() as other:
        page = open_page(other.url)
        page.evaluate(
            """(url) => new Promise((done) => {
              const frame = Object.assign(document.createElement('iframe'), { src: url, onload: done });
              document.body.append(frame);
            })""",
            running.url,
        )
        assert not any(frame.url.startswith(running.url) for frame in page.frames)
        assert open_page.faults
        open_page.faults.clear()
