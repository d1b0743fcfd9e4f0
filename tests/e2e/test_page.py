"""The page with real models: a spoken question in a real browser, its words on the screen, and the answer by ear."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from session_server.client.sound import Synthesiser
from session_server.config import load
from session_server.http.server import model_store
from tests.e2e.test_conversation import recognise, words
from tests.integration.web_client.conftest import (
    ServerInAThread,
    browser as browser,
    open_page as open_page,
    write_sound,
)

pytestmark = [pytest.mark.e2e, pytest.mark.models, pytest.mark.timeout(300)]

RECORD = """async () => {
  const { client } = await import('/main.js');
  const { context, meter } = client.connection;
  const ear = context.createMediaStreamDestination();
  meter.connect(ear);
  const recorder = new MediaRecorder(ear.stream, { mimeType: 'audio/webm' });
  const parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  window.heardSoFar = () => new Promise((done) => {
    recorder.onstop = async () => {
      const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
      done(btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')));
    };
    recorder.stop();
  });
}"""


@pytest.fixture(scope="module")
def running() -> Iterator[ServerInAThread]:
    missing = model_store(load(None, flags={}).config).missing()
    if missing:
        folder = os.environ.get("SESSION_SERVER_MODELS", "the cache")
        pytest.skip(f"{len(missing)} model files are not in {folder}: session-server models fetch")
    with ServerInAThread(None, {}) as server:
        yield server


@pytest.fixture(scope="module")
def microphone(tmp_path_factory: pytest.TempPathFactory, synthesiser: Synthesiser) -> Path:
    """Somebody who asks, and waits for the answer."""
    file = tmp_path_factory.mktemp("microphone") / "question.wav"
    speech = np.frombuffer(synthesiser.say("What is the capital of France?"), "<i2")
    pauses = [np.zeros(n * 48_000, "<i2") for n in (1, 12)]
    sound = np.concatenate([pauses[0], np.repeat(speech, 2), pauses[1]])
    write_sound(file, sound.tobytes())
    return file


def pcm_of(recording: bytes) -> bytes:
    """A recording of the browser as s16le at 24 kHz."""
    resampler = av.AudioResampler(format="s16", layout="mono", rate=24_000)
    with av.open(io.BytesIO(recording)) as container:
        frames = [f for frame in container.decode(audio=0) for f in resampler.resample(frame)]
    return b"".join(frame.to_ndarray().tobytes() for frame in frames)


@pytest.mark.parametrize("transport", ["webrtc", "websocket"])
def test_a_question_is_shown_and_answered_in_words_that_can_be_heard(
    running: ServerInAThread, open_page: Callable[..., Any], transport: str
):
    page = open_page(running.url, transport)
    page.set_default_timeout(60_000)
    page.click("#connect")
    page.wait_for_selector("#state:not([data-state=idle]):not([data-state=connecting])")
    page.evaluate(RECORD)
    page.wait_for_selector("#state[data-state=speaking]")
    page.wait_for_selector("#state[data-state=listening]")
    recording = base64.b64decode(page.evaluate("window.heardSoFar()"))
    asked = page.locator(".line.user").first.inner_text()
    said = page.locator(".line.agent .words").first.inner_text()
    assert "capital of france" in asked.lower()
    assert "Paris" in said
    spoken = recognise(running.server, pcm_of(recording))
    wrong = sum(word not in spoken for word in words(said))
    assert wrong <= max(1, len(words(said)) // 10), (said, spoken)
    assert page.locator(".line.agent s").count() == 0
