"""Drives a `Session` as a shell would: a clock, a microphone, a transport that writes at once, an engine by hand.

Everything the session announced is in `seen`; `take(kind)` gives the actions of one type since the last `mark`.
"""

from collections.abc import Callable
from dataclasses import replace

from session_server.core import actions as a, events as e
from session_server.core.conversation import (
    FunctionCallOutput,
    ItemStatus,
    Message,
    Role,
    TextContent,
)
from session_server.core.session import Session
from session_server.core.settings import (
    CoreParams,
    ResponseOverrides,
    SessionSettings,
    TurnDetection,
    TurnMode,
)
from session_server.types.audio import NS_PER_MS, PlaybackLimits, WordSpan
from session_server.types.ids import SequentialIds
from session_server.types.usage import TokenUsage

FRAME = 512
FRAME_NS = 32 * NS_PER_MS
MS = 24  # output samples in a millisecond

SERVER_VAD = TurnDetection(mode=TurnMode.SERVER_VAD)
SEMANTIC_VAD = TurnDetection(mode=TurnMode.SEMANTIC_VAD)
MANUAL = TurnDetection(mode=TurnMode.MANUAL)


class Drive:
    """One session under test. Audio that the session hands over counts as written at once (`writes`)."""

    def __init__(
        self,
        detection: TurnDetection = SERVER_VAD,
        params: CoreParams | None = None,
        *,
        playback: bool = False,
        writes: bool = True,
        words_after_ms: int = 0,
        speech_release_ms: int = 0,
        **settings: object,
    ) -> None:
        self.settings = SessionSettings(
            turn_detection=detection,
            playback=PlaybackLimits() if playback else None,
            **settings,
        )
        self.params = replace(
            params or CoreParams(),
            speech_release_ms=speech_release_ms,
            words_after_ms=words_after_ms,
        )
        """Most tests count frames of probability, not of sound: `test_turns` has the detector's release,
        `test_interruptions` the least speech whose words are asked for."""
        self.now = 1_000 * NS_PER_MS
        self.session = Session(self.settings, self.params, SequentialIds(), self.now)
        self.writes = writes
        self.input_end = 0
        self.frame_end = 0
        self.seen: list[a.Action] = []
        self.since = 0
        self.watch: Callable[[a.Action], None] | None = None
        self._queue: list[e.Event] = []

    # -- events in, actions out

    def feed(self, event: e.Event) -> list[a.Action]:
        start = len(self.seen)
        self.note(self.session.handle(event, self.now))
        while self._queue:
            self.note(self.session.handle(self._queue.pop(0), self.now))
        return self.seen[start:]

    def note(self, actions: list[a.Action]) -> None:
        """What the session wants done."""
        for action in actions:
            self.seen.append(action)
            if self.watch is not None:
                self.watch(action)
            if isinstance(action, a.SendAudio) and self.writes:
                end = action.start_sample + len(action.pcm) // 2
                self._queue.append(e.AudioWritten(action.part.response_id, end))

    def at(self, instant: int) -> None:
        """Let time pass up to `instant`, firing every deadline on the way."""
        while (due := self.session.next_deadline()) is not None and due <= instant:
            self.now = max(self.now, due)
            self.note(self.session.on_deadline(self.now))
            while self._queue:
                self.note(self.session.handle(self._queue.pop(0), self.now))
        self.now = instant

    def wait(self, ms: float) -> None:
        self.at(self.now + round(ms * NS_PER_MS))

    def mic(self, ms: float, probability: float = 0.0, *, echo: bool = False) -> None:
        """Real-time microphone frames of one voice probability."""
        for _ in range(round(ms / 32)):
            self.at(self.now + FRAME_NS)
            self.input_end += FRAME
            self.frame_end = self.input_end
            self.feed(e.AudioAppended(self.input_end))
            self.feed(e.SpeechProbability(self.frame_end, probability, echo))

    def speak(self, ms: float) -> None:
        self.mic(ms, 0.9)

    def hush(self, ms: float) -> None:
        self.mic(ms, 0.01)

    # -- looking

    def mark(self) -> None:
        self.since = len(self.seen)

    def take(self, kind: type) -> list:
        return [action for action in self.seen[self.since :] if isinstance(action, kind)]

    def one(self, kind: type):
        found = self.take(kind)
        assert len(found) == 1, f"{len(found)} {kind.__name__}"
        return found[0]

    def last(self, kind: type):
        return [x for x in self.seen if isinstance(x, kind)][-1]

    def kinds(self, *but: type) -> list[str]:
        """Names of the announcements since the mark, repeats of the same kind merged."""
        names: list[str] = []
        for action in self.seen[self.since :]:
            name = type(action).__name__
            if name.startswith("Announce") and not (names and names[-1] == name):
                names.append(name)
        return names

    def counted(self, name: str, label: str | None = None) -> float:
        return sum(
            c.value
            for c in self.seen
            if isinstance(c, a.Count) and (c.name, c.label) == (name, label)
        )

    def sent_samples(self, response_id: str) -> int:
        pieces = [
            x for x in self.seen if isinstance(x, a.SendAudio) and x.part.response_id == response_id
        ]
        return sum(len(x.pcm) // 2 for x in pieces)

    # -- the engine

    def transcribe(self, text: str) -> None:
        """Answer the newest recognition."""
        self.feed(e.TranscriptReady(self.last(a.RecogniseRange).work_id, text))

    def judge(self, probability: float) -> None:
        self.feed(e.TurnJudged(self.last(a.JudgeRange).work_id, probability))

    def say(self, rid: str, words: list[str], word_ms: int = 200) -> None:
        """Text, timing and audio of one clause of `words`, each `word_ms` long."""
        start, chars = self._ends.get(rid, (0, 0)) if hasattr(self, "_ends") else (0, 0)
        text = (" " if chars else "") + " ".join(words)
        spans, at, sample = [], chars + (1 if chars else 0), start
        for word in words:
            spans.append(WordSpan(at, at + len(word), sample, sample + word_ms * MS))
            at += len(word) + 1
            sample += word_ms * MS
        end = chars + len(text)
        self.feed(e.TextGenerated(rid, text))
        self.feed(e.ClauseSpoken(rid, chars, end, start, sample, tuple(spans)))
        self.feed(e.AudioGenerated(rid, start, b"\1\2" * (sample - start)))
        if not hasattr(self, "_ends"):
            self._ends = {}
        self._ends[rid] = (sample, end)

    def finish(self, rid: str, reason: str = "stop") -> None:
        self.feed(e.GenerationFinished(rid, reason, TokenUsage(10, 0, 0, 5, 7)))

    # -- the client

    def typed(self, text: str, item_id: str = "") -> None:
        content = (TextContent(text),)
        self.feed(e.ItemCreated(Message(item_id, Role.USER, ItemStatus.COMPLETED, content)))

    def respond(self, event_id: str | None = None, **overrides: object) -> str:
        """A `response.create`; the id of the response that was created."""
        self.feed(e.ResponseRequested(ResponseOverrides(**overrides), None, event_id))
        return self.last(a.AnnounceResponseCreated).response.id

    def answering(self, seconds: float = 4.0, **overrides: object) -> str:
        """A response that has been generated whole and now plays."""
        rid = self.respond(**overrides)
        self.say(rid, [f"w{n}" for n in range(round(seconds * 5))])
        return rid

    def tool_output(self, call_id: str, output: str = "{}") -> None:
        self.feed(e.ItemCreated(FunctionCallOutput("", call_id, output)))
