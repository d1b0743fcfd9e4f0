"""How a duplex model takes turns, heard over a real WebSocket: `python -m tests.benchmarks.duplex_turns [--config FILE] [--data FOLDER]`.

Kinds of the full-duplex benchmarks, with definitions of our own, so not comparable with their figures: turn end, pauses inside a turn,
interruptions, backchannels, noise and silence. The client sends 20 ms at a time on absolute instants and plays what comes in real
time on the same clock; what plays is flushed when the server says that the user interrupts. The model is active where what plays
is above -50 dBFS. Speech and noise are files of a folder with `speech/`, `backchannel/` and `noise/`. A rate comes with its count.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import statistics
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection

from session_server.config import load
from session_server.http.server import Server, serving

Sound = npt.NDArray[np.int16]
RATE = 24_000
STEP = RATE // 50
STEP_S = 0.02
ACTIVE_DBFS = -50.0
VOICED_DBFS = -40.0


def active(frame: Sound, above: float) -> bool:
    power = float(np.mean((frame / 32768.0) ** 2))
    return bool(10 * np.log10(max(power, 1e-12)) >= above)


def steps(sound: Sound) -> Iterator[Sound]:
    for at in range(0, len(sound) - STEP + 1, STEP):
        yield sound[at : at + STEP]


def read(file: Path, most_s: float = 6.0) -> Sound:
    """At RATE, from the first voiced step to the last one; the whole of what has none."""
    wave, rate = soundfile.read(file, dtype="float32")
    wave = soxr.resample(wave[: int(most_s * rate)], rate, RATE)
    sound: Sound = (wave * 32767).clip(-32768, 32767).astype(np.int16)
    voiced = [n for n, step in enumerate(steps(sound)) if active(step, VOICED_DBFS)]
    return sound[voiced[0] * STEP : (voiced[-1] + 1) * STEP] if voiced else sound


def silence(seconds: float) -> Sound:
    return np.zeros(int(seconds * RATE), np.int16)


@dataclass
class Line:
    """One conversation on one clock. `spoke`: for each step so far, whether the model was heard."""

    connection: AsyncRealtimeConnection
    spoke: list[bool] = field(default_factory=list)
    ear: bytearray = field(default_factory=bytearray)
    errors: list[str] = field(default_factory=list)
    due: float = 0.0

    async def read(self) -> None:
        async for event in self.connection:
            if event.type == "response.output_audio.delta":
                self.ear += base64.b64decode(event.delta)
            elif event.type == "input_audio_buffer.speech_started":
                self.ear.clear()
            elif event.type == "error":
                self.errors.append(event.error.message)

    @property
    def now(self) -> int:
        return len(self.spoke)

    async def step(self, frame: Sound) -> None:
        audio = base64.b64encode(frame.tobytes()).decode()
        await self.connection.input_audio_buffer.append(audio=audio)
        loop = asyncio.get_running_loop()
        self.due = (self.due or loop.time()) + STEP_S
        await asyncio.sleep(max(0.0, self.due - loop.time()))
        played = np.frombuffer(bytes(self.ear[: 2 * STEP]).ljust(2 * STEP, b"\0"), "<i2")
        del self.ear[: 2 * STEP]
        self.spoke.append(active(played, ACTIVE_DBFS))

    async def say(self, sound: Sound) -> tuple[int, int]:
        """The steps of its beginning and its end."""
        began = self.now
        for frame in steps(sound):
            await self.step(frame)
        return began, self.now

    async def until(self, true: Callable[[], bool], limit_s: float) -> bool:
        """In silence."""
        for _ in range(int(limit_s / STEP_S)):
            if true():
                return True
            await self.step(np.zeros(STEP, np.int16))
        return true()

    def first(self, since: int) -> int | None:
        return next((n for n in range(since, self.now) if self.spoke[n]), None)

    def last(self, since: int) -> int | None:
        return next((n for n in range(self.now - 1, since - 1, -1) if self.spoke[n]), None)


@dataclass(frozen=True, slots=True)
class Found:
    """One trial. `held`: the rate's event; `seconds`: the latency, if there is one."""

    kind: str
    held: bool
    seconds: float | None = None


async def turn_end(line: Line, speech: Sound) -> Found:
    _, end = await line.say(speech)
    await line.until(lambda: line.first(end) is not None, 4.0)
    first = line.first(end)
    return Found("turn end: answered", first is not None, _seconds(first, end))


def pause(length_s: float) -> Callable[[Line, Sound], Awaitable[Found]]:
    async def trial(line: Line, speech: Sound) -> Found:
        half = len(speech) // 2
        began, _ = await line.say(np.concatenate((speech[:half], silence(length_s), speech[half:])))
        return Found(f"pause of {length_s} s: cut in", line.first(began) is not None)

    return trial


async def interruption(line: Line, speech: Sound) -> Found:
    """Yield: silent within 2 s of the interruption's beginning, and for half a second from then on."""
    if not await _answering(line, speech):
        return Found("interruption: yielded", False)
    began, _ = await line.say(speech[: 2 * RATE])
    await line.until(lambda: line.now - began >= 2.5 / STEP_S, 3.0)
    stop = next((n for n in range(began, began + 100) if not any(line.spoke[n : n + 25])), None)
    return Found("interruption: yielded", stop is not None, _seconds(stop, began))


def backchannel(short: Sound) -> Callable[[Line, Sound], Awaitable[Found]]:
    async def trial(line: Line, speech: Sound) -> Found:
        if not await _answering(line, speech):
            return Found("backchannel: went on", False)
        _, end = await line.say(short)
        await line.until(lambda: line.now - end >= 1.0 / STEP_S, 2.0)
        return Found("backchannel: went on", any(line.spoke[end : end + 50]))

    return trial


async def noise(line: Line, sound: Sound) -> Found:
    began, _ = await line.say(sound)
    await line.until(lambda: False, 1.0)
    return Found("noise alone: answered", line.first(began) is not None)


async def nothing(line: Line, sound: Sound) -> Found:
    await line.until(lambda: False, 10.0)
    return Found("10 s of silence: spoke", line.first(0) is not None)


async def _answering(line: Line, speech: Sound) -> bool:
    """Half a second into an answer."""
    _, end = await line.say(speech[: 2 * RATE])
    if not await line.until(lambda: line.first(end) is not None, 4.0):
        return False
    return await line.until(lambda: sum(line.spoke[end:]) >= 25, 4.0)


def _seconds(at: int | None, since: int) -> float | None:
    return None if at is None else (at - since) * STEP_S


Trial = tuple[Callable[[Line, Sound], Awaitable[Found]], Sound]


def trials(data: Path, each: int) -> list[Trial]:
    speech = [read(file) for file in sorted((data / "speech").glob("*.flac"))]
    speech = [sound for sound in speech if len(sound) >= 2 * RATE][:each]
    short = [read(file, 1.0) for file in sorted((data / "backchannel").glob("*.flac"))]
    noises = [read(file, 5.0) for file in sorted((data / "noise").glob("*.flac"))][:each]
    found: list[Trial] = [(turn_end, sound) for sound in speech]
    for length_s in (0.2, 0.5, 0.8):
        found += [(pause(length_s), sound) for sound in speech]
    found += [(interruption, sound) for sound in speech]
    found += [(backchannel(sound), other) for sound in short for other in speech]
    found += [(noise, sound) for sound in noises]
    return [*found, (nothing, silence(1.0))]


async def run(server: Server, trial: Trial, places: asyncio.Semaphore) -> Found:
    assert server.address is not None
    of, sound = trial
    client = AsyncOpenAI(api_key="none", base_url=f"{server.address.http}/v1", max_retries=0)
    async with (
        places,
        client.realtime.connect(model="any") as connection,
    ):
        line = Line(connection)
        reading = asyncio.create_task(line.read())
        try:
            await line.until(lambda: False, 0.3)
            return await of(line, sound)
        finally:
            reading.cancel()


def table(found: Iterable[Found]) -> str:
    kinds: dict[str, list[Found]] = {}
    for one in found:
        kinds.setdefault(one.kind, []).append(one)
    rows = ["| kind | n | rate | latency, median / longest, ms |", "|---|---|---|---|"]
    for kind, of in kinds.items():
        took = [one.seconds * 1e3 for one in of if one.seconds is not None]
        times = f"{statistics.median(took):.0f} / {max(took):.0f}" if took else "-"
        rows.append(f"| {kind} | {len(of)} | {sum(x.held for x in of)}/{len(of)} | {times} |")
    return "\n".join(rows)


async def main(config: Path, data: Path, each: int, at_once: int) -> Sequence[Found]:
    flags = {"server.host": "127.0.0.1", "server.port": 0, "observability.loop_lag_ms": 60_000}
    async with serving(load(config, flags=flags).config) as server:
        places = asyncio.Semaphore(at_once)
        found = await asyncio.gather(*(run(server, one, places) for one in trials(data, each)))
        page = server.metrics.render().decode()
    for line in page.splitlines():
        if line.startswith(("session_server_duplex_ticks", "session_server_duplex_frames")):
            sys.stdout.write(f"{line}\n")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--config", type=Path, default=Path("configs/sim-duplex.yaml"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--each", type=int, default=12, help="files of a kind")
    parser.add_argument("--at-once", type=int, default=4, help="conversations at a time")
    asked = parser.parse_args()
    sys.stdout.write(table(asyncio.run(main(asked.config, asked.data, asked.each, asked.at_once))))
    sys.stdout.write("\n")
