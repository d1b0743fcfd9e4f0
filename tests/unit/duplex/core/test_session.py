"""A model that takes turns by itself: what its client sees, and the fence that is still ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from session_server.core import actions as a, events as e
from session_server.core.conversation import Message, Role
from session_server.core.settings import CoreParams, ResponseOverrides
from session_server.duplex.core.session import (
    GIVE_WAY,
    HEAR,
    TAKE,
    YIELD,
    AssistantLost,
    AssistantSpoke,
    DuplexSession,
    Floor,
)
from session_server.types.audio import NS_PER_MS
from session_server.types.ids import SequentialIds
from session_server.types.tools import Tool
from tests.unit.core.drive import Drive

pytestmark = pytest.mark.unit

FRAME_MS = 80
FRAME = bytes(2 * FRAME_MS * 24)


class Duplex(Drive):
    """Drives a `DuplexSession`: each `say` is one tick."""

    def __init__(self, params: CoreParams | None = None, **kept: object) -> None:
        super().__init__(params=params, **kept)  # type: ignore[arg-type]
        self.session = DuplexSession(self.settings, self.params, SequentialIds(), self.now)
        self.core: DuplexSession = self.session
        self.host_epoch = 1

    def say(self, *floor: str, text: str = "", epoch: int | None = None) -> None:
        self.now += FRAME_MS * NS_PER_MS
        self.input_end += FRAME_MS * 16
        self.feed(e.AudioAppended(self.input_end))
        spoke = AssistantSpoke(self.host_epoch if epoch is None else epoch, FRAME, text, floor, 1)
        self.note(self.core.duplex(spoke, self.now))
        while self._queue:
            self.note(self.session.handle(self._queue.pop(0), self.now))
        for action in self.seen[self.since :]:
            if isinstance(action, a.RaiseFence):
                self.host_epoch = max(self.host_epoch, action.epoch)

    def talk(self, frames: int, text: str = "") -> None:
        for _ in range(frames):
            self.say(text=text)

    def of(self, kind: type) -> list:
        return [action for action in self.seen if isinstance(action, kind)]

    def statuses(self) -> list[tuple[str, str | None]]:
        return [(x.response.status, x.response.reason) for x in self.of(a.AnnounceResponseDone)]

    def sent_samples(self) -> int:
        return sum(len(x.pcm) // 2 for x in self.of(a.SendAudio))


def test_what_the_model_says_between_take_and_yield_is_one_completed_response() -> None:
    duplex = Duplex()
    duplex.talk(5)  # breathing: nobody's
    assert not duplex.of(a.AnnounceResponseCreated)
    duplex.say(TAKE, text="one")
    duplex.talk(3, text=" two")
    duplex.say(YIELD)
    duplex.talk(2)
    kinds = [type(x).__name__ for x in duplex.seen if type(x).__name__.startswith("Announce")]
    assert kinds[:6] == [
        "AnnounceResponseCreated", "AnnounceRateLimits", "AnnounceOutputItemAdded", "AnnounceItemAdded",
        "AnnouncePartAdded", "AnnounceTextDelta",
    ]  # fmt: skip
    assert kinds[-1] == "AnnounceResponseDone"
    assert duplex.statuses() == [("completed", None)]
    assert duplex.sent_samples() == 5 * 1920
    done = duplex.of(a.AnnounceResponseDone)[0].response
    assert (done.usage.output_audio, done.usage.output_text) == (5, 5)
    assert done.output[0].content[0].transcript == "one two two two"


def test_giving_way_cancels_silences_and_announces_the_user() -> None:
    duplex = Duplex()
    duplex.say(TAKE, text="well")
    duplex.talk(5)
    duplex.mark()
    duplex.say(GIVE_WAY)
    order = [type(x).__name__ for x in duplex.seen[duplex.since :]]
    wanted = [
        "RaiseFence",
        "PurgeAudio",
        "CancelGeneration",
        "AnnounceResponseDone",
        "AnnounceSpeechStarted",
    ]
    assert [name for name in order if name in wanted] == wanted
    assert duplex.statuses() == [("cancelled", "turn_detected")]
    # what comes next is of an old epoch until the host has heard of the fence: it is not stale, the model knows
    duplex.say(TAKE, text="yes", epoch=1)
    assert duplex.core.floor is Floor.MODEL
    stopped, committed = duplex.of(a.AnnounceSpeechStopped)[0], duplex.of(a.AnnounceCommitted)[0]
    started = duplex.of(a.AnnounceSpeechStarted)[0]
    assert started.item_id == stopped.item_id == committed.item_id
    assert started.audio_start_ms < stopped.audio_end_ms == 8 * FRAME_MS
    item = duplex.core.item(started.item_id)
    assert isinstance(item, Message)
    assert item.role is Role.USER
    assert not duplex.of(a.RecogniseRange)


def test_a_turn_of_the_user_is_told_once_however_often_the_model_says_it() -> None:
    duplex = Duplex()
    duplex.say(HEAR)
    duplex.say(HEAR)
    duplex.say(TAKE)
    assert len(duplex.of(a.AnnounceSpeechStarted)) == len(duplex.of(a.AnnounceCommitted)) == 1


@pytest.mark.parametrize("how", ["cancel", "truncate", "clear"])
def test_after_our_fence_not_one_sample_of_the_utterance_comes(how: str) -> None:
    duplex = Duplex(playback=True)
    duplex.say(TAKE, text="on and on")
    duplex.talk(4)
    before = duplex.sent_samples()
    item_id = duplex.of(a.AnnounceOutputItemAdded)[0].item.id
    event = {
        "cancel": e.ResponseCancelled(),
        "truncate": e.ItemTruncated(item_id, 0, 0),
        "clear": e.OutputCleared(),
    }[how]
    duplex.feed(event)
    assert duplex.statuses() == [("cancelled", "client_cancelled")]
    duplex.say(text=" and on", epoch=1)  # was under way when the fence fell
    duplex.host_epoch = 2
    duplex.talk(6, text=" and on")
    assert duplex.sent_samples() == before
    assert sum(x.name == "stale_outputs" for x in duplex.of(a.Count)) == 7
    duplex.say(YIELD)
    duplex.say(TAKE, text="again")
    assert duplex.core.floor is Floor.MODEL
    assert duplex.sent_samples() == before + 1920


def test_an_utterance_that_began_before_the_fence_arrived_is_stale_as_a_whole() -> None:
    duplex = Duplex()
    duplex.say(TAKE)
    duplex.say()
    duplex.feed(e.ResponseCancelled())
    before = duplex.sent_samples()
    duplex.say(YIELD, epoch=1)
    duplex.say(TAKE, epoch=1)
    duplex.host_epoch = 2
    duplex.talk(3)
    assert duplex.sent_samples() == before
    duplex.say(YIELD)
    duplex.say(TAKE)
    assert duplex.sent_samples() == before + 1920


def test_a_model_that_never_yields_is_cut_into_responses_without_losing_a_sample() -> None:
    duplex = Duplex(CoreParams(max_speech_ms=800))
    duplex.say(TAKE)
    duplex.talk(34)
    assert duplex.statuses() == [("completed", None)] * 3
    assert duplex.sent_samples() == 35 * 1920


def test_a_client_that_is_behind_loses_the_rest_when_the_next_answer_begins() -> None:
    duplex = Duplex(CoreParams(lead_sent_ms=200), writes=False)
    duplex.say(TAKE, text="first")
    duplex.talk(9)
    duplex.say(YIELD)
    assert not duplex.statuses()  # all is made, little is taken
    duplex.say(TAKE, text="second")
    assert duplex.statuses() == [("completed", None)]
    assert len(duplex.of(a.AnnounceResponseCreated)) == 2
    wasted = [x for x in duplex.of(a.Count) if x.name == "audio_wasted_seconds"]
    assert [x.label for x in wasted] == ["vocoded"]


def test_the_loss_of_the_model_is_one_clear_error() -> None:
    duplex = Duplex()
    duplex.note(duplex.core.duplex(AssistantLost("gone"), duplex.now))
    assert [x.message for x in duplex.of(a.AnnounceError)] == ["gone"]
    duplex.say(TAKE)
    duplex.note(duplex.core.duplex(AssistantLost("gone again"), duplex.now))
    assert len(duplex.of(a.AnnounceError)) == 1
    failed = duplex.of(a.AnnounceResponseDone)[0].response
    assert (failed.status, failed.error_code, failed.error_message) == (
        "failed",
        "server_error",
        "gone again",
    )
    duplex.say(TAKE, text="anew")
    assert duplex.core.floor is Floor.MODEL


def test_what_a_duplex_model_cannot_be_told_is_an_error_that_says_why() -> None:
    duplex = Duplex()
    duplex.feed(e.ResponseRequested(ResponseOverrides(), event_id="r"))
    duplex.feed(e.InputCommitted("c"))
    errors = [(x.code, x.event_id) for x in duplex.of(a.AnnounceError)]
    assert errors == [("invalid_value", "r"), ("input_audio_buffer_commit_empty", "c")]
    assert "decides itself" in duplex.of(a.AnnounceError)[0].message
    assert not duplex.of(a.StartGeneration)


def test_settings_that_mean_nothing_to_it_stay_out() -> None:
    duplex = Duplex()
    wanted = replace(duplex.settings, transcribe=True, tools=(Tool("look", "", "{}"),))
    duplex.feed(e.SettingsChanged(wanted))
    assert len(duplex.of(a.AnnounceSettings)) == 1
    for end in range(1, 40):
        duplex.feed(e.SpeechProbability(end * 512, 1.0))
    assert not duplex.of(a.AnnounceSpeechStarted)


def test_a_drain_lets_the_answer_end_and_begins_no_other() -> None:
    duplex = Duplex()
    duplex.say(TAKE)
    duplex.feed(e.DrainStarted())
    duplex.talk(2)
    assert not duplex.of(a.CloseConnection)
    duplex.say(YIELD)
    duplex.say(TAKE)
    assert len(duplex.of(a.AnnounceResponseCreated)) == 1
    duplex.now += 10_000 * NS_PER_MS
    duplex.note(duplex.core.on_deadline(duplex.now))
    assert [x.code for x in duplex.of(a.CloseConnection)] == [1001]
    duplex.say(TAKE)
    assert duplex.core.duplex(AssistantLost("late"), duplex.now) == []


def test_the_users_audio_between_turns_is_kept_for_a_bounded_time() -> None:
    duplex = Duplex()
    duplex.talk(400)  # 32 s
    forgotten = duplex.of(a.ForgetInput)
    assert forgotten
    assert duplex.input_end - forgotten[-1].before_sample <= 11.1 * 16_000
    duplex.say(HEAR)
    duplex.feed(e.InputCleared())
    duplex.say(TAKE)
    assert not duplex.of(a.AnnounceCommitted)
