"""What the camera showed: evidence and its age, and when the assistant speaks up about it.

Owns the evidence of one session: the newest few whole, older ones as a line each, both bounded; and
the kinds of object that the user was last told of.

* An evidence holds from the capture of its frame until that of the newest frame that looked like
  it: its *age* counts from there.
* The evidence of a turn is the newest with a frame from before the end of its speech, or one that
  was forced for it.
* Without a frame for `camera_lost_ms`, or an evidence for `WHOLE_NS`, there is no current picture,
  and none is told as present.
* A change counts against what the user was last told, not against the frame before, so that what
  came and went again is no news. Who has the floor is not this module's business.

Invariants: a change is told once; it must have lasted `PERSIST_NS`, since detectors waver; nothing
is told within `commentary_gap_ms` of the end of the last answer or comment.

Units: positions are samples of the input time line, instants nanoseconds.

Source: docs/video.md. Comments follow the contract of LiveCC and VideoLLM-online: an occasion to
speak is no duty to; a model that answers nothing stays silent.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from session_server.core.context import Context
from session_server.core.conversation import Role
from session_server.core.events import FrameTaken
from session_server.types.audio import NS_PER_MS, NS_PER_S
from session_server.types.prompt import PromptMessage
from session_server.types.vision import CameraView, VisualEvidence

WHOLE_NS = 16 * NS_PER_S
"""Evidence that is older is a line."""
MOST_LINES = 30
LINES_IN_PROMPT = 6
PICTURES_IN_PROMPT = 3
"""Of the past, where each is hundreds of tokens."""
FORCED = "forced"


@dataclass(slots=True)
class Evidence:
    """What was seen in one frame. `holds_ns`: capture of the newest frame that looked like it."""

    frame: FrameTaken
    text: str
    found: VisualEvidence | None
    kinds: tuple[str, ...] | None
    read: bool
    holds_ns: int
    written: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    captured_ns: int
    said: str


class VideoWindow:
    """The camera of one session, as its answers see it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._whole: deque[Evidence] = deque()
        self._lines: deque[_Line] = deque(maxlen=MOST_LINES)
        self._known_ns: int | None = None
        """Capture of the newest frame of which anything is known."""
        self.forgotten = 0
        """How often all was forgotten: whoever remembers what was seen has to forget it, too."""
        self.kinds_since_ns = 0
        """Capture of the first frame from which on all evidence was of the newest one's kinds."""

    # -- what comes in

    def frame_came(self, captured_ns: int) -> None:
        """There is a camera, whether its frame is looked at or not."""
        self._known_ns = max(captured_ns, self._known_ns or 0)

    def add(self, evidence: Evidence) -> None:
        """A second look at the newest frame takes the place of the first."""
        newest = self.newest()
        if newest is None or newest.kinds != evidence.kinds:
            self.kinds_since_ns = evidence.frame.captured_ns
        if newest is not None and newest.frame.frame == evidence.frame.frame:
            self._whole.pop()
        self._whole.append(evidence)
        self._prune()

    def forget(self) -> None:
        self._whole.clear()
        self._lines.clear()
        self._known_ns = None
        self.forgotten += 1

    def _prune(self) -> None:
        chosen = self._context.settings.video
        most = 1 if chosen is None else chosen.max_frames
        oldest = self._context.now - WHOLE_NS
        while len(self._whole) > most or (
            len(self._whole) > 1 and self._whole[0].frame.captured_ns < oldest
        ):
            gone = self._whole.popleft()
            line = _line(gone)
            if gone.kinds is not None and (not self._lines or self._lines[-1].said != line.said):
                self._lines.append(line)

    # -- what is known

    @property
    def held(self) -> tuple[int, int]:
        """How many pictures are kept whole, and how many lines of earlier ones."""
        return len(self._whole), len(self._lines)

    @property
    def alive(self) -> bool:
        """Frames come."""
        lost_ms = self._context.params.camera_lost_ms
        return self._known_ns is not None and self._since_ms(self._known_ns) < lost_ms

    def newest(self) -> Evidence | None:
        return self._whole[-1] if self._whole else None

    def age_ms(self, evidence: Evidence) -> int:
        """How long it has not been confirmed."""
        return self._since_ms(evidence.holds_ns)

    def is_fresh(self, evidence: Evidence) -> bool:
        return self.age_ms(evidence) <= self._context.params.camera_fresh_ms

    def of_turn(self, until_sample: int | None) -> Evidence | None:
        """The evidence for an answer to speech that ended at `until_sample` (None: to something typed); None: there is no current
        picture."""
        newest = self.newest()
        if not self.alive or newest is None or self._context.now - newest.holds_ns > WHOLE_NS:
            return None
        for evidence in reversed(self._whole):
            if belongs(evidence.frame, until_sample):
                return evidence if self.is_fresh(evidence) else newest
        return newest

    def still_good(self, used: Evidence | None, until_sample: int | None) -> bool:
        """Whether an answer that was begun with `used` (None: with no current picture) may be given."""
        evidence = self.of_turn(until_sample)
        if evidence is None or used is None:
            return evidence is used
        if evidence.kinds is None and evidence is not used:
            return False
        same = (evidence.kinds, evidence.written) == (used.kinds, used.written)
        return same and self.is_fresh(evidence)

    # -- what is told

    def shown(
        self, messages: tuple[PromptMessage, ...], until_sample: int | None
    ) -> tuple[PromptMessage, ...]:
        """The prompt, with what the camera shows as the last line of the user's last message."""
        if self._context.settings.video is None:
            return messages
        view, line = self.view(until_sample)
        last = max(
            (
                i
                for i, m in enumerate(messages)
                if m.role == Role.USER.value and m.kind == "message"
            ),
            default=None,
        )
        alone = PromptMessage(Role.USER.value, line, camera=view)
        if last is None:
            return (*messages, alone)
        asked = messages[last]
        if asked.audio is not None:  # its content is no part of the prompt
            return (*messages[: last + 1], alone, *messages[last + 1 :])
        content = f"{asked.content}\n{line}"
        told = PromptMessage(asked.role, content, pictures=asked.pictures, camera=view)
        return (*messages[:last], told, *messages[last + 1 :])

    def view(self, until_sample: int | None = None) -> tuple[CameraView, str]:
        """What the camera shows, and how a prompt says it."""
        earlier = self._earlier()
        more = f" Earlier: {'; '.join(earlier)}." if earlier else ""
        evidence = self.of_turn(until_sample)
        if evidence is not None:
            age_ms = self.age_ms(evidence)
            line = f"[Camera, {_age(age_ms)}: {evidence.text}{more}]"
            return CameraView(evidence.found, age_ms / 1000, earlier), line
        newest = self.newest()
        if newest is None:
            return CameraView(None, 0.0), "[Camera: no current picture.]"
        age_ms = self.age_ms(newest)
        line = f"[Camera: no current picture; the last one came {_age(age_ms)}.{more}]"
        return CameraView(None, age_ms / 1000, earlier), line

    def _earlier(self) -> tuple[str, ...]:
        """The last few states of the past that differ from what came after them, the newest last."""
        newest = self.newest()
        if newest is None:
            return ()
        past = [*self._lines, *map(_line, self._whole)]
        most = LINES_IN_PROMPT if newest.kinds is not None else PICTURES_IN_PROMPT
        lines: list[str] = []
        after = _line(newest).said if self.alive else None
        for line in reversed(past):
            if line.said != after and len(lines) < most:
                lines.append(f"{_age(self._since_ms(line.captured_ns))}: {line.said}")
            after = line.said
        return tuple(reversed(lines))

    def _since_ms(self, instant: int) -> int:
        return max(0, self._context.now - instant) // NS_PER_MS


def belongs(frame: FrameTaken, until_sample: int | None) -> bool:
    """Whether the frame is evidence of speech that ended there."""
    return until_sample is None or frame.at_sample <= until_sample or frame.reason == FORCED


def _line(evidence: Evidence) -> _Line:
    kinds = evidence.kinds
    said = evidence.text if kinds is None else _counted(kinds)
    return _Line(evidence.frame.captured_ns, said)


def _counted(kinds: tuple[str, ...]) -> str:
    """ "2 person, 1 dog"; `kinds` is sorted."""
    if not kinds:
        return "nothing of the known kinds"
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))


def _age(ms: int) -> str:
    if ms < 1000:
        return "now"
    return f"{ms // 1000} s ago" if ms < 60_000 else f"{ms // 60_000} min ago"


PERSIST_NS = NS_PER_S // 2
WORDS = "Tell the user in one short sentence what has changed, or say nothing."


class Commentary:
    """Of one session."""

    def __init__(self, context: Context, window: VideoWindow) -> None:
        self._context = context
        self._window = window
        self._told: tuple[str, ...] | None = None
        self._not_before_ns = 0
        self._forgotten = 0

    def due(self) -> str | None:
        """What there is to tell now, as a prompt says it; asked whenever nobody speaks. It counts as told."""
        chosen, newest = self._context.settings.video, self._window.newest()
        if chosen is None or not chosen.commentary or newest is None or not self._window.alive:
            return None
        self._forget()
        kinds = newest.kinds
        if self._told is None:
            self._told = kinds
        if kinds is None or self._told is None or kinds == self._told:
            return None
        lasted_ns = newest.holds_ns - self._window.kinds_since_ns
        if lasted_ns < PERSIST_NS or self._context.now < self._not_before_ns:
            return None
        before, after = Counter(self._told), Counter(kinds)
        self.told()
        parts = [
            f"{name}: {', '.join(sorted(those.elements()))}"
            for name, those in (("came", after - before), ("left", before - after))
            if those
        ]
        return f"[Camera change: {'; '.join(parts)}] {WORDS}"

    def told(self) -> None:
        """An answer begins that knows what is seen: that is no news any more."""
        self._forget()
        newest = self._window.newest()
        if newest is not None:
            self._told = newest.kinds
        self.rest()

    def rest(self) -> None:
        """An answer begins, or is over: nothing is told for a while from here on."""
        self._not_before_ns = self._context.in_ms(self._context.params.commentary_gap_ms)

    def _forget(self) -> None:
        """What the client has taken back is compared with nothing that comes after it."""
        if self._forgotten != self._window.forgotten:
            self._forgotten = self._window.forgotten
            self._told = None
