"""Self-interruption and barge-in with recorded rooms and voices and the real detector."""

import numpy as np
import pytest

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.formats import FirResampler
from session_server.audio.vad import FRAME_SAMPLES, SileroModel, SileroVad
from tests.unit.audio.resources import SILERO, needs_recordings, needs_silero, recording
from tests.unit.audio.signals import filtered

pytestmark = [pytest.mark.unit, pytest.mark.models, needs_silero, needs_recordings]

START_NS = 3_000_000_000
ON, OFF, START_FRAMES, COMMIT_FRAMES, HANG_FRAMES = 0.5, 0.35, 3, 8, 16


@pytest.fixture(scope="module")
def model() -> SileroModel:
    return SileroModel(SILERO)


def guarded(model: SileroModel, agent: np.ndarray, microphone: np.ndarray, *, guard: bool):
    """(probability after the guard, verdict) of each frame; `agent` int16 at 16 kHz."""
    resampler = FirResampler(16000, 24000)
    sound = np.concatenate((resampler.push(agent), resampler.flush()))
    vad, echo_guard, sent, found = SileroVad(model), EchoGuard(), 0, []
    for at in range(0, len(microphone) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        now = (at + FRAME_SAMPLES) / 16000
        while sent < len(sound) and sent / 24000 < now + 0.3:
            pcm = sound[sent : sent + 2400].astype("<i2").tobytes()
            echo_guard.playing(START_NS + sent * 1_000_000_000 // 24000, pcm)
            sent += 2400
        frame = microphone[at : at + FRAME_SAMPLES]
        probability = vad.probability(frame)
        echo = guard and echo_guard.check(frame, START_NS + int(now * 1e9), probability).is_echo
        found.append((0.0 if echo else probability, echo))
    probabilities, echoes = zip(*found, strict=True)
    return np.array(probabilities), np.array(echoes)


def commits(probabilities: np.ndarray) -> list[int]:
    """Frames at which 250 ms of speech have come together since a start (96 ms in a row)."""
    found, run, voiced, silent, speaking = [], 0, 0, 0, False
    for at, p in enumerate(probabilities):
        if not speaking:
            run = run + 1 if p >= ON else 0
            if run == START_FRAMES:
                speaking, voiced, silent = True, run, 0
            continue
        voiced, silent = (voiced + 1, 0) if p >= OFF else (voiced, silent + 1)
        if voiced == COMMIT_FRAMES:
            found.append(at)
            voiced += 1
        if silent >= HANG_FRAMES:
            speaking, run = False, 0
    return found


def test_recorded_echo_alone_does_not_interrupt(model: SileroModel) -> None:
    agent, microphone = recording("echo/farend_ref.flac"), recording("echo/mic_farend_only.flac")
    without, _ = guarded(model, agent, microphone, guard=False)
    assert commits(without)  # the echo is speech to the detector: the guard is needed
    probabilities, _ = guarded(model, agent, microphone, guard=True)
    assert commits(probabilities) == []


def test_a_person_over_recorded_echo_interrupts_in_time(model: SileroModel) -> None:
    agent, microphone = recording("echo/farend_ref.flac"), recording("echo/mic_doubletalk.flac")
    probabilities, echoes = guarded(model, agent, microphone, guard=True)
    onset = int(2.5 * 16000 / FRAME_SAMPLES)
    first = commits(probabilities)[0]
    assert onset < first <= onset + 20  # 0.64 s: 0.4 s and 250 ms of speech
    person = microphone.astype(float) - recording("echo/mic_farend_only.flac")
    frames = person[: len(echoes) * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    speaks = np.sqrt((frames**2).mean(axis=1)) > 500
    assert speaks.sum() > 40
    assert echoes[speaks].mean() < 0.25  # the person is 9 dB above the echo


@pytest.mark.parametrize(
    ("room", "level_db", "delay_ms"),
    [
        ("lh_sim_1ch", -20, 40),
        ("lh_sim_1ch", -32, 320),
        ("sb_rir1", -20, 320),
        ("sb_rir3", -25, 150),
        ("sb_rir3", -20, 480),
        ("am_rir48000", -20, 40),
    ],
)
def test_recorded_rooms_do_not_make_the_agent_interrupt_itself(
    model: SileroModel, room: str, level_db: float, delay_ms: int
) -> None:
    agent = recording("speech/ls_2412-153948-0000.flac")[: 6 * 16000]
    response = recording(f"rir/{room}.flac").astype(float)
    response /= np.sqrt((response**2).sum())
    heard = filtered(agent, response)[: len(agent)] * 10 ** (level_db / 20)
    noise = 5 * np.random.default_rng(1).standard_normal(len(heard) + delay_ms * 16)
    noise[delay_ms * 16 :] += heard
    probabilities, _ = guarded(model, agent, noise.astype(np.int16), guard=True)
    assert commits(probabilities) == []


@pytest.mark.parametrize("name", ["jfk", "arctic_aew_a0001", "sb_spk1_snt1", "cards_002"])
def test_a_recorded_person_with_headphones_is_never_called_echo(model, name: str) -> None:
    agent = recording("speech/librivox_0870.flac")
    person = recording(f"speech/{name}.flac")[: 6 * 16000]
    _, echoes = guarded(model, agent, person, guard=True)
    assert not echoes.any()
