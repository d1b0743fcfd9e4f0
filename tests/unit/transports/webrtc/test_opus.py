"""Opus by ctypes: what goes in comes out, losses are made up, memory is freed, nonsense is refused."""

from __future__ import annotations

import gc
import resource
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from session_server.transports.webrtc import opus
from session_server.transports.webrtc.opus import Decoder, Encoder, OpusError
from session_server.types.audio import INPUT_RATE, OUTPUT_RATE
from tests.unit.audio.signals import speechlike

pytestmark = pytest.mark.unit

FRAME = OUTPUT_RATE // 50
HEARD = INPUT_RATE // 50


def packets(seconds: float = 2.0, loss: int = 0, rate: int = OUTPUT_RATE) -> list[bytes]:
    sound = speechlike(seconds, rate, 3, rms=4000.0).astype("<i2").tobytes()
    encoder = Encoder(rate, opus.BIT_RATE, opus.COMPLEXITY)
    if loss:
        encoder.expect_loss(loss)
    step = 2 * rate // 50
    made = [encoder.encode(sound[at : at + step]) for at in range(0, len(sound), step)]
    encoder.close()
    return made


def samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, "<i2").astype(float)


def loudness(pcm: bytes) -> float:
    return float(np.sqrt(np.mean(samples(pcm) ** 2)))


def decoded(made: list[bytes], decoder: Decoder) -> list[bytes]:
    return [decoder.decode(packet) for packet in made]


def test_speech_at_24_khz_comes_out_at_16_khz():
    made = packets()
    out = decoded(made, Decoder(INPUT_RATE))
    assert {len(pcm) for pcm in out} == {2 * HEARD}
    sound = speechlike(2.0, OUTPUT_RATE, 3, rms=4000.0)
    assert loudness(b"".join(out)) == pytest.approx(float(np.sqrt(np.mean(sound**2.0))), rel=0.2)


def test_every_frame_is_a_packet_in_silence_too():
    encoder = Encoder(OUTPUT_RATE, opus.BIT_RATE, opus.COMPLEXITY)
    made = [encoder.encode(bytes(2 * FRAME)) for _ in range(200)]
    assert all(len(packet) > 2 for packet in made), "a packet of two bytes or less is DTX"


def similarity(a: bytes, b: bytes) -> float:
    x, y = samples(a), samples(b)
    return float(x @ y / np.sqrt((x @ x) * (y @ y) + 1e-9))


def test_a_lost_packet_is_recovered_from_the_copy_in_the_next_one_better_than_by_guessing():
    made = packets(3.0, loss=20, rate=INPUT_RATE)
    whole = decoded(made, Decoder(INPUT_RATE))
    loud = [n for n in range(20, len(made) - 1) if loudness(whole[n]) > 2000][::7]
    recovered, guessed = [], []
    for n in loud:
        decoder = Decoder(INPUT_RATE)
        decoded(made[:n], decoder)
        pcm = decoder.recover(made[n + 1], HEARD)
        assert len(pcm) == 2 * HEARD
        recovered.append(similarity(pcm, whole[n]))
        decoder = Decoder(INPUT_RATE)
        decoded(made[:n], decoder)
        guessed.append(similarity(decoder.conceal(HEARD), whole[n]))
    assert len(loud) > 5
    assert np.median(recovered) > np.median(guessed)
    assert np.median(recovered) > 0.7


def by_transform(packet: bytes) -> bool:
    """RFC 6716, 3.1: configurations from 16 on are CELT alone."""
    return packet[0] >> 3 >= 16


def test_a_light_encoder_spares_the_speech_model_until_something_is_lost():
    """Copies of lost frames exist in the speech model alone: a client that reports losses must get them."""
    sound = speechlike(6.0, OUTPUT_RATE, 3, rms=4000.0).astype("<i2").tobytes()
    frames = [sound[at : at + 2 * FRAME] for at in range(0, len(sound), 2 * FRAME)]
    encoder = Encoder(OUTPUT_RATE, opus.BIT_RATE, opus.COMPLEXITY, light=True)
    good = [encoder.encode(frame) for frame in frames[:100]]
    encoder.expect_loss(10)
    lossy = [encoder.encode(frame) for frame in frames[100:200]]
    encoder.expect_loss(0)
    again = [encoder.encode(frame) for frame in frames[200:]]
    assert all(map(by_transform, good))
    assert not any(map(by_transform, lossy[5:]))
    assert all(map(by_transform, again[5:]))
    heard = decoded(good + lossy + again, Decoder(OUTPUT_RATE))
    for at in range(0, len(frames) - 10, 10):  # over the joints, too, it is as loud as it was said
        said, out = (loudness(b"".join(x[at : at + 10])) for x in (frames, heard))
        assert 0.6 * said - 100 < out < 1.5 * said + 100


def test_two_lost_packets_are_made_up_in_one_piece():
    made = packets()
    decoder = Decoder(INPUT_RATE)
    decoded(made[:50], decoder)
    assert len(decoder.recover(made[52], 2 * HEARD)) == 4 * HEARD
    assert len(decoder.decode(made[52])) == 2 * HEARD


def test_a_long_loss_fades_instead_of_humming():
    decoder = Decoder(INPUT_RATE)
    decoded(packets(), decoder)
    made_up = [decoder.conceal(HEARD) for _ in range(25)]
    assert loudness(made_up[-1]) < 300


def test_what_is_closed_or_nonsense_is_refused_and_never_crashes():
    encoder, decoder = Encoder(OUTPUT_RATE, 32_000, 5), Decoder(INPUT_RATE)
    for bad in (b"", bytes(2 * FRAME - 2)):
        with pytest.raises(OpusError):
            encoder.encode(bad)
    for packet in (b"", b"\xff\xff\xff"):
        with pytest.raises(OpusError):
            decoder.decode(packet)
    for wrong in (HEARD + 1, 10 * INPUT_RATE):
        with pytest.raises(OpusError):
            decoder.conceal(wrong)
    for state in (encoder, decoder):
        state.close()
        state.close()
    with pytest.raises(OpusError, match="closed"):
        encoder.encode(bytes(2 * FRAME))
    with pytest.raises(OpusError, match="closed"):
        decoder.conceal(HEARD)
    with pytest.raises(OpusError):
        Encoder(44_100, 32_000, 5)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(packet: bytes):
    decoder = Decoder(INPUT_RATE)
    for attempt in (decoder.decode, lambda p: decoder.recover(p, HEARD)):
        with suppress(OpusError):
            assert len(attempt(packet)) % 2 == 0
    decoder.close()


def test_the_states_of_three_hundred_calls_leave_no_memory_behind():
    def round_of(calls: int) -> None:
        for _ in range(calls):
            encoder, decoder = Encoder(OUTPUT_RATE, 32_000, 5), Decoder(INPUT_RATE)
            decoder.decode(encoder.encode(bytes(2 * FRAME)))
            encoder.close()
            decoder.close()

    round_of(50)
    gc.collect()
    before = resident()
    round_of(1000)
    gc.collect()
    assert resident() - before < 4_000_000, "the states of 1000 calls are about 60 MB"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_without_libopus_the_codec_of_av_stands_in(monkeypatch: pytest.MonkeyPatch):
    ours = opus.new_encoder()
    assert isinstance(ours._encoder, Encoder)
    monkeypatch.setattr(opus, "missing", lambda: "libopus: not there")
    theirs = opus.new_encoder()
    assert isinstance(theirs._encoder, opus.PyAvEncoder)
    decoder = Decoder(INPUT_RATE)
    for encoder in (ours, theirs):
        packet = encoder.encode(bytes(2 * FRAME))
        assert len(decoder.decode(packet)) == 2 * HEARD
        encoder.close()
        encoder.close()


class Counting:
    """An encoder that counts what it is given."""

    def __init__(self, light: bool) -> None:
        self.encoder = Encoder(OUTPUT_RATE, opus.BIT_RATE, opus.COMPLEXITY, light=light)
        self.frames = 0

    def encode(self, pcm: bytes) -> bytes:
        self.frames += 1
        return self.encoder.encode(pcm)

    def expect_loss(self, percent: int) -> None:
        self.encoder.expect_loss(percent)

    def close(self) -> None:
        self.encoder.close()


@pytest.mark.parametrize("light", [True, False])
def test_silence_is_encoded_once_and_speech_after_it_is_as_good_as_ever(*, light: bool):
    sound = speechlike(2.0, OUTPUT_RATE, 3, rms=4000.0).astype("<i2").tobytes()
    spoken = [sound[at : at + 2 * FRAME] for at in range(0, len(sound), 2 * FRAME)]
    frames = [*spoken[:50], *[bytes(2 * FRAME)] * 150, *spoken[50:]]
    once = Counting(light)
    heard = {}
    for name, encoder in (("always", Counting(light)), ("once", opus.SilenceOnce(once))):
        decoder = Decoder(OUTPUT_RATE)
        heard[name] = b"".join(decoder.decode(encoder.encode(frame)) for frame in frames)
    assert once.frames == len(spoken) + opus.SETTLED_FRAMES
    silent = slice(2 * FRAME * 100, 2 * FRAME * 195)
    assert loudness(heard["once"][silent]) < 2
    after = b"".join(frames[201:])
    behind = round(0.0065 * OUTPUT_RATE)
    wrong = {
        name: loudness(
            (samples(pcm[2 * (FRAME * 201 + behind) :]) - samples(after)[:-behind])
            .astype("<i2")
            .tobytes()
        )
        for name, pcm in heard.items()
    }
    assert wrong["once"] < 1.1 * wrong["always"]


def test_a_machine_without_libopus_is_told_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    opus._library.cache_clear()
    monkeypatch.setattr(opus.av, "__file__", str(tmp_path / "av" / "__init__.py"))
    monkeypatch.setattr(opus.ctypes.util, "find_library", lambda name: None)
    try:
        assert opus.missing() == "libopus: neither in the wheel of av nor on the system"
    finally:
        monkeypatch.undo()
        opus._library.cache_clear()
    assert opus.missing() is None


def test_from_a_crowd_on_a_call_is_encoded_with_less_effort_and_still_sounds(
    monkeypatch: pytest.MonkeyPatch,
):
    asked: list[int] = []

    class Noted(Encoder):
        def __init__(self, rate: int, bit_rate: int, complexity: int, *, light: bool) -> None:
            asked.append(complexity)
            super().__init__(rate, bit_rate, complexity, light=light)

    monkeypatch.setattr(opus, "Encoder", Noted)
    sound = speechlike(1.0, OUTPUT_RATE, 3, rms=4000.0).astype("<i2").tobytes()
    for calls in (0, opus.CROWDED - 1, opus.CROWDED):
        encoder = opus.new_encoder(calls)
        made = [
            encoder.encode(sound[at : at + 2 * FRAME]) for at in range(0, len(sound), 2 * FRAME)
        ]
        encoder.close()
        loud = loudness(b"".join(decoded(made, Decoder(INPUT_RATE))))
        assert loud == pytest.approx(4000, rel=0.15)
    assert asked == [opus.COMPLEXITY, opus.COMPLEXITY, opus.CROWDED_COMPLEXITY]
