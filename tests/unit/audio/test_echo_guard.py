"""The agent's own voice does not interrupt it; a person does. Synthetic rooms, no models."""

from dataclasses import dataclass

import numpy as np
import pytest

from session_server.audio.echo_guard import EchoGuard, EchoVerdict
from session_server.audio.formats import FirResampler
from session_server.audio.vad import FRAME_SAMPLES
from tests.unit.audio.signals import filtered, room, speechlike

pytestmark = pytest.mark.unit

RATE = 16000
START_NS = 7_000_000_000
COMMIT_FRAMES = 8  # 250 ms


def to_input_rate(pcm: np.ndarray) -> np.ndarray:
    resampler = FirResampler(24000, RATE)
    return np.concatenate((resampler.push(pcm), resampler.flush())).astype(float)


def echo_of(
    agent: np.ndarray, response: np.ndarray, level_db: float, delay_ms: float
) -> np.ndarray:
    heard = filtered(to_input_rate(agent), response) * 10 ** (level_db / 20)
    return np.concatenate((np.zeros(int(delay_ms * RATE / 1000)), heard))


def mixed(seconds: float, *parts: tuple[float, np.ndarray], noise: float = 3.0) -> np.ndarray:
    """Microphone: each part from its start (s) on, plus a little noise of the device."""
    out = noise * np.random.default_rng(99).standard_normal(int(seconds * RATE))
    for start, part in parts:
        at = int(start * RATE)
        piece = part[: len(out) - at]
        out[at : at + len(piece)] += piece
    return np.clip(out, -32768, 32767).astype(np.int16)


@dataclass
class Outcome:
    verdicts: list[EchoVerdict]
    loud: np.ndarray

    @property
    def echo(self) -> np.ndarray:
        return np.array([v.is_echo for v in self.verdicts])

    def longest_run(self, first: int = 0, last: int | None = None) -> int:
        """Most loud frames in a row that are not called echo; quiet frames neither count nor end it."""
        longest = run = 0
        for echo, loud in list(zip(self.echo, self.loud, strict=True))[first:last]:
            run = 0 if echo else run + bool(loud)
            longest = max(longest, run)
        return longest


def converse(
    guard: EchoGuard,
    agent: np.ndarray,
    microphone: np.ndarray,
    *,
    start_ns: int = START_NS,
    lead_s: float = 0.3,
    jitter_ms: float = 0.0,
) -> Outcome:
    """Play `agent` in 100 ms slices with a lead, and check each frame of the microphone as it comes in."""
    rng, sent, verdicts, loud = np.random.default_rng(5), 0, [], []
    for at in range(0, len(microphone) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        now = (at + FRAME_SAMPLES) / RATE
        while sent < len(agent) and sent / 24000 < now + lead_s:
            pcm = agent[sent : sent + 2400].astype("<i2").tobytes()
            guard.playing(start_ns + sent * 1_000_000_000 // 24000, pcm)
            sent += 2400
        frame = microphone[at : at + FRAME_SAMPLES]
        late = int(rng.uniform(0, jitter_ms) * 1e6)
        verdicts.append(guard.check(frame, start_ns + int(now * 1e9) + late))
        loud.append(np.sqrt(np.mean(frame.astype(float) ** 2)) > 30)
    return Outcome(verdicts, np.array(loud))


AGENT = speechlike(6.0, 24000, seed=11)
PERSON = speechlike(2.5, RATE, seed=23, rms=1500).astype(float)


@pytest.mark.parametrize(
    ("delay_ms", "level_db"), [(20, -30), (90, -20), (200, -25), (350, -20), (500, -30)]
)
@pytest.mark.parametrize("rt60_s", [0.1, 0.4])
def test_the_agent_does_not_interrupt_itself(delay_ms, level_db, rt60_s) -> None:
    echo = echo_of(AGENT, room(RATE, seed=3, rt60_s=rt60_s), level_db, delay_ms)
    outcome = converse(EchoGuard(), AGENT, mixed(6.8, (0.0, echo)))
    assert outcome.longest_run() < COMMIT_FRAMES
    assert outcome.echo[outcome.loud][COMMIT_FRAMES:].mean() > 0.95


def test_the_delay_is_found() -> None:
    guard = EchoGuard()
    assert guard.delay_ms is None
    converse(guard, AGENT, mixed(4.0, (0.0, echo_of(AGENT, room(RATE, 1), -20, 180))))
    assert guard.delay_ms == pytest.approx(180, abs=1)


@pytest.mark.parametrize("seed", range(5))
def test_a_person_with_headphones_is_never_called_echo(seed) -> None:
    person = speechlike(6.0, RATE, seed=100 + seed, rms=800 + 300 * seed).astype(float)
    outcome = converse(EchoGuard(), AGENT, mixed(6.8, (0.3, person)))
    assert outcome.echo.sum() == 0


@pytest.mark.parametrize("level_db", [-20, -28])
@pytest.mark.parametrize("delay_ms", [30, 240])
def test_a_person_who_speaks_over_the_echo_is_heard(level_db, delay_ms) -> None:
    echo = echo_of(AGENT, room(RATE, seed=4), level_db, delay_ms)
    outcome = converse(EchoGuard(), AGENT, mixed(6.8, (0.0, echo), (3.0, PERSON)))
    onset = int(3.0 * RATE / FRAME_SAMPLES)
    assert outcome.longest_run(0, onset) < COMMIT_FRAMES
    heard = (outcome.loud & ~outcome.echo)[onset : onset + 12]  # 0.4 s
    assert heard.sum() >= COMMIT_FRAMES
    over = slice(onset + 1, onset + int(2.4 * RATE / FRAME_SAMPLES))
    assert outcome.echo[over][outcome.loud[over]].mean() < 0.4


def test_the_echo_is_known_again_after_a_person_spoke() -> None:
    agent = speechlike(9.0, 24000, seed=12)
    echo = echo_of(agent, room(RATE, seed=5), -20, 120)
    outcome = converse(EchoGuard(), agent, mixed(9.5, (0.0, echo), (2.5, PERSON)))
    assert outcome.longest_run(int(5.2 * RATE / FRAME_SAMPLES)) < COMMIT_FRAMES


def test_jitter_of_arrival_does_not_matter() -> None:
    microphone = mixed(6.8, (0.0, echo_of(AGENT, room(RATE, seed=6), -20, 200)))
    outcome = converse(EchoGuard(), AGENT, microphone, jitter_ms=100)
    assert outcome.longest_run() < COMMIT_FRAMES


def test_just_in_time_slices_are_as_good_as_early_ones() -> None:
    microphone = mixed(6.8, (0.0, echo_of(AGENT, room(RATE, seed=6), -20, 60)))
    outcome = converse(EchoGuard(), AGENT, microphone, lead_s=0.0)
    assert outcome.longest_run() < COMMIT_FRAMES


def test_another_delay_in_the_next_response() -> None:
    guard, response = EchoGuard(), room(RATE, seed=7)
    converse(guard, AGENT, mixed(7.5, (0.0, echo_of(AGENT, response, -20, 60))))
    following = speechlike(5.0, 24000, seed=13)
    microphone = mixed(5.5, (0.0, echo_of(following, response, -20, 310)))
    outcome = converse(guard, following, microphone, start_ns=START_NS + 9_000_000_000)
    assert outcome.longest_run() < COMMIT_FRAMES
    assert guard.delay_ms == pytest.approx(310, abs=1)


def test_a_hole_in_the_microphones_stream_does_not_move_the_delay() -> None:
    microphone = mixed(6.8, (0.0, echo_of(AGENT, room(RATE, seed=8), -20, 100)))
    guard, hole = EchoGuard(), slice(70 * FRAME_SAMPLES, 90 * FRAME_SAMPLES)
    sent, after = 0, []
    for at in range(0, len(microphone) - FRAME_SAMPLES, FRAME_SAMPLES):
        while sent < len(AGENT) and sent / 24000 < at / RATE + 0.3:
            pcm = AGENT[sent : sent + 2400].astype("<i2").tobytes()
            guard.playing(START_NS + sent * 1_000_000_000 // 24000, pcm)
            sent += 2400
        if hole.start <= at < hole.stop:
            continue  # muted: no frames come
        end_ns = START_NS + (at + FRAME_SAMPLES) * 1_000_000_000 // RATE
        frame = microphone[at : at + FRAME_SAMPLES]
        verdict = guard.check(frame, end_ns)
        if at >= hole.stop and np.abs(frame).max() > 100:
            after.append(verdict.is_echo)
    assert guard.delay_ms == pytest.approx(100, abs=1)
    assert np.mean(after) > 0.95


def test_nothing_is_echo_while_nothing_plays() -> None:
    person = mixed(2.0, (0.0, PERSON))
    outcome = converse(EchoGuard(), np.zeros(0, np.int16), person)
    assert not outcome.echo.any()


def test_nothing_is_echo_long_after_the_response() -> None:
    echo = echo_of(AGENT, room(RATE, seed=9), -20, 100)
    microphone = mixed(11.0, (0.0, echo), (8.2, PERSON))
    outcome = converse(EchoGuard(), AGENT, microphone)
    assert not outcome.echo[int(8.2 * RATE / FRAME_SAMPLES) :].any()


def test_after_a_cut_a_person_is_not_compared_with_audio_that_never_sounded() -> None:
    echo = echo_of(AGENT, room(RATE, seed=10), -20, 100)
    microphone = mixed(6.0, (0.0, echo[: 3 * RATE]), (4.2, PERSON))
    guard = EchoGuard()
    before = converse(guard, AGENT, microphone[: 3 * RATE], lead_s=3.0)
    assert before.longest_run() < COMMIT_FRAMES
    guard.cut(START_NS + 3_000_000_000)
    start = START_NS + 3_000_000_000
    after = converse(guard, np.zeros(0, np.int16), microphone[3 * RATE :], start_ns=start)
    onset = int(1.2 * RATE / FRAME_SAMPLES)
    assert after.echo[onset + 1 :][after.loud[onset + 1 :]].mean() < 0.1


def test_the_same_input_gives_the_same_verdicts() -> None:
    microphone = mixed(3.0, (0.0, echo_of(AGENT, room(RATE, seed=2), -25, 80)), (1.5, PERSON))
    first = converse(EchoGuard(), AGENT, microphone)
    assert converse(EchoGuard(), AGENT, microphone).verdicts == first.verdicts
