"""From text to chunks where the talker speaks while the text is being written.

The counterpart of `speech_path` for autoregressive talkers (`streams_text`): one job an answer in
each stage, no clauses, no codec stage. The talker makes a frame a step as long as it has text;
frames gather at the vocoder until a chunk of the size that the chunk rule wants is there, or the
answer has ended. A vocoder may make a chunk in several steps, want a multiple of a number of
frames, or some behind the chunk (`ChunkShape`): a chunk waits for all of that, and once begun is
made without a pause. A chunk that waits for more frames is looked at again when the time for making
them is used up: while the talker serves others, or one of its steps is long, the listener's lead
runs down all the same, and the frames that are there have to go.

Some talkers give their frames in groups of a size that they are told. The steps of such a talker
only hand on what was made elsewhere, so that they last as long as there is to wait, and say little.
So the cost of a frame is learnt from when the groups come: a group's making is from the coming of
the one before, or from the instant at which the talker might go on again, to its own.

Invariants: credits never exceed their edges; a message is the last thing that a step does; chunks
are consecutive.

Units: positions are samples of the stream.
"""

from __future__ import annotations

from collections import deque

from engines.base import (
    AcousticFrames,
    GroupSize,
    JobKey,
    Pcm,
    SpeechJob,
    Stage,
    StepResult,
    TalkJob,
    TalkPiece,
)
from engines.clauses import ClauseText
from session_server.host.pipeline_parts import HostStages, chunk_shape, unit_ns
from session_server.host.speech_path import ChunkSink, PathToAudio, SpokenResponse
from session_server.host.stages.stage_runner import StageRunner
from session_server.process.clock import TimerHandle
from session_server.scheduler.cost_model import Average
from session_server.scheduler.flow_control import Credits
from session_server.scheduler.work import Step
from session_server.types.audio import NS_PER_MS, NS_PER_S


class GroupedFrames:
    """Of one answer. `frame`: what frames cost, shared by all answers of a host. Times are nanoseconds."""

    def __init__(self, talker: StageRunner, key: JobKey, frame: Average) -> None:
        self._talker = talker
        self._key = key
        self._frame = frame
        self._told = 0
        self._since: int | None = None

    @property
    def frame_ns(self) -> int:
        """0 until a group has come."""
        return self._frame.ns

    def tell(self, units: int) -> None:
        """The size of the groups from here on."""
        if units != self._told:
            self._told = units
            self._talker.feed(self._key, GroupSize(units), last=False)

    def may_go_on(self, may: bool, now: int) -> None:
        """Whether the talker may make frames; while it may not, the time that passes is no cost."""
        if not may:
            self._since = None
        elif self._since is None:
            self._since = now

    def came(self, units: int, now: int) -> None:
        if not units:
            return
        if self._since is not None:
            self._frame.observe((now - self._since) // units)
        self._since = now


def grouped_frames(talker: StageRunner, key: JobKey, frame: Average) -> GroupedFrames | None:
    """None for a talker that gives its frames one by one."""
    can = talker.capabilities
    return GroupedFrames(talker, key, frame) if can is not None and can.groups_frames else None


_TALKER, _VOCODER = Stage.TALKER, Stage.VOCODER
_MARGIN = 10
"""A chunk comes earlier than it must by this part of what is ahead of the listener: steps may take three times as long."""

_LOOK_AGAIN_NS = 20 * NS_PER_MS
"""A chunk that waits is looked at again no sooner than this."""


class PieceSplitter:
    """Passes text on as it comes; takes the place of the clause splitter."""

    def __init__(self) -> None:
        self._end = 0

    pending = ""

    def push(self, text: str) -> list[ClauseText]:
        start, self._end = self._end, self._end + len(text)
        return [ClauseText(start, self._end, text)] if text else []

    def flush(self) -> list[ClauseText]:
        return []


class StreamedSpeechPath(PathToAudio):
    """One answer's way from text to audio."""

    def __init__(self, stages: HostStages, sink: ChunkSink, spoken: SpokenResponse) -> None:
        super().__init__(stages, sink, spoken)
        self.frames = Credits(stages.graph.capacity(Stage.TALKER, Stage.VOCODER))
        self._key = JobKey(spoken.session, spoken.response)
        self._talker = stages.stepped[Stage.TALKER]
        self._vocoder = stages.stepped[Stage.VOCODER]
        self._lead = stages.lead
        self._talker_steps = stages.estimates.steps[Stage.TALKER]
        self._vocoder_steps = stages.estimates.steps[Stage.VOCODER]
        self._groups = grouped_frames(self._talker, self._key, stages.estimates.grouped_frame)
        self._transport_ns = stages.params.transport_ns
        self._unit_ns = unit_ns(self._talker)
        self._shape = chunk_shape(self._vocoder)
        largest_ns = int(stages.params.chunk_ladder_s[-1] * NS_PER_S)
        self._most = self._whole(largest_ns // self._unit_ns)
        self._smallest = self._whole(stages.chunks.smallest_ns // self._unit_ns)
        self._pieces: deque[tuple[int, int]] = deque()
        self._chars_waiting = 0
        self._begun = False
        self._talked = False
        self._gathered = 0
        self._offered = self._making = 0
        """Frames that the vocoder may take; of those, the ones of a chunk that it has begun."""
        self._look_ns = self._rings_ns = 0
        self._timer: TimerHandle | None = None
        self._ready_ns = 0
        self._finished = False

    # -- text side

    def say(self, clause: ClauseText, payloads: tuple[object, ...], tokens: int, now: int) -> None:
        """More text, with what the thinker gave for the talker beside it, and the credit of its tokens."""
        if self._talked:  # the talker has ended before its text
            self.tokens.give(tokens)
            return
        if not self._begun:
            self._begun = True
            voice, speed = self._spoken.voice, self._spoken.speed
            self._talker.submit(self._key, TalkJob(voice, speed), self._sink)
            self._vocoder.submit(self._key, SpeechJob(voice), self._sink)
            if self._groups is not None:
                self._groups.tell(self._chunk_units(now))
        text = clause.text
        self._pieces.append((len(text), tokens))
        self._chars_waiting += len(text)
        piece = TalkPiece(text, payloads) if payloads else text
        self._talker.feed(self._key, piece, last=False)
        if len(self._pieces) == 1:  # it had run out of text
            self._offer_talker(now)

    def complete_text(self, now: int) -> None:
        self._text_complete = True
        if self._begun:
            self._talker.feed(self._key, "", last=True)
            self.advance(now)

    @property
    def ahead_s(self) -> float:
        """Speech that the text waiting for the talker would last."""
        return self._speech_s(self._chars_waiting)

    @property
    def idle(self) -> bool:
        """The talker has used up its text."""
        return not self._pieces

    @property
    def done(self) -> bool:
        return self._text_complete and (self._finished or not self._begun)

    @property
    def credits_used(self) -> int:
        return self.tokens.used + self.frames.used

    @property
    def spoken_below_ns(self) -> int:
        """Speech that the talker has made and that has not been delivered."""
        return self._gathered * self._unit_ns

    # -- scheduling

    def advance(self, now: int) -> None:
        if self._ended or not self._begun:
            return
        self._offer_talker(now)
        self._offer_vocoder(now)

    def _offer_talker(self, now: int) -> None:
        if self._talked or self._talker.in_step(self._key):
            return
        if not self.frames.free or not (self._pieces or self._text_complete):
            self._talker.hold(self._key)
            return
        step = Step(
            self._key,
            self._stages.estimates.path_ns(_TALKER, first=False),
            self._gathered * self._unit_ns,
            room_ns=self._unit_ns,
            ahead_ns=self._lead.ns if self._lead is not None else None,
            by_frames=True,
            units=self.frames.free,
            unit_ns=self._unit_ns,
            started=self._talker.is_started(self._key),
        )
        item = self._urgency.item(step, now)
        if self._groups is not None:
            self._groups.may_go_on(item is not None, now)
        if item is None:
            self._talker.hold(self._key)
        else:
            self._talker.ready(item)

    def _offer_vocoder(self, now: int) -> None:
        if self._finished or self._vocoder.in_step(self._key):
            return
        size = self._making or self._next_size(now)
        if not size:
            return
        step = Step(
            self._key,
            self._stages.estimates.path_ns(_VOCODER, first=False),
            units=size,
            unit_ns=self._unit_ns,
            started=self._vocoder.is_started(self._key),
        )
        item = self._urgency.item(step, now)
        if item is None:
            self._vocoder.hold(self._key)
        else:
            self._offered = size
            if not self._ready_ns:
                self._ready_ns = now
            self._vocoder.ready(item)

    def _next_size(self, now: int) -> int:
        """Frames that may go into the next chunk; 0: it waits for more."""
        here = self._gathered if self._talked else self._gathered - self._shape.ahead
        size = self._smallest
        if self._talked or here >= size:
            size = min(self._chunk_units(now), self.frames.capacity - self._shape.ahead)
        if here < size and not self._talked:
            if self._vocoder.is_waiting(self._key):
                self._vocoder.hold(self._key)
            if here >= self._smallest and self._playhead.generated:
                self._wait_for_frames(now)
            return 0
        return max(1, min(here, size if self._stages.chunks.fixed else self._most))

    def _whole(self, frames: int) -> int:
        """So many frames or a few less or more, as the vocoder can take them."""
        unit = self._shape.units
        return max(1, round(frames / unit)) * unit

    def _wait_for_frames(self, now: int) -> None:
        """Until `_look_ns`. One timer: one that rings too early is set anew."""
        if self._timer is not None:
            if self._rings_ns <= self._look_ns:
                return
            self._timer.cancel()
        self._rings_ns = self._look_ns
        delay_s = (self._look_ns - now) / NS_PER_S
        self._timer = self._vocoder.call_later(delay_s, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        now = self._stages.clock.now()
        if self._ended or self._vocoder.is_waiting(self._key):
            return
        if self._look_ns > now:
            self._wait_for_frames(now)
        else:
            self._offer_vocoder(now)

    def _chunk_units(self, now: int) -> int:
        """Frames that make the next chunk, by the time that the listener's lead leaves for making the missing ones."""
        playhead, unit, vocoder_ns = self._playhead, self._unit_ns, self._vocoder_steps.ns
        first = not playhead.generated
        have = 0 if first else max(0, self._gathered - self._shape.ahead) * unit
        talker_ns = self._talker_steps.ns(unit)
        if self._groups is not None:
            talker_ns = self._groups.frame_ns or talker_ns
        transport_ns = self._transport_ns
        delivery_ns = self._stages.estimates.delivery.ns

        def making(audio_ns: int) -> int:
            missing = audio_ns - have
            talking_ns = -(-missing // unit) * talker_ns if missing > 0 else 0
            if first:  # the second chunk is spoken while the first one is vocoded
                return talking_ns + transport_ns
            return talking_ns + max(vocoder_ns(audio_ns), delivery_ns)

        slack = playhead.lead_ns(now) - transport_ns
        margin = talker_ns + (playhead.lead_ns(now) + have) // _MARGIN
        size = self._stages.chunks.size_ns(slack, first, making, margin)
        self._look_ns = now + max(_LOOK_AGAIN_NS, slack - margin - making(size))
        return self._whole(size // unit)

    # -- results

    def on_result(self, stage: Stage, result: StepResult, now: int) -> None:
        if self._ended:
            return
        if stage is _TALKER:
            self._on_frames(result)
        elif stage is _VOCODER:
            self._on_pcm(result, now)
        else:
            raise ValueError(f"no such stage in the speech path: {stage}")
        if not self._ended:
            self._offer_talker(now)
            self._offer_vocoder(now)

    def _on_frames(self, result: StepResult) -> None:
        frames = result.output
        self._talked = result.finished
        if isinstance(frames, AcousticFrames):
            if frames.pieces:
                self._use_up(frames.pieces)
            self.frames.take(frames.units)
            self._gathered += frames.units
            if self._groups is not None:
                self._groups.came(frames.units, self._stages.clock.now())
            self._vocoder.feed(self._key, frames.payload, last=result.finished)
        elif result.finished:
            self._vocoder.feed(self._key, None, last=True)
        if result.finished:
            for _, tokens in self._pieces:
                self.tokens.give(tokens)
            self._pieces.clear()
            self._chars_waiting = 0

    def _use_up(self, pieces: int) -> None:
        """So many pieces of text have been spoken."""
        for _ in range(min(pieces, len(self._pieces))):
            chars, tokens = self._pieces.popleft()
            self._chars_waiting -= chars
            self.chars_spoken += chars
            self.tokens.give(tokens)

    def _on_pcm(self, result: StepResult, now: int) -> None:
        units = min(result.units, self._gathered)
        under_way = self._shape.steps > 1 and not (result.units or result.finished)
        self._making = self._offered if under_way else 0
        self._gathered -= units
        self.frames.give(units)
        self._finished = result.finished
        pcm = result.output.pcm if isinstance(result.output, Pcm) else b""
        if len(pcm) % 2:
            self._sink.fail("the vocoder engine gave half a sample")
        elif pcm:
            self._speak(pcm, now)

    def _speak(self, pcm: bytes, now: int) -> None:
        playhead = self._playhead
        if playhead.generated and self._lead is not None:
            self._lead.delivered(playhead.dry_ns - now)
        if self._ready_ns and playhead.generated:
            self._stages.estimates.delivery.observe(now - self._ready_ns)
        self._ready_ns = 0
        start = self._deliver(pcm, now)
        self._stages.metrics.chunk_frames(
            Stage.VOCODER.value, len(pcm) // 2 * NS_PER_S // playhead.rate // self._unit_ns
        )
        if self._groups is not None and not self._talked:
            self._groups.tell(self._chunk_units(now))
        self._emit(start, pcm, self.chars_spoken + self._chars_waiting, now)

    # -- the end

    def cancel(self) -> None:
        """Take everything of this answer out of the stages. Idempotent."""
        if not self._ended and self._lead is not None and self._playhead.generated:
            self._lead.ended(cut=not self.done)
        self._ended = True
        self._talker.release(self._key)
        self._vocoder.release(self._key)
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
