"""A server on simulated engines in a thread of its own, and a real browser with a file for a microphone.

Both live in real time: nothing here depends on how fast they are, the tests wait for what has to happen. Without Chromium
or Playwright they are skipped, with the reason; where CI=true that is a failure. Pictures go to the folder
`$SESSION_SERVER_TEST_ARTEFACTS`.
"""

from __future__ import annotations

import asyncio
import os
import queue
import re
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
from session_server.http.server import Server
from tests.unit.audio.signals import speechlike

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARTEFACTS = Path(os.environ.get("SESSION_SERVER_TEST_ARTEFACTS", "artefacts"))
INSECURE_HOST = "far-away.test"
"""A name for this machine that browsers do not take for this machine: no microphone without https."""
_PATIENCE_MS = 90_000
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--use-fake-device-for-media-stream",
    "--allow-loopback-in-peer-connection", f"--host-resolver-rules=MAP {INSECURE_HOST} 127.0.0.1",
)  # fmt: skip
_SPEECH_S, _SILENCE_S = 1.2, 2.2
_RATE = 48_000
QUICK: dict[str, object] = {
    "server.host": "127.0.0.1",
    "server.port": 0,
    "webrtc.host_addresses": ["127.0.0.1"],
    "webrtc.silence_s": 20,
    "webrtc.connect_s": 60,
    "observability.loop_lag_ms": 60_000,
    "drain.answer_s": 0.1,
    "drain.close_s": 1.0,
}
SENTENCE = "how is the weather in Paris today"


class ServerInAThread:
    """`call` runs a function on its loop. `file` None: the default configuration."""

    def __init__(self, file: Path | None, flags: dict[str, object]) -> None:
        self._file = file
        self._flags = {**QUICK, **flags}
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
        server = self._ready.get(timeout=240)
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
        return f"{self.server.address.http}/"

    def call(self, work: Callable[[Server], Any]) -> Any:
        async def run() -> Any:
            return work(self.server)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(timeout=30)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Nothing happens on its loop: as after a crash of the machine, nothing comes from it and nothing is closed."""
        go_on = threading.Event()
        self._loop.call_soon_threadsafe(go_on.wait, 60)
        try:
            yield
        finally:
            go_on.set()


@contextmanager
def serving(**flags: object) -> Iterator[ServerInAThread]:
    """`flags`: configuration keys with two underscores for the dot."""
    merged: dict[str, object] = {
        "graph.stages.asr.options.text": SENTENCE,
        "graph.stages.thinker.options.words": 300,
        "graph.stages.thinker.options.max_tokens": 4000,
        "scheduler.admission": False,  # how many fit must not depend on how fast this machine is
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


@contextmanager
def chromium(microphone: Path, *more: str) -> Iterator[Any]:
    """`more`: flags. A browser of Playwright's synchronous API: while it is open, no other event loop can run in this thread."""
    in_ci = os.environ.get("CI") == "true"
    if CHROMIUM is None:
        (pytest.fail if in_ci else pytest.skip)("chromium is not installed (.ci/browser does that)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        (pytest.fail if in_ci else pytest.skip)("playwright is not installed (the extra `dev`)")
    with sync_playwright() as running:
        flags = [*FLAGS, f"--use-file-for-fake-audio-capture={microphone}", *more]
        opened = running.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def browser(microphone: Path) -> Iterator[Any]:
    """Of one module, since other modules have loops of their own."""
    with chromium(microphone) as opened:
        yield opened


class Opener:
    """Opens pages of servers. `faults`: errors in a page, what its policy had to forbid, requests to anybody else."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self.contexts: list[Any] = []
        self.faults: list[str] = []

    def __call__(self, url: str, transport: str = "webrtc", **options: object) -> Any:
        chosen = {"permissions": ["microphone", "camera"], "ignore_https_errors": True, **options}
        context = self._browser.new_context(**chosen)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(_PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(f"error in the page: {error}"))
        page.on("console", self._console)
        page.on("request", lambda request: self._request(url, request))
        page.goto(url)
        page.locator("#settings-panel > summary").click()
        page.select_option("select[name=transport]", transport)
        return page

    def _console(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.faults.append(message.text)

    def _request(self, url: str, request: Any) -> None:
        if not request.url.startswith((url, "blob:")):
            self.faults.append(f"a request to {request.url}")

    def shoot(self, name: str) -> None:
        """A picture of every open page, for whoever looks at the artefacts."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        pages = [page for context in self.contexts for page in context.pages]
        for k, page in enumerate(pages):
            page.screenshot(path=ARTEFACTS / f"{name}{f'-{k}' if k else ''}.png")


@pytest.fixture
def open_page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Opener]:
    """Pages for one test; afterwards no page may have had a fault."""
    opener = Opener(browser)
    failed = request.session.testsfailed
    yield opener
    if request.session.testsfailed > failed:
        opener.shoot(f"failed-{re.sub(r'[^a-z0-9]+', '-', request.node.name)}")
    for context in opener.contexts:
        context.close()
    assert opener.faults == []


def state(page: Any, *names: str) -> None:
    """Wait until the page says that it is in one of these states."""
    page.wait_for_selector(", ".join(f"#state[data-state={name}]" for name in names))


def of_client(page: Any, expression: str) -> Any:
    """The value of a JavaScript expression in which `client` is the page's."""
    return page.evaluate(f"import('/main.js').then(({{ client }}) => {expression})")


def until(page: Any, condition: str) -> None:
    """Wait for a JavaScript condition. (Playwright's own `wait_for_function` needs `eval`, which the page's policy forbids.)"""
    page.evaluate(f"""async () => {{
      const latest = performance.now() + {_PATIENCE_MS};
      while (!({condition})) {{
        if (performance.now() > latest) throw new Error('this did not come true: ' + {condition!r});
        await new Promise((done) => setTimeout(done, 20));
      }}
    }}""")


def metric(server: Server, line: str) -> float:
    """The value of the first sample that begins with `line`."""
    page = server.metrics.render().decode()
    return float(next(row.rpartition(" ")[2] for row in page.splitlines() if row.startswith(line)))


TRANSPORTS = ("webrtc", "websocket")
OPEN = ("listening", "hearing", "thinking", "speaking", "held")
"""States of a page that is connected."""
