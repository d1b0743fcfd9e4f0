"""What a user with a camera hears when asking about it, and how soon: over a real WebSocket, by speech, while the camera runs.

    session-server serve --config configs/cpu-vision.yaml --port 8766 &
    python -m tests.benchmarks.camera_questions ws://127.0.0.1:8766 --photos ../shared/data/photos --turns 24

The camera is a photograph with a sensor's noise, `--fps` JPEG frames a second; it is changed for another one before each question, so
that an answer from the picture before is wrong. Asked is "What do you see?", in the voice of the default talker. The clock starts
when the server says that the turn has ended and stops at the first audible sample of the answer. A noun is one of the 80 kinds that
is told as there (not what there "may be"); those that the photograph does not have are wrong. Labels: `TRUE` of
`tests/integration/vision/test_photographs.py`. The age is that of the evidence when its answer was begun, of /metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import itertools
import json
import re
import statistics
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image
from websockets.asyncio.client import ClientConnection, connect

from engines.vision.labels import KINDS
from loadgen.speech import Clip, clip_from_pcm, room_noise, voiced_range
from session_server.client.sound import Synthesiser
from tests.integration.vision.test_photographs import TRUE

RATE = 24_000
SIZE = (640, 480)
VARIANTS = 20
QUESTION = "What do you see?"
_NAMES = re.compile(rf"\b({'|'.join(sorted(KINDS, key=len, reverse=True))})s?\b")
_PEOPLE = re.compile(r"\bpeople\b")


def frames_of(photograph: Path) -> list[str]:
    """`input_image_buffer.append` messages: the photograph, each time with other noise."""
    rng = np.random.default_rng(0)
    with Image.open(photograph) as image:
        whole = image.convert("RGB")
        whole.thumbnail(SIZE)
    canvas = Image.new("RGB", SIZE, (90, 90, 90))
    canvas.paste(whole, ((SIZE[0] - whole.width) // 2, (SIZE[1] - whole.height) // 2))
    still = np.asarray(canvas).astype(np.int16)
    messages = []
    for _ in range(VARIANTS):
        noisy = (still + rng.normal(0, 3, still.shape)).clip(0, 255).astype(np.uint8)
        out = io.BytesIO()
        Image.fromarray(noisy).save(out, "JPEG", quality=80)
        image_text = base64.b64encode(out.getvalue()).decode()
        messages.append(json.dumps({"type": "input_image_buffer.append", "image": image_text}))
    return messages


@dataclass
class Turn:
    photograph: str
    decided: float | None = None
    audible: float | None = None
    said: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def nouns(self) -> set[str]:
        """What the answer says to be there."""
        unsaid = r"There may [^.]*\.|I (do|did) not see [^.]*\.|The main colours? [^.]*\."
        sure = re.sub(unsaid, "", self.said).lower()
        sure = _PEOPLE.sub("person", re.sub(r'it says: [^.]*\.|"[^"]*"', "", sure))
        return set(_NAMES.findall(sure))

    def wrong(self) -> set[str]:
        return self.nouns() - TRUE[self.photograph]


class User:
    """One microphone and one camera, each on its own absolute instants."""

    def __init__(self, connection: ClientConnection, question: Clip, fps: float) -> None:
        self._connection = connection
        self._question = question
        self._fps = fps
        self._mouth: list[str] = []
        self.camera: list[str] = []
        self.turn: Turn | None = None

    async def microphone(self) -> None:
        room = itertools.cycle(room_noise())
        await self._every(0.02, lambda: self._mouth.pop(0) if self._mouth else next(room))

    async def shoot(self) -> None:
        number = itertools.count()
        await self._every(1 / self._fps, lambda: self.camera[next(number) % len(self.camera)])

    async def _every(self, seconds: float, message) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += seconds
            await asyncio.sleep(due - loop.time())
            await self._connection.send(message())

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        async for frame in self._connection:
            event = json.loads(frame)
            turn, kind = self.turn, event["type"]
            if kind == "error":
                print("error:", event["error"]["message"])
            elif turn is None:
                continue
            elif kind == "input_audio_buffer.speech_stopped":
                turn.decided = loop.time()
            elif kind == "response.output_audio.delta" and turn.audible is None:
                pcm = base64.b64decode(event["delta"])
                try:
                    turn.audible = loop.time() + voiced_range(pcm, RATE)[0] / RATE
                except ValueError:
                    continue
            elif kind == "response.output_audio_transcript.done":
                turn.said = event["transcript"]
            elif kind == "response.done":
                turn.done.set()

    async def ask(self, photograph: str, frames: list[str], look_s: float) -> Turn:
        self.camera = frames
        await asyncio.sleep(look_s)
        self.turn = turn = Turn(photograph)
        self._mouth = list(self._question.frames)
        await asyncio.wait_for(turn.done.wait(), 60)
        await asyncio.sleep(6)  # it plays
        return turn


async def ask_all(options: argparse.Namespace) -> list[Turn]:
    question = clip_from_pcm(QUESTION, Synthesiser().say(QUESTION), QUESTION)
    names = sorted(name for name in TRUE if (options.photos / name).is_file())
    shots = {name: frames_of(options.photos / name) for name in names}
    url = f"{options.url}/v1/realtime?model=x&extensions=video"
    async with connect(url, max_size=None) as connection:
        user = User(connection, question, options.fps)
        user.camera = shots[names[0]]
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(work()) for work in (user.read, user.microphone, user.shoot)
            ]
            turns = []
            for number in range(options.turns):
                name = names[number % len(names)]
                turns.append(await user.ask(name, shots[name], 1.0 + number % 3 * 0.7))
                print(f"{name}: {turns[-1].said}", flush=True)
            for task in running:
                task.cancel()
    return turns


def ages(url: str) -> dict[str, float]:
    """Cumulative counts of the server's histogram, by upper bound in seconds."""
    address = re.sub("^ws", "http", url) + "/metrics"
    with urllib.request.urlopen(address, timeout=5) as answer:
        text = answer.read().decode()
    found = re.findall(r'evidence_age_seconds_bucket\{.*?le="([^"]+)"\} (\S+)', text)
    return {bound: float(count) for bound, count in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="ws://HOST:PORT of a server that sees")
    parser.add_argument("--photos", type=Path, default=Path("../shared/data/photos"))
    parser.add_argument("--turns", type=int, default=24)
    parser.add_argument("--fps", type=float, default=15)
    options = parser.parse_args()
    turns = asyncio.run(ask_all(options))
    heard = sorted(
        1000 * (t.audible - t.decided) for t in turns if t.audible is not None and t.decided is not None
    )  # fmt: skip
    missed = sum(bool(TRUE[t.photograph]) and not t.nouns() & TRUE[t.photograph] for t in turns)
    print(f"\n{len(turns)} turns, {len(heard)} heard")
    if heard:
        p95 = heard[min(len(heard) - 1, round(0.95 * len(heard)))]
        print(
            f"turn end decided -> first audible: P50 {statistics.median(heard):.0f} ms, P95 {p95:.0f} ms"
        )
    print(f"wrong nouns: {[(t.photograph, t.wrong()) for t in turns if t.wrong()]}")
    print(f"answers without what the photograph shows: {missed}")
    print(f"age of the evidence, answers up to each bound in s: {ages(options.url)}")


if __name__ == "__main__":
    main()
