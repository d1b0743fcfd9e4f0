"""One spoken answer driven by hand, as the host would: its text to the talker, its speech taken as it is wanted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from engines.base import AcousticFrames, JobKey, StepRequest, TalkJob, TalkPiece, ThinkJob
from engines.streaming import Pace
from engines.vllm_omni.speech_stages import OmniTalker
from engines.vllm_omni.thinker import OmniThinker
from tests.until import until


@dataclass
class Speaking:
    """`groups`: frames that came at once, in order. `wanted`: frames after which no more are taken (None: all)."""

    thinker: OmniThinker
    talker: OmniTalker
    key: JobKey
    text: str = ""
    pcm: bytes = b""
    groups: list[int] = field(default_factory=list)
    wanted: int | None = None
    finished: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def begin(self, job: ThinkJob, granted: int | None = None) -> None:
        stream = self.thinker.generate(self.key, job, Pace(granted, 0))
        self.talker.start(self.key, TalkJob(job.voice))

        async def read() -> None:
            async for output in stream:
                if output.text is not None:
                    self.text += output.text
                    piece = (
                        TalkPiece(output.text, output.payloads) if output.payloads else output.text
                    )
                    self.talker.feed(self.key, piece, False)
            self.talker.feed(self.key, "", True)

        self.tasks = [asyncio.ensure_future(read()), asyncio.ensure_future(self._speak())]

    async def _speak(self) -> None:
        while not self.finished:
            if self.wanted is not None and self.frames >= self.wanted:
                await asyncio.sleep(0.01)
                continue
            # the talker's own thread would be another; here its calls alternate with `feed`
            (result,) = await asyncio.to_thread(self.talker.step, [StepRequest(self.key, 128)])
            assert result.error is None, result.error
            self.finished = result.finished
            if isinstance(result.output, AcousticFrames) and result.units:
                frames = result.output.payload
                assert isinstance(frames, tuple)
                self.groups.append(result.units)
                self.pcm += b"".join(frames)

    @property
    def frames(self) -> int:
        return sum(self.groups)

    async def whole(self) -> None:
        async with asyncio.timeout(120):
            await asyncio.gather(*self.tasks)

    async def until(self, frames: int) -> None:
        """Until that many frames have come; the steps that make them are on another thread."""
        await until(lambda: self.frames >= frames, 120)

    def end(self) -> None:
        """As at the end of a response, or a barge-in."""
        self.thinker.abort(self.key)
        self.talker.release(self.key)
        for task in self.tasks:
            task.cancel()
