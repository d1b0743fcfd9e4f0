"""How fast the page is ready, and how fast it is silent: `python -m tests.benchmarks.page_latency` (on a machine with nothing else to do).

* connect: from the press of the button to "ready to speak", a fresh browser context each time, over loopback.
* barge-in: from the server's fence to the last audible sample that Chromium's audio graph played. The server runs in a process of
  its own and tells when its fences fall; the browser's meter tells the sample; both clocks are this machine's. What a sound card
  adds comes on top. `page`: ours, over each transport; `stock`: a client that knows neither mute nor play, over WebRTC.

Prints a table and, with `--json`, all samples in milliseconds. Somebody speaks 1 s of 2.8, again and again, over long answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tests.integration.web_client.conftest import CHROMIUM, FLAGS, QUICK, SENTENCE, write_sound
from tests.unit.audio.signals import speechlike

_SPEECH_S, _SILENCE_S, _RATE = 1.0, 1.8, 48_000
_LATEST_S = 2.0
"""A sound that ends later than this after a fence is another one."""

CONNECT = """() => new Promise((done) => {
  const state = document.querySelector('#state');
  const began = performance.now();
  new MutationObserver(() => {
    if (!['idle', 'connecting'].includes(state.dataset.state)) done(performance.now() - began);
  }).observe(state, { attributes: true });
  document.querySelector('#connect').click();
})"""
WATCH = """(meter, context) => {
  window.ends = []; // when sound ended, by the wall clock, in ms
  let told = -Infinity;
  meter.port.addEventListener('message', ({ data }) => {
    if (data.lastLoud === told || data.at - data.lastLoud < 0.2) return;
    told = data.lastLoud;
    window.ends.push(performance.timeOrigin + performance.now() - 1000 * (context.currentTime - data.lastLoud));
  });
  meter.port.start();
}"""
WATCH_PAGE = f"""async () => {{
  const {{ client }} = await import('/main.js');
  ({WATCH})(client.connection.meter, client.connection.context);
}}"""
STOCK = f"""async () => {{
  const peer = new RTCPeerConnection();
  const microphone = await navigator.mediaDevices.getUserMedia({{ audio: true }});
  peer.addTrack(microphone.getTracks()[0], microphone);
  const events = peer.createDataChannel('oai-events');
  const stream = new Promise((done) => {{ peer.ontrack = ({{ streams }}) => done(streams[0]); }});
  await peer.setLocalDescription();
  const answer = await fetch('/v1/realtime/calls', {{
    method: 'POST', body: peer.localDescription.sdp, headers: {{ 'Content-Type': 'application/sdp' }},
  }});
  await peer.setRemoteDescription({{ type: 'answer', sdp: await answer.text() }});
  const sink = document.querySelector('#sink');
  sink.srcObject = await stream;
  sink.play();
  const context = new AudioContext({{ latencyHint: 'interactive' }});
  await context.audioWorklet.addModule('/audio/meter_worklet.js');
  const meter = new AudioWorkletNode(context, 'meter');
  context.createMediaStreamSource(sink.srcObject).connect(meter).connect(context.destination);
  ({WATCH})(meter, context);
  window.kept = [peer, events, microphone, context];
}}"""


# -- the server, in a process of its own


def serve(told: Connection) -> None:
    """Send the port, then the wall-clock time of each fence of a barge-in, until the other end says anything."""
    from session_server.config import load
    from session_server.http.server import serving
    from session_server.process.lifecycle import run
    from session_server.session.timing import StopTiming

    fence = StopTiming.fence

    def tell(self: StopTiming, now: int) -> None:
        if self._certain:
            told.send(time.time() * 1000)
        fence(self, now)

    StopTiming.fence = tell  # type: ignore[method-assign]
    flags: dict[str, object] = {
        **QUICK,
        "graph.stages.asr.options.text": SENTENCE,
        "graph.stages.thinker.options.words": 300,
        "graph.stages.thinker.options.max_tokens": 4000,
    }

    async def live() -> None:
        async with serving(load(Path("configs/sim.yaml"), flags=flags).config) as server:
            assert server.address is not None
            told.send(server.address.port)
            await asyncio.to_thread(told.recv)

    run(live())


@contextmanager
def server() -> Iterator[tuple[str, Callable[[], list[float]]]]:
    """The page's URL, and what gives the fences since it was called last."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,))
    process.start()
    port = ours.recv()

    def fences() -> list[float]:
        found = []
        while ours.poll():
            found.append(ours.recv())
        return found

    yield f"http://127.0.0.1:{port}/", fences
    ours.send("enough")
    process.join(30)
    if process.is_alive():
        process.kill()


# -- the browser


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as running:
        file = Path(folder) / "speech.wav"
        speech = speechlike(_SPEECH_S, _RATE, 1, rms=5000.0)
        sound = np.concatenate([speech, np.zeros(int(_SILENCE_S * _RATE))])
        write_sound(file, sound.astype("<i2").tobytes())
        flags = [
            *FLAGS,
            f"--use-file-for-fake-audio-capture={file}",
            "--autoplay-policy=no-user-gesture-required",
        ]
        opened = running.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield opened
        opened.close()


def opened(browser: Any, url: str, transport: str) -> Any:
    """A page in a context of its own, with this transport."""
    page = browser.new_context(permissions=["microphone"]).new_page()
    page.goto(url)
    page.locator("#settings-panel > summary").click()
    page.select_option("select[name=transport]", transport)
    page.uncheck("input[name=echoCancellation]")
    return page


def connect_times(browser: Any, url: str, transport: str, count: int) -> list[float]:
    """Milliseconds from the button to the state that follows "connecting"."""
    found = []
    for _ in range(count):
        page = opened(browser, url, transport)
        found.append(page.evaluate(CONNECT))
        page.click("#connect")
        page.wait_for_selector("#state[data-state=idle]")
        page.context.close()
    return found


def stop_times(
    browser: Any, url: str, fences: Callable[[], list[float]], client: str, count: int
) -> list[float]:
    """Milliseconds from each fence to the last audible sample; `client`: a transport, or `stock`."""
    page = opened(browser, url, "webrtc" if client == "stock" else client)
    if client == "stock":
        page.evaluate(STOCK)
    else:
        page.evaluate(CONNECT)
        page.evaluate(WATCH_PAGE)
    fences()
    fallen: list[float] = []
    ends: list[float] = []
    while len(fallen) < count:
        page.wait_for_timeout(1000)
        fallen += fences()
        ends = page.evaluate("window.ends")
    page.wait_for_timeout(1000)
    ends = page.evaluate("window.ends")
    page.context.close()
    return matched(fallen, ends)


def matched(fences: list[float], ends: list[float]) -> list[float]:
    """From each fence to the end of sound that belongs to it: the last one before the next fence, and not long after."""
    found = []
    for k, fence in enumerate(fences):
        until = min([fence + 1000 * _LATEST_S, *fences[k + 1 : k + 2]])
        near = [end for end in ends if fence - 200 <= end < until]
        if near:
            found.append(near[-1] - fence)
    return found


# -- what is said of it


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--connects", type=int, default=15, help="connections for each transport")
    parser.add_argument("--stops", type=int, default=30, help="barge-ins for each client")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all samples")
    options = parser.parse_args()
    samples: dict[str, list[float]] = {}
    with server() as (url, fences), browser() as chromium:
        for transport in ("webrtc", "websocket"):
            name = f"connect, {transport}"
            samples[name] = connect_times(chromium, url, transport, options.connects)
            print(line(name, samples[name]), flush=True)
        for client in ("webrtc", "websocket", "stock"):
            name = f"fence -> silent, {'stock client' if client == 'stock' else f'page, {client}'}"
            samples[name] = stop_times(chromium, url, fences, client, options.stops)
            print(line(name, samples[name]), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(samples, indent=1))


def line(name: str, found: list[float]) -> str:
    low, p50, p95, high = np.percentile(found, [0, 50, 95, 100])
    return f"{name:34} n={len(found):3}  p50 {p50:6.1f}  p95 {p95:6.1f}  [{low:.0f} {high:.0f}] ms"


if __name__ == "__main__":
    main()
