"""The pictures of the page in the docs: `python -m tests.benchmarks.page_pictures` (models fetched, a machine with nothing else to do).

The default server, its real models, and somebody who asks, asks for a story, and interrupts it. Writes `page.png` and
`page_phone.png` into `docs/images`, or where `--folder` says.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from session_server.client.sound import Synthesiser
from tests.integration.web_client.conftest import ServerInAThread, chromium, state, write_sound

SCRIPT: Sequence[tuple[float, str]] = (
    (1.0, "What is the capital of France?"),
    (4.5, "Tell me a long story about a cat."),
    (5.5, "Stop."),
    (0.8, "What is the capital of Italy?"),
    (30.0, ""),
)
"""Seconds of silence, then what is said."""
PICTURES: Sequence[tuple[str, dict[str, object]]] = (
    ("page.png", {"viewport": {"width": 1280, "height": 800}}),
    (
        "page_phone.png",
        {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark", "has_touch": True},
    ),
)


def speech() -> bytes:
    """SCRIPT as s16le at 48 kHz."""
    voice = Synthesiser()
    parts = []
    for silence_s, text in SCRIPT:
        parts.append(np.zeros(int(silence_s * 48_000), "<i2"))
        if text:
            parts.append(np.repeat(np.frombuffer(voice.say(text), "<i2"), 2))
    return np.concatenate(parts).tobytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    folder = parser.parse_args().folder
    with tempfile.TemporaryDirectory() as work:
        microphone = Path(work) / "speech.wav"
        write_sound(microphone, speech())
        with ServerInAThread(None, {}) as server, chromium(microphone) as browser:
            for name, options in PICTURES:
                page = browser.new_context(permissions=["microphone"], **options).new_page()
                page.set_default_timeout(60_000)
                page.goto(server.url)
                page.click("#connect")
                page.wait_for_selector(".line.agent s")
                page.wait_for_selector(".line.user .heard:has-text('Italy')")
                state(page, "speaking")
                page.wait_for_timeout(900)
                page.screenshot(path=folder / name)
                page.context.close()
                print(folder / name)


if __name__ == "__main__":
    main()
