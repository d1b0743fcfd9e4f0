"""Sparse frames of voice probability decide what the whole stream decides."""

from __future__ import annotations

import random

import pytest

from session_server.core import actions, events
from session_server.core.session import Session
from session_server.core.settings import CoreParams, SessionSettings, TurnDetection, TurnMode
from session_server.simulation.network import Noise, Path
from session_server.simulation.spec import NetworkModel
from session_server.simulation.speech_edges import SpeechEdges
from session_server.simulation.virtual_loop import VirtualLoop
from session_server.types.audio import NS_PER_MS, NS_PER_S, WordSpan
from session_server.types.ids import SequentialIds
from session_server.types.usage import TokenUsage

pytestmark = pytest.mark.sim

_CALM = NetworkModel(jitter_ms=0.0)


class _Bench:
    """A core, its ears and a host that answers everything after fixed times."""

    def __init__(self, whole: bool, mode: TurnMode, speculate: bool) -> None:
        self.loop = VirtualLoop()
        self.log: list[tuple[int, str]] = []
        self.params = CoreParams(speculate=speculate)
        detection = TurnDetection(mode=mode)
        self.core = Session(
            SessionSettings(turn_detection=detection), self.params, SequentialIds(), 0
        )
        self.ears = SpeechEdges(
            self.loop,
            Path(_CALM, Noise(random.Random(0))),
            self.handle,
            lambda: self.core.state,
            detection,
            self.params,
            whole=whole,
        )
        self.armed = 0

    def feed(self, event: events.Event) -> None:
        self.ears.catch_up()
        self.handle(event)

    def handle(self, event: events.Event) -> None:
        self._carry_out(self.core.handle(event, self.loop.time))

    def _carry_out(self, wanted: list[actions.Action]) -> None:
        for action in wanted:
            if not isinstance(action, actions.ForgetInput):
                self.log.append((self.loop.time, _shown(action)))
            self._answer(action)
        deadline = self.core.next_deadline()
        if deadline is not None and not (self.loop.time < self.armed <= deadline):
            self.armed = max(deadline, self.loop.time + 1)
            self.loop.at(self.armed, self._ring, self.armed)

    def _ring(self, at: int) -> None:
        if at == self.armed:
            self.armed = 0
            self.ears.catch_up()
            self._carry_out(self.core.on_deadline(self.loop.time))

    def _later(self, ms: int, event: events.Event) -> None:
        odd = 13_711  # nothing of the host falls on the instant of a frame, where order would be a matter of taste
        self.loop.at(self.loop.time + ms * NS_PER_MS + odd, self.feed, event)

    def _answer(self, action: actions.Action) -> None:
        match action:
            case actions.RecogniseRange(work_id):
                self._later(83, events.TranscriptReady(work_id, "so tell me"))
            case actions.JudgeRange(work_id):
                self._later(61, events.TurnJudged(work_id, 0.9))
            case actions.StartGeneration(response_id):
                word = WordSpan(0, 5, 0, 24_000)
                self._later(90, events.TextGenerated(response_id, "Hello there my friend. "))
                self._later(95, events.ClauseSpoken(response_id, 0, 23, 0, 96_000, (word,)))
                for i in range(8):
                    chunk = events.AudioGenerated(response_id, i * 12_000, b"\x00\x20" * 12_000)
                    self._later(100 + 150 * i, chunk)
                done = events.GenerationFinished(response_id, "stop", TokenUsage())
                self._later(1400, done)
            case actions.SendAudio(part, _, start, pcm):
                self._later(0, events.AudioWritten(part.response_id, start + len(pcm) // 2))
            case _:
                pass


def _shown(action: actions.Action) -> str:
    if isinstance(action, actions.SendAudio):
        return f"SendAudio {action.part.response_id} {action.start_sample} {len(action.pcm)}"
    return repr(action)


def _speech(seed: int) -> list[tuple[int, int]]:
    """Utterances: long ones, short noises, resumed ones, some over the answer."""
    rng = random.Random(seed)
    now, spoken = 200 * NS_PER_MS, []
    for _ in range(8):
        length = rng.choice((40, 130, 260, 420, 900, 1500, 3200)) * NS_PER_MS
        length += rng.randrange(0, 30 * NS_PER_MS)
        spoken.append((now, now + length))
        rest = rng.choice((120, 250, 450, 900, 1800, 4000)) * NS_PER_MS
        now += length + rest + rng.randrange(0, 30 * NS_PER_MS)
    return spoken


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("mode", [TurnMode.SERVER_VAD, TurnMode.SEMANTIC_VAD])
@pytest.mark.parametrize("speculate", [False, True])
def test_sparse_frames_lead_to_the_same_actions_at_the_same_instants(
    seed: int, mode: TurnMode, speculate: bool
) -> None:
    logs = []
    for whole in (True, False):
        bench = _Bench(whole, mode, speculate)
        for begin, end in _speech(seed):
            bench.loop.at(begin, bench.ears.speak, begin, end)
        bench.loop.run_until(40 * NS_PER_S)
        logs.append(bench.log)
    assert len(logs[0]) > 30
    for whole_action, sparse_action in zip(*logs, strict=False):
        assert whole_action == sparse_action
    assert len(logs[0]) == len(logs[1])


def test_sparse_frames_are_few() -> None:
    counts = []
    for whole in (True, False):
        bench = _Bench(whole, TurnMode.SERVER_VAD, False)
        heard: list[events.Event] = []
        inner = bench.handle
        bench.ears._handle = lambda event, inner=inner, heard=heard: (
            heard.append(event),
            inner(event),
        )
        bench.loop.at(NS_PER_S, bench.ears.speak, NS_PER_S, 4 * NS_PER_S)
        bench.loop.run_until(20 * NS_PER_S)
        counts.append(len(heard))
    assert counts[1] * 20 < counts[0]
