"""Watches the actions of one session and checks the invariants of the protocol page, section 11, as they pass."""

from collections import defaultdict

from session_server.core import actions as a
from session_server.core.conversation import FunctionCall, ItemStatus, Message
from session_server.types.usage import TokenUsage

ABOUT_PARTS = (
    a.AnnouncePartAdded, a.AnnounceTextDelta, a.AnnounceTextDone, a.AnnounceAudioDone, a.AnnouncePartDone,
    a.AnnounceCallDelta, a.AnnounceCallDone, a.SendAudio,
)  # fmt: skip


class Observer:
    """`see` every action in order; raises AssertionError at the first violation."""

    def __init__(self) -> None:
        self.created: dict[str, a.ResponseView] = {}
        self.done: set[str] = set()
        self.items_added: dict[str, int] = {}
        self.items_done: set[str] = set()
        self.output_open: dict[str, str] = {}
        self.output_seen: set[str] = set()
        self.parts_open: set[str] = set()
        self.parts_seen: set[str] = set()
        self.deltas: dict[str, str] = defaultdict(str)
        self.order: list[str] = []
        self.speech: str | None = None
        self.announced: str | None = None
        self.epochs: dict[str, int] = defaultdict(lambda: 1)
        self.queued: dict[str, int] = defaultdict(int)
        self.fenced: set[str] = set()
        self.marks: dict[str, tuple[int, int, int]] = {}
        self.item_of: dict[str, str] = {}
        self.output_playing: set[str] = set()
        self.closed = False
        self.purged: set[str] = set()
        self.born: dict[str, int] = {}
        self.drafts: set[str] = set()
        self.started: set[str] = set()

    def see(self, action: a.Action) -> None:
        assert not (self.closed and type(action).__name__.startswith("Announce"))
        method = getattr(self, f"_on_{type(action).__name__}", None)
        if isinstance(action, ABOUT_PARTS):
            self._live(action.part.response_id)
        if isinstance(action, a.AnnounceOutputItemAdded | a.AnnounceOutputItemDone):
            self._live(action.response_id)
        if method is not None:
            method(action)

    def _live(self, response_id: str) -> None:
        assert response_id in self.created, "an event of a response before its response.created"
        assert response_id not in self.done, "an event of a response after its response.done"

    # -- responses

    def _on_AnnounceResponseCreated(self, action: a.AnnounceResponseCreated) -> None:
        view = action.response
        assert view.id not in self.created
        assert view.status == "in_progress"
        if not view.out_of_band:
            running = [
                r for r, v in self.created.items() if r not in self.done and not v.out_of_band
            ]
            assert not running, "I1: two active responses"
        self.created[view.id] = view
        self.born[view.id] = self.epochs[view.id if view.out_of_band else "default"]

    def _on_AnnounceResponseDone(self, action: a.AnnounceResponseDone) -> None:
        view = action.response
        self._live(view.id)
        self.done.add(view.id)
        if view.status == "completed" and view.id not in self.started:
            assert (view.output, view.usage) == ((), TokenUsage()), "an answer out of nothing"
        assert view.status in ("completed", "cancelled", "incomplete", "failed")
        assert view.usage is not None
        assert not [i for i, r in self.output_open.items() if r == view.id], "I3: open items"
        if view.status == "failed":
            assert view.error_code
            assert view.error_message
        if view.status == "cancelled" and self.queued[view.id]:
            assert view.id in self.purged, "stale audio may still be in the transport"
        if view.status == "cancelled":
            lane = view.id if view.out_of_band else "default"
            assert self.epochs[lane] > self.born[view.id], "cancelled without a fence"
        if view.status == "cancelled":
            assert view.reason in ("turn_detected", "client_cancelled")

    def _on_AnnounceOutputItemAdded(self, action: a.AnnounceOutputItemAdded) -> None:
        assert action.item.id not in self.output_seen
        self.output_seen.add(action.item.id)
        self.output_open[action.item.id] = action.response_id

    def _on_AnnounceOutputItemDone(self, action: a.AnnounceOutputItemDone) -> None:
        assert self.output_open.pop(action.item.id) == action.response_id
        assert action.item.status is not ItemStatus.IN_PROGRESS
        assert action.item.id not in self.parts_open, "I4: the part is still open"
        if isinstance(action.item, FunctionCall):
            assert action.item.arguments == self.deltas[action.item.id]

    def _on_AnnouncePartAdded(self, action: a.AnnouncePartAdded) -> None:
        assert action.part.item_id in self.output_open
        assert action.part.item_id not in self.parts_seen
        self.parts_open.add(action.part.item_id)
        self.parts_seen.add(action.part.item_id)
        self.item_of[action.part.response_id] = action.part.item_id

    def _on_AnnouncePartDone(self, action: a.AnnouncePartDone) -> None:
        self.parts_open.remove(action.part.item_id)
        assert action.text == self.deltas[action.part.item_id]

    def _on_AnnounceTextDelta(self, action: a.AnnounceTextDelta) -> None:
        assert action.part.item_id in self.parts_open
        self.deltas[action.part.item_id] += action.delta

    def _on_AnnounceTextDone(self, action: a.AnnounceTextDone) -> None:
        assert action.text == self.deltas[action.part.item_id], "I8"

    def _on_AnnounceCallDelta(self, action: a.AnnounceCallDelta) -> None:
        assert action.part.item_id in self.output_open
        self.deltas[action.part.item_id] += action.delta

    def _on_AnnounceCallDone(self, action: a.AnnounceCallDone) -> None:
        assert action.arguments == self.deltas[action.part.item_id], "I8"

    # -- audio

    def _on_SendAudio(self, action: a.SendAudio) -> None:
        rid = action.part.response_id
        lane = rid if self.created[rid].out_of_band else "default"
        assert action.epoch == self.epochs[lane], "I15: audio of an old epoch after its fence"
        assert action.part.item_id in self.parts_open
        assert action.start_sample == self.queued[rid], "a sample is missing or sent twice"
        assert 0 < len(action.pcm) // 2 <= 2400
        self.queued[rid] += len(action.pcm) // 2

    def _on_PurgeAudio(self, action: a.PurgeAudio) -> None:
        self.purged.add(action.response_id)

    def _on_RaiseFence(self, action: a.RaiseFence) -> None:
        assert action.epoch > self.epochs[action.lane], "an epoch fell"
        self.epochs[action.lane] = action.epoch

    def _on_ReportFrontier(self, action: a.ReportFrontier) -> None:
        shot = action.snapshot
        self.frontier(action.response_id, (shot.generated, shot.sent, shot.played))

    def frontier(self, response_id: str, marks: tuple[int, int, int]) -> None:
        assert marks[0] >= marks[1] >= marks[2] >= 0, "I10: generated >= sent >= played"
        before = self.marks.get(response_id, (0, 0, 0))
        assert all(new >= old for new, old in zip(marks, before, strict=True)), "I10: monotone"
        self.marks[response_id] = marks

    def _on_AnnouncePlaybackAcknowledged(self, action: a.AnnouncePlaybackAcknowledged) -> None:
        assert action.accepted == (action.reason in (None, "clamped"))
        if action.reason != "unknown":
            shot = action.snapshot
            self.frontier(action.response_id, (shot.generated, shot.sent, shot.played))

    def _on_AnnounceTruncated(self, action: a.AnnounceTruncated) -> None:
        rid = next(r for r, i in self.item_of.items() if i == action.item_id)
        assert action.audio_end_ms * 24 <= self.queued[rid] + 23, (
            "I9: truncated beyond the audio sent"
        )

    def _on_AnnounceOutputStarted(self, action: a.AnnounceOutputStarted) -> None:
        assert action.response_id not in self.output_playing
        self.output_playing.add(action.response_id)

    def _on_AnnounceOutputStopped(self, action: a.AnnounceOutputStopped) -> None:
        self.output_playing.remove(action.response_id)

    def _on_AnnounceOutputCleared(self, action: a.AnnounceOutputCleared) -> None:
        self.output_playing.discard(action.response_id)

    # -- input and items

    def _on_AnnounceSpeechStarted(self, action: a.AnnounceSpeechStarted) -> None:
        assert self.speech is None, "I6: speech_started twice"
        assert action.audio_start_ms >= 0
        self.speech = self.announced = action.item_id

    def _on_AnnounceSpeechStopped(self, action: a.AnnounceSpeechStopped) -> None:
        assert self.speech == action.item_id, "I6: speech_stopped without speech_started"
        self.speech = None

    def _on_AnnounceInputCleared(self, _: a.AnnounceInputCleared) -> None:
        self.speech = self.announced = None

    def _on_AnnounceIdleTimeout(self, _: a.AnnounceIdleTimeout) -> None:
        self.announced = None

    def _on_AnnounceCommitted(self, action: a.AnnounceCommitted) -> None:
        assert self.speech is None
        if self.announced is not None:
            assert action.item_id == self.announced, "I7"
        self.announced = None

    def _on_AnnounceItemAdded(self, action: a.AnnounceItemAdded) -> None:
        item, before = action.item, action.previous_item_id
        assert item.id not in self.order, "I5: added twice"
        assert before is None or before in self.order, "I11: follows an unknown item"
        at = 0 if before is None else self.order.index(before) + 1
        self.order.insert(at, item.id)
        self.items_added[item.id] = self.items_added.get(item.id, 0) + 1

    def _on_AnnounceItemDone(self, action: a.AnnounceItemDone) -> None:
        item = action.item
        assert item.id in self.order, "I5: done before added"
        assert item.id not in self.items_done, "I5: done twice"
        assert item.status is not ItemStatus.IN_PROGRESS
        at = self.order.index(item.id)
        assert action.previous_item_id == (self.order[at - 1] if at else None), "I11"
        self.items_done.add(item.id)

    def _on_AnnounceItemDeleted(self, action: a.AnnounceItemDeleted) -> None:
        self.order.remove(action.item_id)
        self.items_done.discard(action.item_id)

    def _on_AnnounceItemRetrieved(self, action: a.AnnounceItemRetrieved) -> None:
        if isinstance(action.item, Message) and action.item.id in self.deltas:
            text = "".join(
                getattr(p, "transcript", "") or getattr(p, "text", "") for p in action.item.content
            )
            assert self.deltas[action.item.id].startswith(text)

    # -- prompts

    def _on_AdoptDraft(self, action: a.AdoptDraft) -> None:
        self.drafts.remove(action.response_id)

    def _on_CancelGeneration(self, action: a.CancelGeneration) -> None:
        self.drafts.discard(action.response_id)

    def _on_StartGeneration(self, action: a.StartGeneration) -> None:
        assert action.response_id not in self.done, "begun after its end"
        self.started.add(action.response_id)
        if action.epoch is None:
            assert not self.drafts, "a draft was left running"
            self.drafts.add(action.response_id)
        calls = set()
        for message in action.messages:
            if message.kind == "call":
                calls.add(message.call_id)
            elif message.kind == "result":
                assert message.call_id in calls, "a result without its call"
            else:
                assert message.content.strip()

    def _on_CloseConnection(self, _: a.CloseConnection) -> None:
        self.closed = True
        assert set(self.created) == self.done, "closed with a response that never got its end"

    def finish(self) -> None:
        """Nothing may be open once the session is at rest."""
        assert set(self.created) == self.done, "I2: a response never ended"
        assert not self.drafts, "a draft was left running"
        assert not self.output_open, "I3"
        assert not self.parts_open, "I4"
        assert set(self.order) <= self.items_done, "I5: an item never got its end"
        assert self.speech is None, "I6"
