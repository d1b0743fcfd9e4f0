"""The user's voice as the core hears it: only the frames of voice probability that can change a decision.

A real session gets a frame every 32 ms, for as long as it lives. Frames of silence without an open utterance change
nothing, nor do voiced ones in the middle of a turn; so only these are fed:

* the silent frame before an onset and the voiced ones until the onset is certain;
* every frame while speech over an answer is undecided (its length counts);
* the last voiced frame, the first silent one, and each one at which a silence limit may be reached;
* before any other event, the latest frame that has arrived by then, while an utterance is open.

The decisions are those of the whole stream: a test compares the two. Positions are samples at INPUT_RATE since the
session began; frame f ends at sample `(f + 1) * FRAME`, and leaves the client with the packet that completes it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from session_server.core.events import AudioAppended, Event, SpeechProbability
from session_server.core.settings import CoreParams, TurnDetection, TurnMode
from session_server.core.turn_taking import UNDECIDED, TurnState
from session_server.simulation.network import Path
from session_server.simulation.virtual_loop import Alarm, VirtualLoop
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S

FRAME = 512
PACKET = INPUT_RATE // 50
_FRAME_NS = FRAME * NS_PER_S // INPUT_RATE
_QUIET = frozenset({TurnState.LISTENING, TurnState.ANSWERING, TurnState.CLOSED})


class SpeechEdges:
    """One session's input. `handle` feeds the core, `state` is its turn state. `whole`: every frame, for comparison.
    `release_ms`: the detector takes so much of what follows speech for speech."""

    def __init__(
        self,
        loop: VirtualLoop,
        path: Path,
        handle: Callable[[Event], None],
        state: Callable[[], TurnState],
        detection: TurnDetection,
        params: CoreParams,
        *,
        release_ms: int = 0,
        whole: bool = False,
    ) -> None:
        self._loop = loop
        self._path = path
        self._handle = handle
        self._state = state
        self._origin = loop.time
        self._whole = whole
        self._release_ns = release_ms * NS_PER_MS
        self._runs: list[tuple[int, int]] = []
        self._fed = -1
        self._next = -1
        self._alarm: Alarm | None = None
        self._limits = _limits(detection, params)
        if whole:
            self._schedule(0)

    def speak(self, begin: int, end: int) -> None:
        """The user will be voiced from `begin` to `end`, instants of the client."""
        first = -((self._origin + _FRAME_NS // 2 - begin) // _FRAME_NS)
        last = (end + self._release_ns - self._origin - _FRAME_NS // 2) // _FRAME_NS
        if last < first:
            return
        self._runs = [*self._runs[-3:], (first, last)]
        wanted = max(self._fed + 1, first - 1)
        if not self._whole and (self._alarm is None or wanted < self._next):
            self._schedule(wanted)

    def position(self, instant: int) -> int:
        """Sample that the client captured at `instant`."""
        return (instant - self._origin) * INPUT_RATE // NS_PER_S

    def catch_up(self) -> None:
        """Before another event: what has been heard by now."""
        if self._state() in _QUIET or self._whole:
            return
        here = self._loop.time - self._path.usual_ns - self._origin
        packets = here * INPUT_RATE // (NS_PER_S * PACKET)
        frame = packets * PACKET // FRAME - 1
        if frame > self._fed:
            self._feed(frame)

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _schedule(self, frame: int) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._next = frame
        packets = -(-(frame + 1) * FRAME // PACKET)
        captured = self._origin + packets * PACKET * NS_PER_S // INPUT_RATE
        self._alarm = self._loop.at(captured + self._path.delay_ns(), self._arrive, frame)

    def _arrive(self, frame: int) -> None:
        self._alarm = None
        if frame > self._fed:
            self._feed(frame)
        following = self._following(max(frame, self._fed))
        if following is not None:
            self._schedule(following)

    def _feed(self, frame: int) -> None:
        self._fed = frame
        end = (frame + 1) * FRAME
        self._handle(AudioAppended(-(-end // PACKET) * PACKET))
        self._handle(SpeechProbability(end, 1.0 if self._voiced(frame) else 0.0))

    def _voiced(self, frame: int) -> bool:
        return any(first <= frame <= last for first, last in self._runs)

    def _following(self, frame: int) -> int | None:
        """The next frame that matters, given what the core made of the last one."""
        if self._whole:
            return frame + 1
        state = self._state()
        if state is TurnState.CLOSED:
            return None
        coming = next((first for first, _ in self._runs if first > frame), None)
        wanted = self._in_utterance(frame, state)
        if coming is not None:
            ahead = max(frame + 1, coming - 1)
            wanted = ahead if wanted is None else min(wanted, ahead)
        return wanted

    def _in_utterance(self, frame: int, state: TurnState) -> int | None:
        run = next(((a, b) for a, b in reversed(self._runs) if a <= frame + 1), None)
        if run is None:
            return None
        _, last = run
        if state in _QUIET:
            return frame + 1 if frame < last else None
        if state in UNDECIDED or state not in (TurnState.HEARING, TurnState.TRAILING):
            return frame + 1
        if frame < last:
            return last
        silent = frame - last
        at = bisect_right(self._limits, silent)
        return last + self._limits[at] if at < len(self._limits) else frame + 4


def _limits(detection: TurnDetection, params: CoreParams) -> list[int]:
    """Frames of silence at which something may be decided, rising."""
    limits_ms = {params.recognise_after_ms, params.draft_after_ms}
    if detection.mode is TurnMode.SEMANTIC_VAD:
        limits_ms |= {
            params.turn_model_after_ms,
            params.complete_silence_ms,
            params.incomplete_silence_ms,
            params.fallback_silence_ms,
        }
    else:
        limits_ms.add(detection.silence_ms)
    frame_ms, release_ms = FRAME * 1000 // INPUT_RATE, params.speech_release_ms
    return sorted({1, *(max(1, -((release_ms - ms) // frame_ms)) for ms in limits_ms)})
