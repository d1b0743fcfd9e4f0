"""The page with real eyes: a photograph before the browser's camera, "what do you see?" by voice, and an answer that is true of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engines.model_store.store import ModelStore
from engines.vision.labels import KINDS
from session_server.client.sound import Synthesiser
from session_server.config import load
from session_server.http.server import model_store
from tests.integration.web_client.camera_clip import write_still
from tests.integration.web_client.conftest import (
    OPEN,
    TRANSPORTS,
    ServerInAThread,
    chromium,
    open_page as open_page,
    state,
    write_sound,
)

pytestmark = [pytest.mark.e2e, pytest.mark.models, pytest.mark.timeout(300)]

CONFIG = Path("configs/cpu-vision.yaml")
PHOTO = Path(__file__).parents[3] / "shared/data/photos/chelsea.png"
IN_THE_PHOTO = "cat"
_PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def running() -> Iterator[ServerInAThread]:
    pytest.importorskip("rapidocr", reason="the extra `vision` is not installed")
    if not PHOTO.exists():
        pytest.skip("no photographs beside the checkout: ../shared/data/photos")
    if model_store(load(CONFIG, flags={}).config).missing() or ModelStore().missing_for_vision():
        pytest.skip("models are missing: session-server models fetch --vision")
    with ServerInAThread(CONFIG, {"scheduler.admission": False}) as server:
        yield server


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, synthesiser: Synthesiser) -> Iterator[Any]:
    """Somebody who holds a photograph before the camera and asks, again and again with long pauses."""
    folder = tmp_path_factory.mktemp("camera")
    speech = np.repeat(np.frombuffer(synthesiser.say("What do you see?"), "<i2"), 2)
    pauses = [np.zeros(n * 48_000, "<i2") for n in (5, 15)]
    write_sound(folder / "question.wav", np.concatenate([pauses[0], speech, pauses[1]]).tobytes())
    with Image.open(PHOTO) as photo:
        write_still(folder / "photo.y4m", photo)
    flag = f"--use-file-for-fake-video-capture={folder / 'photo.y4m'}"
    with chromium(folder / "question.wav", flag) as opened:
        yield opened


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_do_you_see_is_answered_with_what_is_before_the_camera(
    running: ServerInAThread, open_page: Callable[..., Any], transport: str
):
    page = open_page(running.url, transport)
    page.set_default_timeout(_PATIENCE_MS)
    page.click("#camera")
    page.wait_for_selector("#camera-state:has-text('nothing is sent before you connect')")
    page.click("#connect")
    state(page, *OPEN)
    page.wait_for_selector(f"#seen-words:has-text('{IN_THE_PHOTO}')")
    page.wait_for_selector(f".line.agent .words:has-text('{IN_THE_PHOTO}')")
    state(page, "listening", "hearing")
    said = page.locator(".line.agent .words").last.inner_text().lower()
    things = said.partition("colours")[0]  # an orange is a thing, too
    named = {kind for kind in KINDS if re.search(rf"\b{kind}s?\b", things)}
    assert named == {IN_THE_PHOTO}, said
    assert "see" in page.locator(".line.user").last.inner_text().lower()
    page.click("#connect")
