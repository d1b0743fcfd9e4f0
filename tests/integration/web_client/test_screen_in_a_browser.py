"""A shared screen as the page's camera, a choice of screen that is cancelled, and a machine without a camera, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.web_client.conftest import (
    OPEN,
    TRANSPORTS,
    Opener,
    ServerInAThread,
    chromium,
    of_client,
    serving,
    state,
    until,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def running() -> Iterator[ServerInAThread]:
    with serving(graph__stages__vision__engine="sim.vision") as server:
        yield server


def test_a_screen_is_shared_on_both_transports(running: ServerInAThread, microphone: Path):
    """The browser's own stand-in for whoever chooses the screen says yes."""
    with chromium(microphone, "--use-fake-ui-for-media-stream") as browser:
        opener = Opener(browser)
        for transport in TRANSPORTS:
            page = opener(running.url, transport)
            page.click("#camera-panel > summary")
            page.click("#camera")
            until(page, "document.querySelector('#preview').videoWidth > 0")
            page.click("#screen")
            page.wait_for_selector("#camera-state:has-text('Screen: on')")
            assert page.inner_text("#screen") == "Stop sharing"
            assert page.inner_text("#camera") == "Camera", "one of the two at a time"
            page.click("#connect")
            state(page, *OPEN)
            page.wait_for_selector("#seen-words:has-text('Seen: ')")
            until(page, "document.querySelector('#preview').videoWidth > 640")
            page.click("#screen")
            page.wait_for_selector("#camera-state:has-text('off')")
            assert of_client(page, "client.camera.camera.track") is None
            page.click("#connect")
            state(page, "idle")
        assert opener.faults == []


def test_a_choice_of_screen_that_is_cancelled_says_so(running: ServerInAThread, microphone: Path):
    with chromium(microphone, "--use-fake-ui-for-media-stream=deny") as browser:
        page = Opener(browser)(running.url)
        page.click("#camera-panel > summary")
        page.click("#screen")
        page.wait_for_selector("#camera-fault-title:text-is('Nothing is shared.')")
        assert page.inner_text("#screen") == "Share screen"


def test_a_machine_without_a_camera_says_so(running: ServerInAThread, microphone: Path):
    with chromium(microphone, "--use-fake-device-for-media-stream=device-count=0") as browser:
        page = Opener(browser)(running.url)
        page.click("#camera")
        page.wait_for_selector("#camera-fault-title:text-is('There is no camera.')")
        assert page.inner_text("#camera") == "Camera"
