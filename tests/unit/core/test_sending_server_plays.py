"""Where the transport plays (WebRTC): the server says what sounds, cuts it at the listener's place and truncates by itself."""

from __future__ import annotations

import pytest

from session_server.core import actions as a, events as e
from session_server.types.audio import NS_PER_MS
from tests.unit.core.drive import MS, SEMANTIC_VAD, Drive

pytestmark = pytest.mark.unit

DELAY_MS = 100
FRAME_MS = 20


class Wire:
    """Plays what the session hands over, a frame each 20 ms, and says so; the ear is DELAY_MS behind."""

    def __init__(self, drive: Drive, *, estimated: bool = True) -> None:
        self.drive = drive
        self.estimated = estimated
        self.queued: dict[str, int] = {}
        self.sent: dict[str, int] = {}
        self.held = False
        self.sent_at_hold = 0
        self.moved: list[a.ReleaseAudio] = []
        drive.watch = self.carry_out

    def carry_out(self, action: a.Action) -> None:
        match action:
            case a.SendAudio(part, _, start, pcm):
                assert start == self.queued.get(part.response_id, 0)
                self.queued[part.response_id] = start + len(pcm) // 2
            case a.PurgeAudio(response_id):
                self.queued.pop(response_id, None)
            case a.HoldAudio():
                self.held = True
                self.sent_at_hold = max(self.sent.values(), default=0)
            case a.ReleaseAudio(response_id, from_sample):
                self.held = False
                self.moved.append(action)
                if response_id is not None:
                    self.sent[response_id] = from_sample

    def run(self, ms: int, gap_samples: int = 0) -> None:
        for _ in range(ms // FRAME_MS):
            self.drive.wait(FRAME_MS)
            self.frame(gap_samples)
            gap_samples = 0

    def run_under_speech(self, ms: int) -> None:
        """The user speaks (frames of 32 ms) while the wire goes on."""
        for count in range(ms // 32):
            self.drive.speak(32)
            for _ in range(2 if count % 5 in (0, 2, 4) else 1):
                self.frame()

    def frame(self, gap_samples: int = 0) -> None:
        for name, queued in self.queued.items():
            sent = self.sent.get(name, 0)
            if sent < queued and not self.held:
                self.sent[name] = min(queued, sent + FRAME_MS * MS)
                self.drive.feed(
                    e.AudioWritten(
                        name,
                        self.sent[name],
                        self.drive.now + DELAY_MS * NS_PER_MS,
                        estimated=self.estimated,
                        gap_samples=gap_samples,
                    )
                )
                return


def talking(ms: int, **settings: object) -> tuple[Drive, Wire, str]:
    """A session that answers with so much speech, all of it generated."""
    drive = Drive(writes=False, server_plays=True, **settings)
    wire = Wire(drive)
    name = drive.respond()
    drive.say(name, [f"w{n}" for n in range(ms // 100)], word_ms=100)
    drive.finish(name)
    return drive, wire, name


def test_audio_is_handed_over_ahead_of_what_was_sent_and_no_further():
    _drive, wire, name = talking(5_000)
    assert wire.queued[name] == 1_000 * MS
    wire.run(200)
    assert wire.queued[name] == 1_200 * MS


def test_started_comes_with_the_first_frame_and_stopped_when_the_last_was_heard():
    drive, wire, name = talking(500)
    assert not drive.take(a.AnnounceOutputStarted)
    wire.run(20)
    assert drive.one(a.AnnounceOutputStarted).response_id == name
    wire.run(480)
    drive.wait(DELAY_MS - 10)
    assert not drive.take(a.AnnounceOutputStopped)
    drive.wait(20)
    assert drive.one(a.AnnounceOutputStopped).response_id == name


def test_stopped_comes_behind_the_end_of_the_response():
    drive, wire, _name = talking(500)
    wire.run(500)
    drive.wait(DELAY_MS)
    kinds = drive.kinds()
    assert kinds.index("AnnounceResponseDone") < kinds.index("AnnounceOutputStopped")


def test_the_listener_is_where_the_wire_was_a_path_ago():
    drive, wire, name = talking(3_000)
    wire.run(1_000)
    mark = drive.session.snapshot(name)
    assert mark is not None
    assert (mark.sent, mark.played) == (1_000 * MS, (1_000 - DELAY_MS) * MS)


def test_a_gap_is_what_the_transport_says_it_is():
    drive, wire, _name = talking(3_000)
    wire.run(500)
    drive.wait(300)  # late, but the stream had no hole
    wire.run(20)
    assert drive.counted("playback_underruns") == 0
    wire.run(20, gap_samples=240 * MS)
    assert drive.counted("playback_underruns") == 1
    assert drive.counted("playback_underrun_seconds") == pytest.approx(0.24)


def test_a_barge_in_purges_clears_truncates_and_ends_in_this_order():
    drive, wire, _name = talking(5_000)
    wire.run(1_000)
    drive.mark()
    drive.speak(400)
    kinds = [type(action).__name__ for action in drive.seen[drive.since :]]
    order = [
        "RaiseFence",
        "PurgeAudio",
        "AnnounceOutputCleared",
        "AnnounceTruncated",
        "AnnounceResponseDone",
    ]
    assert [kind for kind in kinds if kind in order] == order
    assert not drive.take(a.AnnounceMute)
    cut = drive.one(a.AnnounceTruncated).audio_end_ms
    assert 900 <= cut <= 1_000
    assert drive.counted("frontier_cuts", "estimate") == 1


def test_a_barge_in_after_the_end_of_the_response_still_cuts_what_plays():
    drive, wire, name = talking(900)
    wire.run(500)
    assert drive.one(a.AnnounceResponseDone).response.status == "completed"
    drive.mark()
    drive.speak(400)
    assert drive.one(a.AnnounceOutputCleared).response_id == name
    assert drive.one(a.AnnounceTruncated)
    assert not drive.take(a.AnnounceOutputStopped)


def test_each_started_has_one_end():
    drive, wire, _ = talking(5_000)
    wire.run(500)
    drive.speak(400)
    drive.hush(1_000)
    drive.wait(20_000)
    started = len([x for x in drive.seen if isinstance(x, a.AnnounceOutputStarted)])
    ends = [
        x for x in drive.seen if isinstance(x, a.AnnounceOutputCleared | a.AnnounceOutputStopped)
    ]
    assert (started, len(ends)) == (1, 1)


def test_a_cut_before_anything_sounded_clears_nothing():
    drive, _wire, _name = talking(5_000)
    drive.feed(e.ResponseCancelled(event_id="x"))
    assert not drive.take(a.AnnounceOutputCleared)


def test_clear_works_without_the_extension_and_always_answers():
    drive, wire, name = talking(5_000)
    wire.run(200)
    drive.feed(e.OutputCleared("x"))
    assert drive.one(a.AnnounceOutputCleared).response_id == name
    drive.mark()
    drive.feed(e.OutputCleared("y"))
    assert drive.one(a.AnnounceOutputCleared).response_id == name
    assert not drive.take(a.AnnounceError)


def test_a_duck_holds_the_wire_and_goes_on_where_it_was():
    drive, wire, name = talking(5_000, detection=SEMANTIC_VAD)
    wire.run(1_000)
    drive.speak(288)
    assert wire.held
    assert not drive.take(a.AnnounceMute)
    drive.hush(1_100)
    assert wire.moved == [a.ReleaseAudio()]
    wire.run(200)
    assert wire.sent[name] == 1_200 * MS
    assert drive.counted("playback_underruns") == 0


def test_a_muted_client_gets_again_what_it_did_not_hear():
    drive, wire, name = talking(5_000, detection=SEMANTIC_VAD, playback=True)
    wire.run(1_000)
    wire.run_under_speech(288)
    mute = drive.one(a.AnnounceMute)
    assert mute.reversible
    drive.hush(1_100)
    (release,) = wire.moved
    assert release.response_id == name
    sent_before = wire.sent_at_hold
    assert sent_before - DELAY_MS * MS <= release.from_sample < sent_before
    drive.mark()
    wire.run(1_000)
    mark = drive.session.snapshot(name)
    assert mark is not None
    assert mark.sent == release.from_sample + 1_000 * MS
    assert mark.played == mark.sent - DELAY_MS * MS


def test_a_committed_duck_lets_the_next_answer_sound():
    drive, wire, name = talking(5_000, detection=SEMANTIC_VAD)
    wire.run(1_000)
    drive.speak(1_000)
    assert drive.one(a.AnnounceOutputCleared).response_id == name
    assert not wire.held


def test_reports_of_the_client_count_and_their_loss_is_counted():
    drive, wire, _name = talking(5_000, playback=True)
    wire.estimated = False
    wire.run(500)
    wire.estimated = True
    wire.run(500)
    assert drive.counted("frontier_fallbacks") == 1
    wire.estimated = False
    wire.run(40)
    drive.speak(400)
    assert drive.counted("frontier_cuts", "client") == 1


def test_silence_of_acknowledgements_stalls_nothing():
    drive, wire, name = talking(8_000, playback=True)
    wire.run(6_000)
    assert wire.sent[name] == 6_000 * MS
    assert drive.counted("stuck_sessions", "playing") == 0
