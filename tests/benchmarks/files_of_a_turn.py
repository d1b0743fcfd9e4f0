"""Product files in which a function runs between a microphone frame and the first audio.

    python -m tests.benchmarks.files_of_a_turn

A server of the default configuration runs in this process under a profile hook, in all of its threads. A client in
a process of its own asks once to warm the server, then once more; what runs from that question's first frame to its
first audio counts. Prints the files and their number. Needs the fetched CPU models.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import tempfile
import threading
import wave
from pathlib import Path
from types import FrameType

from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("session_server", "engines", "loadgen"))
QUESTION = "What is the capital city of France?"
FRAME_BYTES = 960
FRAME_S = 0.02
TRANSCRIBED = {"input": {"transcription": {"model": "any"}}}


class Files:
    """Those in which functions were called while `counting`."""

    def __init__(self) -> None:
        self.counting = False
        self.found: set[str] = set()

    def note(self, frame: FrameType, kind: str, _: object) -> None:
        if self.counting and kind == "call" and frame.f_code.co_name != "<module>":
            self.found.add(frame.f_code.co_filename)

    def ours(self) -> list[str]:
        return sorted(str(Path(f).relative_to(ROOT)) for f in self.found if f.startswith(PACKAGES))


async def until(socket: ClientConnection, kind: str) -> None:
    while json.loads(await socket.recv())["type"] != kind:
        pass


async def ask_twice(url: str, pcm: bytes) -> None:
    """Says on standard output when to begin and to end counting."""
    async with connect(url, proxy=None, compression=None, max_size=None) as socket:
        await until(socket, "session.created")
        session = {"type": "realtime", "audio": TRANSCRIBED}
        await socket.send(json.dumps({"type": "session.update", "session": session}))
        for word in ("warm", "count"):
            print(word, flush=True)
            heard = asyncio.ensure_future(until(socket, "response.output_audio.delta"))
            for k in range(0, len(pcm), FRAME_BYTES):
                audio = base64.b64encode(pcm[k : k + FRAME_BYTES]).decode()
                event = {"type": "input_audio_buffer.append", "audio": audio}
                await socket.send(json.dumps(event))
                await asyncio.sleep(FRAME_S)
            await heard
            print("stop", flush=True)
            await until(socket, "response.done")
            await asyncio.sleep(3)


async def serve(files: Files, sound: Path) -> None:
    from session_server.client.sound import Synthesiser, write_wav
    from session_server.config import load
    from session_server.http.server import serving

    write_wav(sound, Synthesiser().say(QUESTION))
    async with serving(load(flags={"server.port": 0}).config) as server:
        assert server.address is not None
        command = (sys.executable, "-m", __spec__.name, server.address.ws, str(sound))
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert child.stdout is not None
        async for line in child.stdout:
            files.counting = line.strip() == b"count"
        if await child.wait():
            sys.exit("the client failed")


def main() -> None:
    if len(sys.argv) == 3:
        with wave.open(sys.argv[2]) as file:
            pcm = file.readframes(file.getnframes()) + bytes(48_000)
        asyncio.run(ask_twice(sys.argv[1], pcm))
        return
    files = Files()
    threading.setprofile(files.note)
    sys.setprofile(files.note)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(files, Path(folder) / "question.wav"))
    sys.setprofile(None)
    print(*files.ours(), sep="\n")
    print(f"{len(files.ours())} product files")


if __name__ == "__main__":
    main()
