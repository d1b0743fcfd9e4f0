"""The page's camera in Chromium, with a clip for a camera: preview, frames at the server, what was seen over the preview, and what
goes wrong with cameras, as it really happens.

The eyes are simulated: they name a thing by the bytes of each picture, so what they say is one of three kinds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from session_server.http.server import Server
from tests.integration.web_client.camera_clip import write_clip
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
from tests.integration.web_client.growth import Holdings, holdings
from tests.integration.web_client.test_controls_in_a_browser import look

pytestmark = pytest.mark.integration

LOOKED_AT = "on; the server looks"
PAINTED = """() => {
  const canvas = document.querySelector('#overlay');
  if (canvas.width === 0 || canvas.height === 0) return 0;
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return data.filter((value, k) => k % 4 === 3 && value > 0).length;
}"""
FRAMES_OUT = """async () => {
  const { client } = await import('/main.js');
  const sent = client.log.matching('out input_image_buffer.append', 3000).reduce((sum, entry) => sum + entry.times, 0);
  const { peer } = client.connection ?? {};
  const stats = peer === undefined ? [] : [...(await peer.getStats()).values()];
  return sent + stats.filter((s) => s.type === 'outbound-rtp' && s.kind === 'video').reduce((sum, s) => sum + s.framesSent, 0);
}"""
LIVE = "(client.camera.camera.track?.readyState ?? 'none')"


@pytest.fixture(scope="module")
def running() -> Iterator[ServerInAThread]:
    with serving(graph__stages__vision__engine="sim.vision") as server:
        yield server


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("camera") / "clip.y4m"
    write_clip(file)
    return file


@pytest.fixture(scope="module")
def browser(microphone: Path, clip: Path) -> Iterator[Any]:
    with chromium(microphone, f"--use-file-for-fake-video-capture={clip}") as opened:
        yield opened


def frames(server: Server, kept: str) -> float:
    """How many camera frames the server has counted as kept, or not kept."""
    page = server.metrics.render().decode()
    rows = [
        row for row in page.splitlines() if row.startswith("session_server_video_frames_total{")
    ]
    return sum(float(row.rpartition(" ")[2]) for row in rows if f'kept="{kept}"' in row)


def said(page: Any, words: str) -> None:
    """Wait until the camera's state has these words."""
    page.wait_for_selector(f"#camera-state:has-text('{words}')")


def previewed(page: Any) -> None:
    until(page, "document.querySelector('#preview').videoWidth > 0")


def off(page: Any) -> None:
    page.click("#camera")
    said(page, "off")
    assert page.locator("#picture").is_hidden()
    assert of_client(page, LIVE) == "none"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_the_camera_shows_is_looked_at_and_what_was_seen_lies_over_the_preview(
    running: ServerInAThread, open_page: Opener, transport: str
):
    before = running.call(lambda server: frames(server, "yes"))
    page = open_page(running.url, transport)
    page.click("#camera")
    previewed(page)
    said(page, "nothing is sent before you connect")
    page.click("#connect")
    state(page, *OPEN)
    said(page, LOOKED_AT)
    page.wait_for_selector("#seen-words:has-text('Seen: ')")
    assert page.inner_text("#seen-words").removeprefix("Seen: ").split(".")[0] in (
        "cat",
        "dog",
        "cup",
    )
    page.wait_for_selector("#seen-age:has-text('Looked at so far: ')")
    page.wait_for_selector("#camera-announcer:has-text('The agent sees: ')", state="attached")
    until(page, f"({PAINTED})() > 100")
    assert running.call(lambda server: frames(server, "yes")) > before
    session = of_client(page, "client.conversation.session.extensions.video")
    assert (session["max_fps"], session["report"], session["commentary"]) == (2, True, False)
    assert of_client(page, "client.connection.takesVideo") == (transport == "webrtc")
    open_page.shoot(f"camera-{transport}")
    page.uncheck("input[name=overlay]")
    until(page, f"({PAINTED})() === 0")
    page.check("input[name=overlay]")
    until(page, f"({PAINTED})() > 100")
    off(page)
    page.click("#connect")
    state(page, "idle")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_camera_that_is_off_sends_nothing_and_the_server_is_told(
    running: ServerInAThread, open_page: Opener, transport: str
):
    page = open_page(running.url, transport)
    page.click("#connect")
    state(page, *OPEN)
    assert page.evaluate(FRAMES_OUT) == 0
    page.keyboard.press("Alt+C")
    said(page, LOOKED_AT)
    until(page, f"await ({FRAMES_OUT})() > 2")
    off(page)
    until(
        page,
        "(await import('/main.js')).client.conversation.session.extensions?.video === undefined",
    )
    sent = page.evaluate(FRAMES_OUT)
    page.wait_for_timeout(1500)
    assert page.evaluate(FRAMES_OUT) == sent
    page.click("#camera")
    said(page, LOOKED_AT)
    until(page, f"await ({FRAMES_OUT})() > {sent} + 2")
    page.click("#connect")
    state(page, "idle")
    assert of_client(page, LIVE) == "none", "hanging up frees the camera"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_camera_goes_on_when_a_lost_connection_is_made_anew(
    running: ServerInAThread, open_page: Opener, transport: str
):
    page = open_page(running.url, transport)
    page.click("#camera")
    page.click("#connect")
    page.wait_for_selector("#seen-words:has-text('Seen: ')")
    running.call(_drop_all)
    page.wait_for_selector(".line.system .note")
    state(page, *OPEN)
    said(page, LOOKED_AT)
    page.wait_for_selector("#seen-words:has-text('Seen: ')")
    page.click("#connect")


def _drop_all(server: Server) -> None:
    for connection in list(server.registry.connections()):
        assert connection.outbox is not None
        connection.outbox.close(1011, "dropped by the test")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_size_rate_and_leave_to_speak_up_hold_at_once_and_are_remembered(
    running: ServerInAThread, open_page: Opener, transport: str
):
    page = open_page(running.url, transport)
    page.click("#connect")
    state(page, *OPEN)
    page.click("#camera")
    said(page, LOOKED_AT)
    page.check("input[name=commentary]")
    page.locator("input[name=cameraRate]").fill("5")
    video = "(await import('/main.js')).client.conversation.session.extensions?.video"
    until(page, f"{video}?.commentary === true && {video}.max_fps === 5")
    page.select_option("select[name=cameraSize]", "320x240")
    until(page, "document.querySelector('#preview').videoWidth === 320")
    chosen = page.locator("select[name=camera] option").nth(1).get_attribute("value")
    page.select_option("select[name=camera]", chosen)
    said(page, LOOKED_AT)
    page.uncheck("input[name=overlay]")
    page.click("#connect")
    state(page, "idle")
    page.reload()
    assert page.is_checked("input[name=commentary]")
    assert not page.is_checked("input[name=overlay]")
    assert page.input_value("input[name=cameraRate]") == "5"
    assert page.input_value("select[name=cameraSize]") == "320x240"
    page.click("#camera")
    previewed(page)
    until(page, f"document.querySelector('select[name=camera]').value === '{chosen}'")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_that_looks_less_often_than_the_user_wants_looks_all_the_same(
    open_page: Opener, transport: str
):
    with serving(graph__stages__vision__engine="sim.vision", video__max_fps=1) as slow:
        page = open_page(slow.url, transport)
        page.click("#connect")
        state(page, *OPEN)
        page.click("#camera")
        said(page, LOOKED_AT)
        page.wait_for_selector("#seen-words:has-text('Seen: ')")
        assert of_client(page, "client.conversation.session.extensions.video.max_fps") == 1
        assert page.locator("#camera-fault").is_hidden()
        page.click("#connect")
        state(page, "idle")


def test_the_agent_speaks_up_by_itself_where_the_user_allows_it(open_page: Opener):
    comes_and_goes = "|".join(f"{4 * k} person{',cup' if k % 2 else ''}" for k in range(100))
    eyes = {
        "graph__stages__vision__engine": "sim.vision",
        "graph__stages__vision__options__scenes": comes_and_goes,
        "graph__stages__thinker__options__words": 8,
        "core__commentary_gap_ms": 1000,
    }
    with serving(**eyes) as server:
        page = open_page(server.url)
        page.click("#connect")
        state(page, *OPEN)
        page.click("#mute")
        state(page, "listening")
        page.click("#camera")
        page.check("input[name=commentary]")
        said(page, LOOKED_AT)
        asked = page.locator(".line.user").count()
        told = page.locator(".line.agent").count()
        until(page, f"document.querySelectorAll('.line.agent').length > {told} + 1")
        state(page, "speaking")
        assert page.locator(".line.user").count() == asked
        page.click("#connect")
        state(page, "idle")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_without_eyes_says_so_and_the_conversation_goes_on(
    open_page: Opener, transport: str
):
    with serving() as blind:
        page = open_page(blind.url, transport)
        page.click("#camera")
        previewed(page)
        page.click("#connect")
        state(page, *OPEN)
        page.wait_for_selector(
            "#camera-fault-title:text-is('This server does not look at pictures.')"
        )
        said(page, "off")
        assert of_client(page, LIVE) == "none"
        assert page.evaluate(FRAMES_OUT) == 0
        assert page.locator("#fault").is_hidden()
        page.wait_for_selector(".line.agent")
        page.click("#connect")
        state(page, "idle")


def test_a_camera_that_the_user_forbids_says_so_and_can_be_allowed_later(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, permissions=["microphone"])
    page.click("#camera")
    page.wait_for_selector("#camera-fault-title:text-is('The camera is blocked.')")
    said(page, "off")
    page.context.grant_permissions(["microphone", "camera"])
    page.click("#camera")
    previewed(page)
    assert page.locator("#camera-fault").is_hidden()


def test_a_camera_that_is_switched_on_and_off_leaves_nothing_in_the_page(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, "websocket")

    def on_and_off(times: int) -> Holdings:
        for _ in range(times):
            page.click("#camera")
            said(page, "nothing is sent before you connect")
            off(page)
        return holdings(page)

    first, last = on_and_off(3), on_and_off(12)
    assert last.listeners <= first.listeners + 10, (str(first), str(last))
    assert last.nodes <= first.nodes + 20, (str(first), str(last))


def test_a_camera_that_goes_away_says_so_and_is_offered_again(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, "websocket")
    page.click("#connect")
    page.click("#camera")
    said(page, LOOKED_AT)
    page.context.clear_permissions()  # the browser takes it away, as it does when it is unplugged
    page.wait_for_selector("#camera-fault-title:text-is('The camera is gone.')")
    until(
        page,
        "(await import('/main.js')).client.conversation.session.extensions?.video === undefined",
    )
    assert page.inner_text("#camera") == "Camera again"
    page.context.grant_permissions(["microphone", "camera"])
    page.click("#camera")
    said(page, "Camera: on")
    assert page.locator("#camera-fault").is_hidden()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
def test_a_camera_that_stands_still_says_so_and_sends_nothing_until_it_moves(
    running: ServerInAThread, open_page: Opener
):
    page = open_page(running.url, "websocket")
    page.click("#connect")
    state(page, *OPEN)
    page.click("#camera")
    said(page, LOOKED_AT)
    until(page, f"await ({FRAMES_OUT})() > 2")
    camera = _camera_process()
    os.kill(camera, signal.SIGSTOP)
    try:
        said(page, "the picture stands still")
        sent = page.evaluate(FRAMES_OUT)
        page.wait_for_timeout(1500)
        assert page.evaluate(FRAMES_OUT) == sent
    finally:
        os.kill(camera, signal.SIGCONT)
    said(page, LOOKED_AT)
    until(page, f"await ({FRAMES_OUT})() > {sent} + 2")
    page.click("#connect")


def _camera_process() -> int:
    """The process of our browser that runs its cameras."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = (
                int((folder / "stat").read_text().rpartition(")")[2].split()[1]),
                command,
            )
        except OSError:
            continue  # it has ended
    for pid, (parent, command) in parents.items():
        while parent in parents and parent != os.getpid():
            parent = parents[parent][0]
        if b"video_capture" in command and parent == os.getpid():
            return pid
    raise AssertionError("the browser has no process for its cameras")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_cameras_part_has_names_can_be_read_and_fits_a_phone(
    running: ServerInAThread, open_page: Opener, scheme: str
):
    page = open_page(
        running.url, color_scheme=scheme, viewport={"width": 390, "height": 800}, has_touch=True
    )
    page.click("#connect")
    state(page, *OPEN)
    page.click("#camera")
    page.wait_for_selector("#seen-words:has-text('Seen: ')")
    assert look(page, "faultsOfNames()") == []
    assert look(page, "faintTexts(4.5)") == []
    for width in (320, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert look(page, "sticksOut()") == [], width
        assert page.locator("#camera").bounding_box()["height"] >= 40
    page.locator("#picture").scroll_into_view_if_needed()
    open_page.shoot(f"camera-phone-{scheme}")
    page.click("#connect")
