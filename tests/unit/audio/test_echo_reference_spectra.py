"""The far end's history is the same however it was moved on: frame by frame, several at once, with pieces written late."""

from __future__ import annotations

import numpy as np
import pytest

from session_server.audio.echo_guard import EchoGuard
from session_server.audio.echo_reference import BLOCKS, FarEndSpectra, PlaybackReference
from session_server.audio.vad import FRAME_SAMPLES
from session_server.session.audio_output import SOONEST_NS
from session_server.types.audio import INPUT_RATE, NS_PER_MS, NS_PER_S, OUTPUT_RATE
from tests.unit.audio.signals import speechlike

pytestmark = pytest.mark.unit


def reference(seconds: float = 2.0) -> PlaybackReference:
    made = PlaybackReference()
    made.write(NS_PER_S, speechlike(seconds, OUTPUT_RATE, 4, rms=3000.0).astype("<i2").tobytes())
    return made


def history(positions: list[int]) -> FarEndSpectra:
    spectra, far_end = FarEndSpectra(), reference()
    for position in positions:
        spectra.advance(far_end, position)
    return spectra


@pytest.mark.parametrize("step", [1, 2, 7, BLOCKS - 1, BLOCKS + 3])
def test_frames_that_were_left_out_are_caught_up_with(step: int):
    start = 2 * INPUT_RATE
    every = [start + n * FRAME_SAMPLES for n in range(step + 1)]
    one_by_one, at_once = history(every), history([every[0], every[-1]])
    for name in ("blocks", "block_powers", "powers"):
        expected, got = getattr(one_by_one, name), getattr(at_once, name)
        assert np.allclose(got, expected, rtol=1e-3, atol=np.abs(expected).max() * 1e-5), name


def test_audio_that_is_announced_as_it_is_sent_is_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    """A call's frames come every 20 ms, just before they sound; each transform is made once, not at every frame again."""
    looked_at: list[int] = []
    recompute = FarEndSpectra._recompute

    def counted(self: FarEndSpectra, reference: PlaybackReference, newest: int, stale: int) -> None:
        looked_at.append(stale)
        recompute(self, reference, newest, stale)

    monkeypatch.setattr(FarEndSpectra, "_recompute", counted)
    guard = EchoGuard()
    sound = speechlike(4.0, OUTPUT_RATE, 4, rms=3000.0).astype("<i2").tobytes()
    frame = np.full(FRAME_SAMPLES, 500, np.int16)
    events = [(n * 20, "sent") for n in range(200)] + [(n * 32 + 1, "heard") for n in range(125)]
    for ms, what in sorted(events):
        now = NS_PER_S + ms * NS_PER_MS
        if what == "sent":
            guard.playing(now + SOONEST_NS, sound[ms * 48 : (ms + 20) * 48])
        else:
            guard.check(frame, now)
    assert len(looked_at) > 100
    assert max(looked_at[5:]) <= 2 * FRAME_SAMPLES


def test_a_quiet_microphone_costs_nothing_and_the_voice_after_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
):
    """Somebody listens in a quiet room while an answer plays, then speaks."""
    looked_at: list[int] = []
    advance = FarEndSpectra.advance

    def counted(self: FarEndSpectra, far_end: PlaybackReference, newest: int) -> None:
        looked_at.append(newest)
        advance(self, far_end, newest)

    monkeypatch.setattr(FarEndSpectra, "advance", counted)
    guard = EchoGuard()
    sound = speechlike(12.0, OUTPUT_RATE, 4, rms=3000.0).astype("<i2").tobytes()
    guard.playing(NS_PER_S, sound)
    room = np.random.default_rng(1)
    for n in range(250):
        noise = (10 * room.standard_normal(FRAME_SAMPLES)).astype(np.int16)
        guard.check(noise, NS_PER_S + n * 32 * NS_PER_MS, 0.0)
    assert len(looked_at) < 50
    before = len(looked_at)
    voice = speechlike(1.0, INPUT_RATE, 9, rms=3000.0).astype(np.int16)
    for n in range(25):
        frame = voice[n * FRAME_SAMPLES : (n + 1) * FRAME_SAMPLES]
        assert not guard.check(frame, NS_PER_S + (250 + n) * 32 * NS_PER_MS, 0.9).is_echo
    assert len(looked_at) == before + 25
