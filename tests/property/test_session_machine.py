"""Any interleaving of client, engine, transport, timers and disconnects keeps the session's invariants.

The engine is simulated from the actions: what was asked for may be answered, failed, or left alone, in any order;
results of cancelled work may still arrive. The transport writes when it likes, and obeys purges. At the end a second session
lives through the same events, with nobody looking at it, and does the same.
"""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from session_server.core import actions as a, events as e
from session_server.core.context import Timer
from session_server.core.conversation import (
    FunctionCallOutput,
    ImageContent,
    InputAudioContent,
    ItemStatus,
    Message,
    OutputAudioContent,
    Role,
    TextContent,
)
from session_server.core.response import ResponsePhase
from session_server.core.session import Session
from session_server.core.settings import (
    CoreParams,
    Modality,
    ResponseOverrides,
    SessionSettings,
    TurnDetection,
    TurnMode,
)
from session_server.core.turn_taking import TurnState
from session_server.types.audio import NS_PER_MS, PlaybackLimits, WordSpan
from session_server.types.ids import SequentialIds
from session_server.types.usage import TokenUsage
from session_server.types.vision import VideoLimits, VisualEvidence
from tests.property.session_observer import Observer

pytestmark = pytest.mark.property

WORD = 2_400  # samples of one word: 100 ms
FRAME = 512
NOTHING_FOUND = VisualEvidence((), None, (), "normal", 640, 480)
EAGER_VIDEO = VideoLimits(max_fps=10, max_frames=2, commentary=True, report=True)
AT_REST = (TurnState.LISTENING, TurnState.CLOSED)


def detections() -> st.SearchStrategy[TurnDetection]:
    return st.builds(
        TurnDetection,
        mode=st.sampled_from([TurnMode.SERVER_VAD, TurnMode.SEMANTIC_VAD] * 2 + [TurnMode.MANUAL]),
        silence_ms=st.sampled_from([200, 500]),
        idle_timeout_ms=st.sampled_from([None, None, 5_000]),
        create_response=st.booleans() | st.just(True),
        interrupt_response=st.booleans() | st.just(True),
        eagerness=st.sampled_from(["auto", "low", "high"]),
    )


def all_settings() -> st.SearchStrategy[SessionSettings]:
    return st.builds(
        SessionSettings,
        turn_detection=detections(),
        modality=st.sampled_from([Modality.AUDIO, Modality.AUDIO, Modality.TEXT]),
        transcribe=st.booleans(),
        playback=st.sampled_from([None, PlaybackLimits()]),
        server_plays=st.sampled_from([False, False, True]),
        sees=st.booleans(),
        video=st.sampled_from([None, None, VideoLimits(), EAGER_VIDEO]),
    )


class SessionMachine(RuleBasedStateMachine):
    """A session, its client, its engine host and its transport."""

    @initialize(
        settings=all_settings(),
        params=st.builds(
            CoreParams,
            strict_truncate=st.booleans(),
            speculate=st.booleans(),
            warm_up_ms=st.sampled_from([0, 0, 3_000]),
            max_items=st.sampled_from([6, 1_000]),
            max_session_ms=st.sampled_from([0, 0, 60_000]),
        ),
    )
    def begin(self, settings: SessionSettings, params: CoreParams) -> None:
        self.now = 10**9
        self.settings, self.params = settings, params
        self.first_settings = settings
        self.session = Session(settings, params, SequentialIds(), self.now)
        self.observer = Observer()
        self.input_end = 0
        self.outbox: list[a.SendAudio] = []
        self.works: list[a.RecogniseRange | a.JudgeRange | a.AnalyseImage | a.LookAtFrame] = []
        self.frames = self.frames_kept_from = 0
        self.look: str | None = None
        self.asked: dict[str, a.StartGeneration] = {}
        self.generated: dict[str, int] = {}
        self.said: dict[str, list[WordSpan]] = {}
        self.chars: dict[str, int] = {}
        self.untimed: set[str] = set()
        self.calls: dict[str, int] = {}
        self.items: list[str] = []
        self.call_ids: list[str] = []
        self.last: list[a.Action] = []
        self.past: list[tuple[int, e.Event | None, list[a.Action]]] = []
        self.held = False

    # -- plumbing

    def act(self, actions: list[a.Action]) -> None:
        self.last = actions
        for action in actions:
            self.observer.see(action)
            match action:
                case a.SendAudio():
                    self.outbox.append(action)
                case a.PurgeAudio(response_id):
                    self.outbox = [x for x in self.outbox if x.part.response_id != response_id]
                case a.HoldAudio() | a.ReleaseAudio():
                    assert self.settings.server_plays
                    self.held = isinstance(action, a.HoldAudio)
                case a.RecogniseRange() | a.JudgeRange() | a.AnalyseImage():
                    self.works.append(action)
                case a.LookAtFrame(work_id, frame):
                    assert self.look is None, "one look at a time"
                    assert self.frames_kept_from <= frame <= self.frames
                    self.look = work_id
                    self.works.append(action)
                case a.ForgetFrames(before):
                    self.frames_kept_from = before
                case a.CancelWork(self.look):
                    self.look = None
                case a.StartGeneration():
                    self.asked[action.response_id] = action
                    self._check_prompt(action)
                case a.AnnounceItemAdded(item):
                    self.items.append(item.id)
                case a.AnnounceCallDone():
                    self.call_ids.append(action.call_id)

        self._check_cuts(actions)

    def _check_cuts(self, actions: list[a.Action]) -> None:
        """A cancelled answer keeps exactly the words whose audio ends at or before the frontier."""
        cuts = {
            x.item_id: x.audio_end_ms * 24 for x in actions if isinstance(x, a.AnnounceTruncated)
        }
        for action in actions:
            if not isinstance(action, a.AnnounceResponseDone):
                continue
            view = action.response
            shot = self.session.snapshot(view.id)
            item_id = self.observer.item_of.get(view.id)
            if view.status != "cancelled" or shot is None or item_id is None:
                continue
            if view.id in self.untimed or view.modality is Modality.TEXT or view.out_of_band:
                continue
            item = next(x for x in view.output if x.id == item_id)
            heard = (
                getattr(item.content[0], "transcript", "").split()
                if isinstance(item, Message)
                else []
            )
            frontier = cuts.get(item_id, shot.played)
            assert len(heard) in (frontier // WORD, (frontier + 23) // WORD)  # 23: less than 1 ms

    def feed(self, event: e.Event) -> None:
        found = self.session.handle(event, self.now)
        self.past.append((self.now, event, found))
        self.act(found)

    def deadline(self, due: int) -> None:
        self.now = max(self.now, due)
        found = self.session.on_deadline(self.now)
        self.past.append((self.now, None, found))
        self.act(found)

    def client(self, event: e.Event, *answers: type) -> None:
        """A client event gets exactly one answer or one error (B22)."""
        self.last = []
        if self.session.state is TurnState.CLOSED:
            return
        self.feed(event)
        errors = sum(
            isinstance(x, a.AnnounceError) and x.code != "session_expired" for x in self.last
        )
        assert errors <= 1, "I12"
        if answers:
            got = sum(isinstance(x, answers) for x in self.last)
            assert errors + got >= 1, f"{event} was not answered"
            assert not (errors and got), f"{event} got an answer and an error"

    def _check_prompt(self, action: a.StartGeneration) -> None:
        said = list(self.observer.deltas.values())
        for message in action.messages:
            if message.role == "assistant" and message.kind == "message":
                assert any(text.startswith(message.content) for text in said)

    # -- time

    @rule(ms=st.sampled_from([1, 20, 40, 100, 300, 700, 2_000]))
    def wait(self, ms: int) -> None:
        self.until(self.now + ms * NS_PER_MS)

    def until(self, instant: int) -> None:
        for _ in range(10_000):
            due = self.session.next_deadline()
            if due is None or due > instant:
                break
            self.deadline(due)
        else:
            raise AssertionError("deadlines never come to rest")
        self.now = max(self.now, instant)

    # -- the microphone

    @rule(frames=st.integers(1, 30), loud=st.booleans(), echo=st.booleans())
    def microphone(self, frames: int, loud: bool, echo: bool) -> None:
        for _ in range(frames):
            self.until(self.now + 32 * NS_PER_MS)
            self.input_end += FRAME
            self.feed(e.AudioAppended(self.input_end))
            self.feed(e.SpeechProbability(self.input_end, 0.9 if loud else 0.0, loud and echo))
            self.write(3)

    @rule(frames=st.integers(4, 12))
    def speech(self, frames: int) -> None:
        self.microphone(frames, True, False)

    @rule(frames=st.integers(4, 50))
    def silence(self, frames: int) -> None:
        self.microphone(frames, False, False)

    @rule(samples=st.integers(1, 20_000))
    def appended_without_frames(self, samples: int) -> None:
        self.input_end += samples
        self.feed(e.AudioAppended(self.input_end))

    # -- the camera

    @rule(
        count=st.integers(1, 4),
        age_ms=st.sampled_from([0, 0, 40, 3_000]),
        reason=st.sampled_from(["change", "heartbeat", "forced"]),
    )
    def camera(self, count: int, age_ms: int, reason: str) -> None:
        for _ in range(count):
            self.frames += 1
            captured = self.now - age_ms * NS_PER_MS
            at_sample = max(0, self.input_end - 16 * age_ms)
            self.feed(e.FrameTaken(self.frames, at_sample, captured, reason))

    @rule(ms=st.sampled_from([100, 600, 3_000]))
    def camera_stands_still(self, ms: int) -> None:
        for _ in range(ms // 100):
            self.wait(100)
            self.feed(e.FrameAlike(self.now))

    @rule()
    def camera_moves_too_fast(self) -> None:
        self.feed(e.FrameCame(self.now))

    @rule()
    def clear_frames(self) -> None:
        self.client(e.FramesCleared("ev"), a.AnnounceFramesCleared)

    # -- the transport

    @rule(count=st.integers(1, 20))
    def write(self, count: int) -> None:
        for _ in range(count):
            if not self.outbox or self.held:
                return
            piece = self.outbox.pop(0)
            end = piece.start_sample + len(piece.pcm) // 2
            heard_ns = self.now + 80 * NS_PER_MS if self.settings.server_plays else 0
            self.feed(e.AudioWritten(piece.part.response_id, end, heard_ns))

    @rule(ahead=st.integers(-5_000, 5_000), response=st.integers(0, 9))
    def odd_write(self, ahead: int, response: int) -> None:
        if self.asked:
            rid = list(self.asked)[response % len(self.asked)]
            end = self.observer.queued[rid] + min(ahead, 0)
            self.feed(e.AudioWritten(rid, max(0, end)))
            self.outbox = [
                x for x in self.outbox
                if x.part.response_id != rid or x.start_sample + len(x.pcm) // 2 > end
            ]  # fmt: skip

    # -- the engine host

    @precondition(lambda self: self.works)
    @rule(
        which=st.integers(0, 9),
        text=st.sampled_from(["", "yeah", "mm-hmm okay", "stop that please", "what is it"]),
        probability=st.sampled_from([0.1, 0.9]),
        fails=st.sampled_from([False, False, False, True]),
    )
    def answer_work(self, which: int, text: str, probability: float, fails: bool) -> None:
        work = self.works.pop(which % len(self.works))
        if work.work_id == self.look:
            self.look = None
        if fails:
            self.feed(e.WorkFailed(work.work_id, "server_error", "broken"))
        elif isinstance(work, a.AnalyseImage):
            self.feed(e.PictureSeen(work.work_id, "1 cat"))
        elif isinstance(work, a.LookAtFrame):
            kinds = tuple(sorted(text.split()))
            seen = kinds if probability > 0.5 else None
            self.feed(e.PictureSeen(work.work_id, text, NOTHING_FOUND, seen))
        elif isinstance(work, a.RecogniseRange):
            self.feed(e.TranscriptReady(work.work_id, text))
        else:
            self.feed(e.TurnJudged(work.work_id, probability))

    def _pick(self, which: int) -> str:
        recent = list(self.asked)[-3:]
        return recent[which % len(recent)]

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 2), words=st.integers(1, 40), timed=st.booleans())
    def generate_speech(self, which: int, words: int, timed: bool) -> None:
        rid = self._pick(which)
        at, sample = self.chars.get(rid, 0), self.generated.get(rid, 0)
        text, spans, start = "", [], sample
        for number in range(words):
            lead = " " if at else ""
            word = f"{lead}w{number}"
            spans.append(WordSpan(at + len(lead), at + len(word), sample, sample + WORD))
            text, at, sample = text + word, at + len(word), sample + WORD
        if not timed:
            self.untimed.add(rid)
        self.feed(e.TextGenerated(rid, text))
        clause = e.ClauseSpoken(
            rid, self.chars.get(rid, 0), at, start, sample, tuple(spans) if timed else ()
        )
        self.feed(clause)
        if self.asked[rid].modality is Modality.AUDIO:
            self.feed(e.AudioGenerated(rid, start, bytes(2 * (sample - start))))
            self.generated[rid] = sample
        self.chars[rid] = at

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 2), complete=st.booleans(), name=st.sampled_from(["f", "g"]))
    def generate_call(self, which: int, complete: bool, name: str) -> None:
        rid = self._pick(which)
        index = self.calls.get(rid, 0)
        self.calls[rid] = index + 1
        self.feed(e.CallStarted(rid, index, name))
        self.feed(e.CallArguments(rid, index, '{"a":'))
        if complete:
            self.feed(e.CallArguments(rid, index, " 1}"))
            self.feed(e.CallFinished(rid, index))

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 2), reason=st.sampled_from(["stop", "stop", "max_output_tokens"]))
    def generation_ends(self, which: int, reason: str) -> None:
        self.feed(e.GenerationFinished(self._pick(which), reason, TokenUsage(1, 2, 3, 4, 5)))

    @precondition(lambda self: self.asked)
    @rule(which=st.integers(0, 2))
    def generation_fails(self, which: int) -> None:
        self.feed(e.GenerationFailed(self._pick(which), "server_error", "the engine broke"))

    # -- whole scenes, so that the depths are reached often

    def _answer_all(self, text: str) -> None:
        while self.works:
            self.answer_work(0, text, 0.9, False)

    @rule(
        speech=st.integers(4, 40),
        silence=st.integers(3, 45),
        text=st.sampled_from(["", "yeah", "hello you", "wait a minute"]),
        late=st.booleans(),
    )
    def user_speaks(self, speech: int, silence: int, text: str, late: bool) -> None:
        for loud, frames in ((True, speech), (False, silence)):
            for _ in range(0, frames, 3):
                self.microphone(3, loud, False)
                if not late:
                    self._answer_all(text)

    @precondition(lambda self: self.asked)
    @rule(words=st.integers(1, 60), ends=st.booleans(), ms=st.sampled_from([0, 100, 900, 3_000]))
    def answer_plays(self, words: int, ends: bool, ms: int) -> None:
        self.generate_speech(2, words, True)
        if ends:
            self.generation_ends(2, "stop")
        for _ in range(ms // 100 + 1):
            self.write(20)
            self.wait(100)

    @rule(words=st.integers(20, 60), barge=st.integers(4, 40))
    def typed_turn_and_barge_in(self, words: int, barge: int) -> None:
        self.create_response(ResponseOverrides())
        if self.asked:
            self.answer_plays(words, False, 900)
        self.user_speaks(barge, 20, "no stop it", False)

    @rule(pause=st.integers(6, 14), text=st.sampled_from(["well", "I would like"]))
    def user_hesitates(self, pause: int, text: str) -> None:
        self.user_speaks(9, pause, text, False)
        if self.asked:
            self.generate_speech(2, 3, True)
        self.user_speaks(6, pause, text, False)

    @precondition(lambda self: self.settings.turn_detection.mode is TurnMode.SEMANTIC_VAD)
    @rule(loud=st.integers(7, 12), text=st.sampled_from(["", "yeah", "stop it"]))
    def noise_over_an_answer(self, loud: int, text: str) -> None:
        self.create_response(ResponseOverrides())
        if self.asked:
            self.answer_plays(40, False, 300)
            self.user_speaks(loud, 30, text, False)
            self.generation_ends(2, "stop")
            for _ in range(20):
                self.write(20)
                self.wait(300)

    @precondition(lambda self: self.settings.playback is not None and self.observer.item_of)
    @rule(steps=st.integers(1, 12))
    def listener_acknowledges(self, steps: int) -> None:
        for _ in range(steps):
            self.write(20)
            self.acknowledge(9_999_999 % 3, 12_000, False)
            self.wait(100)

    # -- the client

    @rule(
        overrides=st.builds(
            ResponseOverrides,
            out_of_band=st.sampled_from([False, False, True]),
            modality=st.sampled_from([None, None, Modality.TEXT]),
            interruptible=st.sampled_from([True, True, False]),
        )
    )
    def create_response(self, overrides: ResponseOverrides) -> None:
        self.client(e.ResponseRequested(overrides, None, "ev"), a.AnnounceResponseCreated)

    @rule(which=st.sampled_from(["none", "unknown", "known"]), index=st.integers(0, 9))
    def cancel_response(self, which: str, index: int) -> None:
        rid = None
        if which == "unknown":
            rid = "resp_x"
        elif which == "known" and self.observer.created:
            rid = list(self.observer.created)[index % len(self.observer.created)]
        self.client(e.ResponseCancelled(rid, "ev"))
        errors = sum(isinstance(x, a.AnnounceError) for x in self.last)
        ends = [x.response.status for x in self.last if isinstance(x, a.AnnounceResponseDone)]
        # a queued answer may begin and end at once for want of words; a drain may end the others
        assert errors + ends.count("cancelled") <= 1

    @rule(
        text=st.sampled_from(["hi", ""]),
        place=st.sampled_from(["end", "root", "after", "nowhere"]),
        index=st.integers(0, 9),
        role=st.sampled_from(Role),
    )
    def create_item(self, text: str, place: str, index: int, role: Role) -> None:
        content = OutputAudioContent(text) if role is Role.ASSISTANT else TextContent(text)
        if role is Role.ASSISTANT:
            self.observer.deltas[f"typed{len(self.items)}"] = text
        item = Message("", role, ItemStatus.COMPLETED, (content,))
        after = {"end": None, "root": "root", "nowhere": "item_x"}.get(place)
        if place == "after" and self.observer.order:
            after = self.observer.order[index % len(self.observer.order)]
        self.client(e.ItemCreated(item, after, "ev"), a.AnnounceItemDone)
        if place == "after" and after is not None:
            added = [x for x in self.last if isinstance(x, a.AnnounceItemAdded)]
            assert [x.previous_item_id for x in added] in ([after], [])

    @rule()
    def create_audio_item(self) -> None:
        content = InputAudioContent(0, 16_000, None, appended=False)
        item = Message("", Role.USER, ItemStatus.COMPLETED, (content,))
        self.client(e.ItemCreated(item, None, "ev"), a.AnnounceItemDone)

    @rule(pictures=st.integers(1, 2))
    def create_picture_item(self, pictures: int) -> None:
        content = (ImageContent("data:image/png;base64,AAAA"),) * pictures
        item = Message("", Role.USER, ItemStatus.COMPLETED, (TextContent("look"), *content))
        self.client(e.ItemCreated(item, None, "ev"), a.AnnounceItemDone)

    @rule(known=st.booleans(), index=st.integers(0, 9))
    def create_tool_output(self, known: bool, index: int) -> None:
        call_id = "call_x"
        if known and self.call_ids:
            call_id = self.call_ids[index % len(self.call_ids)]
        self.client(
            e.ItemCreated(FunctionCallOutput("", call_id, "1"), None, "ev"), a.AnnounceItemDone
        )

    def _item(self, index: int) -> str:
        return self.items[index % len(self.items)] if self.items else "item_x"

    @rule(index=st.integers(0, 9))
    def delete_item(self, index: int) -> None:
        item_id, was_open = self._item(index), self.session.state is not TurnState.CLOSED
        self.client(e.ItemDeleted(item_id, "ev"))
        errors = sum(isinstance(x, a.AnnounceError) for x in self.last)
        gone = [x.item_id for x in self.last if isinstance(x, a.AnnounceItemDeleted)]
        # others may leave for want of room in the same call
        assert not was_open or errors + gone.count(item_id) == 1

    @rule(index=st.integers(0, 9))
    def retrieve_item(self, index: int) -> None:
        self.client(e.ItemRetrieved(self._item(index), "ev"), a.AnnounceItemRetrieved)

    @rule(index=st.integers(0, 9), ms=st.integers(-1, 4_000))
    def truncate_any(self, index: int, ms: int) -> None:
        self.truncate(self._item(index), ms)

    @rule(ms=st.integers(0, 4_000))
    def truncate_spoken(self, ms: int) -> None:
        spoken = list(self.observer.item_of.values())
        if spoken:
            self.truncate(spoken[-1], ms)

    def truncate(self, item_id: str, ms: int) -> None:
        self.client(e.ItemTruncated(item_id, 0, ms, "ev"), a.AnnounceTruncated)
        for action in self.last:
            if isinstance(action, a.AnnounceTruncated):
                assert action.audio_end_ms <= ms
                item = self.session.item(item_id)
                if isinstance(item, Message):
                    self._check_heard(item, action.audio_end_ms)

    def _check_heard(self, item: Message, ms: int) -> None:
        """The kept text is a prefix of what was said, and no word beyond the cut is in it."""
        (content,) = item.content
        text = getattr(content, "transcript", "")
        said = self.observer.deltas[item.id]
        assert said.startswith(text)
        assert ms > 0 or text == ""
        if not any(self.observer.item_of.get(rid) == item.id for rid in self.untimed):
            assert len(text.split()) <= ms // 100

    @rule(index=st.integers(0, 3), back=st.integers(0, 30_000), final=st.booleans())
    def acknowledge(self, index: int, back: int, final: bool) -> None:
        if self.settings.playback is None or not self.observer.item_of:
            return
        parts = list(self.observer.item_of.items())[-3:]
        rid, item_id = parts[index % len(parts)]
        played = max(0, self.observer.queued[rid] + 2_400 - back)
        ack = e.PlaybackAcked(rid, item_id, 0, played, None, None, None, final, "ev")
        self.client(ack, a.AnnouncePlaybackAcknowledged)

    @rule()
    def clear_output(self) -> None:
        self.client(e.OutputCleared("ev"), a.AnnounceOutputCleared)

    @rule()
    def commit(self) -> None:
        self.client(e.InputCommitted("ev"), a.AnnounceCommitted)

    @rule()
    def clear(self) -> None:
        self.client(e.InputCleared("ev"), a.AnnounceInputCleared)

    @precondition(lambda self: len(self.observer.created) % 3 == 2)
    @rule(settings=all_settings())
    def change_settings(self, settings: SessionSettings) -> None:
        self.settings = replace(settings, server_plays=self.settings.server_plays)
        self.client(e.SettingsChanged(self.settings, "ev"), a.AnnounceSettings)

    @precondition(lambda self: len(self.observer.created) > 3)
    @rule(how=st.sampled_from([e.DrainStarted(), e.Shutdown(), e.Disconnected()]))
    def the_end(self, how: e.Event) -> None:
        was_open = self.session.state is not TurnState.CLOSED
        self.feed(how)
        if isinstance(how, e.Disconnected):
            self.observer.closed = True
        if not isinstance(how, e.DrainStarted):
            assert self.session.state is TurnState.CLOSED
        if isinstance(how, e.Shutdown):
            closes = sum(isinstance(x, a.CloseConnection) for x in self.last)
            assert closes == was_open, "a client that is shut out is told so, once"

    # -- always

    @invariant()
    def no_state_waits_for_ever(self) -> None:
        if hasattr(self, "session") and self.session.state not in AT_REST:
            assert self.session.next_deadline() is not None

    @invariant()
    def no_audio_is_forgotten(self) -> None:
        """A finished stream that was handed over has ended; one that was not has a reason to wait."""
        if not hasattr(self, "session") or self.session.state is TurnState.CLOSED:
            return
        responses, timers = self.session._responses, self.session._context.timers
        for response in responses.live.values():
            ledger = response.ledger
            assert response.phase is not ResponsePhase.SENDING or ledger.unsent, (
                "the end was missed"
            )
            waits = ledger.paused or ledger.acknowledged or ledger.sent < ledger.queued
            if ledger.unsent >= 480 and not waits:
                assert timers.get(Timer.PACE, response.id) is not None, "nobody sends the rest"
            assert not ledger.paused or self.session.state is TurnState.DUCKED, "held back for ever"

    @rule(index=st.integers(0, 5))
    def somebody_looks(self, index: int) -> None:
        """The shell, for a metric or to find what a client names."""
        for item_id in self.items[-1 - index : len(self.items) - index]:
            self.session.item(item_id)

    @invariant()
    def frontier_is_ordered(self) -> None:
        """As onlookers see it. What the session itself has said of it never falls: `Observer.frontier`."""
        if not hasattr(self, "session"):
            return
        for rid in list(self.observer.created)[-2:]:
            shot = self.session.snapshot(rid)
            if shot is not None:
                assert shot.generated >= shot.sent >= shot.played >= 0

    def teardown(self) -> None:
        """I18: the client, the engine and the transport fall silent; the session comes to rest by itself."""
        if not hasattr(self, "session"):
            return
        limit = self.now + 2 * 3_600 * 10**9
        while (due := self.session.next_deadline()) is not None and due <= limit:
            self.deadline(due)
        assert self.session.state in AT_REST, self.session.state
        if self.session.state is TurnState.LISTENING:
            self.observer.finish()
        self.relive()

    def relive(self) -> None:
        """The same events at the same instants, without onlookers: the same actions."""
        twin = Session(self.first_settings, self.params, SequentialIds(), 10**9)
        for at, event, found in self.past:
            again = twin.on_deadline(at) if event is None else twin.handle(event, at)
            assert again == found, (event, found, again)


TestSession = SessionMachine.TestCase
