"""What users do of themselves, on the virtual clock: noises, nods, early questions, hang-ups, lost connections, caps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from loadgen.drivers.utterances import Spelled, TokenPace
from loadgen.measure import measure
from loadgen.records import ResponseIds
from loadgen.users import events
from loadgen.users.intents import Acknowledge, Drop, HangUp, Intent, Kind, Say, ScriptedUtterance
from loadgen.users.listener import ClientTiming
from loadgen.users.script import NEVER, DrawnScript, Script, State, TracedScript
from loadgen.users.user import VirtualUser
from session_server.simulation.spec import Distribution, Workload
from session_server.simulation.trace import TraceSession, TraceTurn
from session_server.types.audio import NS_PER_MS as MS, NS_PER_S as S, OUTPUT_RATE

pytestmark = pytest.mark.unit

STEADY = Workload(
    speech_s=Distribution(1.0, kind="constant"),
    barge_speech_s=Distribution(1.0, kind="constant"),
    think_least_s=Distribution(1.0, kind="constant"),
    think_s=Distribution(0.0, kind="constant"),
    opening_s=Distribution(0.5, kind="constant"),
    answer_tokens=Distribution(100.0, kind="constant"),
    barge_in=0.0,
    turns=0.0,
)
"""Ten seconds of answer to each second of question."""
PACE = TokenPace(0.1, 0.0)


@dataclass
class World:
    """A user and a server that answers each question after 300 ms, all at once, and hears no interruption."""

    workload: Workload = STEADY
    seed: int = 1
    acks: bool = True
    script: Script | None = None
    said: list[tuple[int, ScriptedUtterance]] = field(default_factory=list)
    done: list[tuple[int, Intent]] = field(default_factory=list)
    acked: list[tuple[int, Acknowledge]] = field(default_factory=list)
    now: int = 0

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        lines = Spelled(self.workload, PACE, rng)
        script = self.script or DrawnScript(self.workload, lines, rng)
        client = ClientTiming(0, 0, 200 * MS if self.acks else 0)
        self.user = VirtualUser(0, script, client, ResponseIds(), 0)
        self.lines = lines
        self.coming: list[tuple[int, int, events.UserEvent]] = []
        self.answers = 0
        self.tell(0, events.SessionReady())

    def tell(self, at: int, *told: events.UserEvent) -> None:
        for event in told:
            self.coming.append((at, len(self.coming), event))
        self.coming.sort(key=lambda one: one[:2])

    def answer(self, at: int, seconds: float) -> None:
        self.answers += 1
        name = f"r{self.answers}"
        audio = events.Audio(name, f"i{name}", 0, int(seconds * OUTPUT_RATE))
        self.tell(at, events.Committed("u"), events.ResponseCreated(name), audio)
        self.tell(at, events.ResponseDone(name, "completed"))

    def run(self, seconds: float) -> World:
        end = self.now + int(seconds * S)
        calls = 0
        while True:
            at = min(self.user.next_at(), self.coming[0][0] if self.coming else NEVER)
            if at > end:
                self.now = end
                return self
            assert at >= self.now or not self.coming
            self.now = max(self.now, at)
            if self.coming and self.coming[0][0] <= self.now:
                out = self.user.handle(self.coming.pop(0)[2], self.now)
            else:
                out = self.user.on_time(self.now)
            self.take(out)
            calls += 1
            assert calls < seconds * 200, "it spins"

    def take(self, intents: Sequence[Intent]) -> None:
        for intent in intents:
            if isinstance(intent, Say):
                assert intent.at == self.now
                self.said.append((self.now, intent.utterance))
                if str(intent.utterance.clip).startswith("turn"):
                    self.answer(self.now + intent.utterance.end_ns + 300 * MS, 10.0)
            elif isinstance(intent, Acknowledge):
                self.acked.append((self.now, intent))
            else:
                self.done.append((self.now, intent))

    def words(self, words: str) -> list[int]:
        return [at for at, utterance in self.said if utterance.clip == words]


def test_a_conversation_on_its_own_clock() -> None:
    world = World().run(40)
    turns = world.user.record.turns
    # 0.5 asks, 1.5 ends, 1.8 answered, sounds at the next 20 ms, 10 s long, one second of rest
    assert [(turn.u0, turn.u1) for turn in turns[:2]] == [
        (500 * MS, 1500 * MS),
        (1820 * MS + 11 * S, 1820 * MS + 12 * S),
    ]
    assert turns[0].first_audible == 1820 * MS
    assert turns[0].decided == 1800 * MS
    assert (turns[0].ended, turns[0].end) == ("played", 11_820 * MS)
    assert measure([world.user.record], 40.0)["slo"]["p50"] == 20.0


def test_acknowledgements_are_few_and_end_with_a_final_one() -> None:
    world = World().run(12)
    first = [(at, ack) for at, ack in world.acked if ack.response == "r1"]
    assert len(first) == 51
    assert first[0][0] == 1840 * MS
    assert first[-1][0] == 11_820 * MS
    assert first[-1][1].final
    assert first[-1][1].played_samples == 10 * OUTPUT_RATE
    assert [ack.final for _, ack in first[:-1]] == [False] * 50


def test_noise_comes_at_its_rate_whenever_the_user_is_silent() -> None:
    world = World(replace(STEADY, false_start_per_min=6.0)).run(1200)
    record = world.user.record
    noises = len(record.false_starts)
    assert 60 < noises < 160  # 120 a run, less those that fall into its own speech
    into = [noise for noise in record.false_starts if noise.response is not None]
    assert 0.6 < len(into) / noises < 0.95  # ten seconds of answer to one of rest
    for at in world.words(""):
        assert not any(turn.u0 <= at < turn.u1 for turn in record.turns)
    figures = measure([record], 1200.0)["false_starts"]
    assert (figures["count"], figures["into_answers"]) == (noises, len(into))
    assert all(0.1 * S <= said.end_ns <= 0.5 * S for at, said in world.said if said.clip == "")


def test_a_noise_that_stops_the_answer_is_to_blame() -> None:
    world = World(replace(STEADY, false_start_per_min=20.0))
    while not any(noise.response for noise in world.user.record.false_starts):
        world.run(0.1)
    noise = world.user.record.false_starts[-1]
    world.tell(world.now + 200 * MS, events.ResponseDone(noise.response or "", "cancelled"))
    world.run(1)
    assert noise.cut
    assert world.user.record.turns[0].ended == "cut"


def test_a_noise_that_is_taken_for_a_turn_is_noticed() -> None:
    world = World(
        replace(STEADY, false_start_per_min=60.0, think_least_s=Distribution(30.0, kind="constant"))
    )
    while world.user.state is not State.PAUSING or not world.user.record.turns:
        world.run(0.1)
    made = len(world.user.record.false_starts)
    while len(world.user.record.false_starts) == made:
        world.run(0.1)
    world.answer(world.now + 100 * MS, 1.0)
    world.run(1)
    assert world.user.record.false_starts[made].answered
    assert len(world.user.record.turns) == 1


def test_nods_are_a_poisson_stream_with_bounds() -> None:
    world = World(replace(STEADY, backchannel_per_s=0.2)).run(2000)
    record = world.user.record
    heard_s = sum(turn.played for turn in record.turns) / OUTPUT_RATE
    assert 0.06 < len(record.backchannels) / heard_s < 0.2
    at = world.words("mhm")
    within = [b - a for a, b in pairwise(at) if b - a < 10 * S]
    assert min(within) >= 3 * S
    for nod in record.backchannels:
        assert any(t.first_audible <= nod.onset < t.end for t in record.turns if t.end)


def test_an_early_question_begins_before_the_answer_has_ended() -> None:
    world = World(replace(STEADY, early_start=1.0)).run(30)
    first, second = world.user.record.turns[:2]
    assert first.ended == "played"
    assert 20 * MS <= first.end - second.u0 <= 600 * MS
    assert world.user.record.barge_ins == []
    assert not second.interrupting


def test_a_user_who_hangs_up_leaves_within_an_answer() -> None:
    world = World(replace(STEADY, hang_up=1.0)).run(30)
    ((at, intent),) = world.done
    assert isinstance(intent, HangUp)
    turn = world.user.record.turns[0]
    assert turn.first_audible < at < turn.first_audible + 10 * S
    assert (turn.ended, turn.end) == ("left", at)
    assert world.user.next_at() == NEVER
    figures = measure([world.user.record], 30.0)
    assert figures["turns"] == 0
    assert figures["turns_ended"] == {"left": 1}


def test_what_was_heard_does_not_go_on_when_the_user_has_left() -> None:
    world = World(replace(STEADY, hang_up=1.0)).run(30)
    turn = world.user.record.turns[0]
    record = world.user.finish(world.now)
    assert record.played_samples == turn.played < 10 * OUTPUT_RATE
    assert world.user.played("r1", world.now) == turn.played
    assert not world.user.goes_on("r1", world.now)


def test_a_lost_connection_is_no_hang_up() -> None:
    world = World(replace(STEADY, drop=1.0)).run(30)
    assert [type(intent) for _, intent in world.done] == [Drop]


def test_no_call_is_longer_than_its_cap() -> None:
    world = World(replace(STEADY, call_limit_s=25.0)).run(60)
    assert world.done == [(25 * S, HangUp())]
    assert world.user.done


def test_sessions_have_the_mean_number_of_turns() -> None:
    counts = []
    for seed in range(60):
        world = World(replace(STEADY, turns=4.0), seed=seed).run(900)
        assert isinstance(world.done[0][1], HangUp)
        counts.append(len(world.user.record.turns))
    assert 3.0 < sum(counts) / len(counts) < 5.2


def test_interruptions_are_spread_over_the_answer() -> None:
    world = World(replace(STEADY, barge_in=1.0)).run(600)
    record = world.user.record
    at = [
        (b.onset - t.first_audible) / S
        for b, t in zip(record.barge_ins, record.turns, strict=False)
    ]
    assert len(at) > 40
    assert min(at) < 2 < 8 < max(at)
    # the server hears none of them, so each answer is still there when the next comes
    assert {turn.ended for turn in record.turns[:-2]} <= {"ignored", "played"}


def test_an_answer_under_way_at_the_end_counts_with_what_was_heard() -> None:
    world = World().run(6)
    record = world.user.finish(world.now)
    (turn,) = record.turns
    assert turn.ended == ""
    assert turn.played == int(4.2 * OUTPUT_RATE)
    figures = measure([record], 6.0)
    assert (figures["turns"], figures["responses"]) == (0, 1)


def test_a_user_repeats_what_was_recorded() -> None:
    turns = (
        TraceTurn(1.25, 10, 30, rest_s=0.75, barge_in_s=3.0, nods=((1.0, 0.4), (2.0, 0.3))),
        TraceTurn(2.0, 10, 30),
        TraceTurn(1.0, 10, 30, rest_s=2.5, leave_s=4.0),
    )
    rng = random.Random(0)
    lines = Spelled(STEADY, PACE, rng)
    script = TracedScript(TraceSession(0.0, turns), lines.turn, lines.nod)
    world = World(script=script).run(60)
    first, second, third = world.user.record.turns
    assert (first.u0, first.u1) == (750 * MS, 2000 * MS)
    heard = first.first_audible or 0
    assert world.words("mhm") == [heard + 1 * S, heard + 2 * S]
    assert (second.u0, second.u1) == (heard + 3 * S, heard + 5 * S)
    assert second.interrupting
    assert third.u0 == (second.end or 0) + int(2.5 * S)
    assert world.done == [((third.first_audible or 0) + 4 * S, HangUp())]


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_sound_has_a_length(kind: Kind) -> None:
    said = Spelled(Workload(), PACE, random.Random(3)).next(kind)
    assert 0 < said.end_ns <= 20 * S
    assert (said.answer_ns is not None) is (kind in (Kind.QUESTION, Kind.INTERRUPTION))
