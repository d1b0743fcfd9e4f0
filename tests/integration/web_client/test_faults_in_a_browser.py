"""What goes wrong, said in plain words on the page: each fault as it really happens, wherever a test can make it happen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.web_client.conftest import (
    INSECURE_HOST,
    OPEN,
    TRANSPORTS,
    Opener,
    ServerInAThread,
    of_client,
    serving,
    state,
)

pytestmark = pytest.mark.integration

CONNECT_IN_VAIN = """async () => {
  const { client } = await import('/main.js');
  client.fault = null;
  document.querySelector('#connect').click();
  while (client.fault === null) await new Promise((done) => setTimeout(done, 20));
  return client.fault.kind;
}"""
IMPATIENT = """() => {
  const wait = window.setTimeout;
  window.setTimeout = (work, ms, ...rest) => wait(work, [500, 1000, 2000, 4000, 8000].includes(ms) ? ms / 50 : ms, ...rest);
}"""
NO_LOUDSPEAKER = """() => {
  const all = navigator.mediaDevices.enumerateDevices.bind(navigator.mediaDevices);
  navigator.mediaDevices.enumerateDevices = async () => (await all()).filter(({ kind }) => kind !== 'audiooutput');
}"""


def fault(page: Any, title: str) -> None:
    page.wait_for_selector(f"#fault:not([hidden]) #fault-title:text-is('{title}')")


def test_a_full_server_says_so(open_page: Opener):
    with serving(scheduler__max_sessions=1) as running:
        first = open_page(running.url, "websocket")
        first.click("#connect")
        state(first, *OPEN)
        second = open_page(running.url)
        for transport in TRANSPORTS:
            second.select_option("select[name=transport]", transport)
            assert second.evaluate(CONNECT_IN_VAIN) == "full"
            fault(second, "The server is full.")
        assert second.inner_text("#connect") == "Connect"
        first.click("#connect")
        state(first, "idle")


def test_a_microphone_that_the_user_forbids_says_so_and_takes_no_place(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, permissions=["camera"])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("websocket", lambda socket: asked.append(socket.url))
    for transport in TRANSPORTS:
        page.select_option("select[name=transport]", transport)
        assert page.evaluate(CONNECT_IN_VAIN) == "no_permission"
    fault(page, "The microphone is blocked.")
    assert "Allow the microphone" in page.inner_text("#fault-advice")
    state(page, "idle")
    assert not [url for url in asked if url.endswith("/calls") or url.startswith("ws")]
    page.context.grant_permissions(["microphone"])
    page.click("#connect")
    state(page, *OPEN)
    assert page.locator("#fault").is_hidden()
    page.click("#connect")


def test_a_machine_without_a_microphone_says_so(running: ServerInAThread, open_page: Opener):
    page = open_page(running.url)
    page.evaluate(
        "() => { navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('none', 'NotFoundError')); }"
    )
    page.click("#connect")
    fault(page, "There is no microphone.")


def test_an_insecure_address_says_what_to_do(running: ServerInAThread, open_page: Opener):
    page = open_page(running.url.replace("127.0.0.1", INSECURE_HOST))
    fault(page, "The browser gives no microphone to this address.")
    for transport in TRANSPORTS:
        page.select_option("select[name=transport]", transport)
        assert page.evaluate(CONNECT_IN_VAIN) == "insecure"
    assert "--tls-self-signed" in page.inner_text("#fault-advice")
    assert "http://localhost" in page.inner_text("#fault-advice")


def test_a_far_machine_gets_its_microphone_over_self_signed_tls(
    open_page: Opener, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with serving(server__tls_self_signed=True) as running:
        assert running.url.startswith("https://")
        page = open_page(running.url.replace("127.0.0.1", INSECURE_HOST))
        assert page.evaluate("window.isSecureContext")
        for transport in TRANSPORTS:
            page.select_option("select[name=transport]", transport)
            page.click("#connect")
            state(page, *OPEN)
            page.click("#connect")
            state(page, "idle")


def test_a_browser_without_a_loudspeaker_says_so_and_stays_connected(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url)
    page.evaluate(NO_LOUDSPEAKER)
    page.click("#connect")
    fault(page, "This browser plays no sound.")
    state(page, *OPEN)
    page.click("#connect")


def test_a_server_that_is_gone_says_so(open_page: Opener):
    with serving() as running:
        pages = [open_page(running.url, transport) for transport in TRANSPORTS]
    for page in pages:
        page.click("#connect")
        fault(page, "The server cannot be reached.")
        state(page, "idle")


def test_a_connection_that_is_lost_for_good_is_tried_again_and_then_given_up(open_page: Opener):
    with serving() as running:
        pages = [open_page(running.url, transport) for transport in TRANSPORTS]
        for page in pages:
            page.click("#connect")
            state(page, *OPEN)
    for page in pages:
        state(page, "retrying")
        assert page.inner_text("#state") == "Connection lost: connecting again…"
        assert page.inner_text("#connect") == "Give up"
        page.evaluate(IMPATIENT)
    for page in pages:
        page.wait_for_selector("#fault-advice:has-text('Connecting again did not work.')")
        state(page, "idle")
        assert of_client(page, "client.microphone.track") is None, "the microphone is free"


def test_a_server_that_stands_still_is_noticed_and_comes_back(open_page: Opener):
    with serving() as running:
        pages = [open_page(running.url, transport) for transport in TRANSPORTS]
        for page in pages:
            page.click("#connect")
            state(page, *OPEN)
        with running.standing_still():
            for page in pages:
                state(page, "retrying", "connecting")
        for page in pages:
            page.wait_for_selector(".line.system .note")
            state(page, *OPEN)
            page.click("#connect")


def test_the_user_can_give_up_while_it_tries_again(open_page: Opener):
    with serving() as running:
        page = open_page(running.url, "websocket")
        page.click("#connect")
        state(page, *OPEN)
    state(page, "retrying")
    page.click("#connect")
    state(page, "idle")
    assert page.locator("#fault").is_hidden()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_key_that_is_missing_is_asked_for_and_used(open_page: Opener, transport: str):
    with serving(auth__keys=("sk-page",)) as running:
        page = open_page(running.url, transport)
        page.click("#connect")
        fault(page, "The server wants a key.")
        page.fill("input[name=key]", "sk-page")
        page.click("#connect")
        state(page, *OPEN)
        assert "sk-page" not in of_client(page, "client.log.exported()")
        page.click("#connect")
        state(page, "idle")
