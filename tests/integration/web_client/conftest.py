"""A server on simulated engines in a thread of its own, and a real browser with a file for a microphone.

Both live in real time: nothing here depends on how fast they are, the tests wait for what has to happen. They are skipped,
with the reason, where there is no Chromium or no Playwright.
"""

from __future__ import annotations

import asyncio
import queue
import shutil
import threading
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session_server.config import load
from session_server.runtime.server import Server
from tests.unit.audio.signals import speechlike

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required", "--allow-loopback-in-peer-connection",
)  # fmt: skip
_SPEECH_S, _SILENCE_S = 1.2, 2.2
_RATE = 48_000
_QUICK: dict[str, object] = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "webrtc.host_addresses": ["127.0.0.1"],
    "observability.loop_lag_ms": 60_000,
    "drain.answer_s": 0.1,
    "drain.close_s": 1.0,
}
SENTENCE = "how is the weather in Paris today"


class ServerInAThread:
    """`call` runs a function on its loop. `file` None: the default configuration."""

    def __init__(self, file: Path | None, flags: dict[str, object]) -> None:
        self._file = file
        self._flags = {**_QUICK, **flags}
        self._ready: queue.Queue[Server | BaseException] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))

    async def _live(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = Server(load(self._file, flags=self._flags).config)
            await server.start()
        except BaseException as fault:
            self._ready.put(fault)
            raise
        self._ready.put(server)
        await self._stop.wait()
        await server.stop()

    def __enter__(self) -> ServerInAThread:
        self._thread.start()
        server = self._ready.get(timeout=30)
        if isinstance(server, BaseException):
            raise server
        self.server = server
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.address.port}/"

    def call(self, work: Callable[[Server], Any]) -> Any:
        async def run() -> Any:
            return work(self.server)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=10)


@contextmanager
def serving(**flags: object) -> Iterator[ServerInAThread]:
    """`flags`: configuration keys with two underscores for the dot."""
    merged: dict[str, object] = {
        "graph.stages.asr.options.text": SENTENCE,
        "graph.stages.thinker.options.words": 300,
        "graph.stages.thinker.options.max_tokens": 4000,
    }
    merged.update({key.replace("__", "."): value for key, value in flags.items()})
    with ServerInAThread(Path("configs/sim.yaml"), merged) as running:
        yield running


@pytest.fixture(scope="module")
def running() -> Iterator[ServerInAThread]:
    with serving() as server:
        yield server


@pytest.fixture(scope="session")
def microphone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody who speaks again and again, with pauses; the browser plays it in a circle."""
    file = tmp_path_factory.mktemp("microphone") / "speech.wav"
    sound = [speechlike(_SPEECH_S, _RATE, 1, rms=5000.0), np.zeros(int(_SILENCE_S * _RATE))]
    write_sound(file, np.concatenate(sound).astype("<i2").tobytes())
    return file


def write_sound(file: Path, pcm: bytes) -> None:
    """s16le at 48 kHz, as Chromium wants it."""
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(_RATE)
        out.writeframes(pcm)


@pytest.fixture(scope="module")
def browser(microphone: Path) -> Iterator[Any]:
    """Of one module: while it is open, no other event loop can run in this thread."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        flags = [*_FLAGS, f"--use-file-for-fake-audio-capture={microphone}"]
        opened = running.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page of a server. Afterwards: no error in it, and no request to anybody else."""
    contexts, faults = [], list[str]()

    def open_one(url: str, transport: str = "webrtc", **options: object) -> Any:
        context = browser.new_context(permissions=["microphone", "camera"], **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: faults.append(f"error in the page: {error}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((url, "blob:")) else faults.append(request.url)
            ),
        )
        page.goto(url)
        page.locator("#settings-panel > summary").click()
        page.select_option("select[name=transport]", transport)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert faults == []
